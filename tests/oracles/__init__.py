"""Comparisons of the GPU tables with what others publish."""
