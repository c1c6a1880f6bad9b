"""The smoke workload that runs inside images: torch and the standard library alone, Python 3.8 and later."""
