"""recipe: one environment file, any supercomputer."""

__version__ = "0.1.0"
