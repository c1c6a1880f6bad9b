"""Which GPU compiled packages can use, read from their bytes; needs sif/ alone, and travels in plan folders."""
