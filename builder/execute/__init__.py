"""Runs the steps of a plan on this machine, and publishes the image."""
