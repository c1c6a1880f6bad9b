"""Base images: fetched, and what has to be known of them."""
