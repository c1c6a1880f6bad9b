"""Stand-ins for what cannot be reached from a test machine; each says so in its name."""
