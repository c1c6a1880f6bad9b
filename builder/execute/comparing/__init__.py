"""Two images held against each other, byte by byte, and what differs told by its name."""
