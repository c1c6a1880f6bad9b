"""The SIF: its header, and what is put into it."""
