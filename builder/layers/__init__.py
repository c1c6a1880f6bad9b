"""SIF images out of layers: travels with a plan, runs on Python 3.10 and later with the standard library alone."""
