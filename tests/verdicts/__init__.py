"""Recipes with labels made from evidence, and what `check` says of them."""
