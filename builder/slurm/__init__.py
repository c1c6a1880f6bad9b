"""Builds and tests as jobs of Slurm."""
