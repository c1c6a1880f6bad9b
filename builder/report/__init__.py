"""Results of images as tables, plots and a page."""
