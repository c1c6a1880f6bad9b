"""One image: made sure of, signed, put into its place, with its papers."""
