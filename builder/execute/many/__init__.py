"""Several builds in one call."""
