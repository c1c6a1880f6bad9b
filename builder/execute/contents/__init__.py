"""Reads what is inside an image, without running it."""
