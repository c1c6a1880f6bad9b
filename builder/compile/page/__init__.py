"""Results as tables, plots and one page: results in, text out."""
