"""Processes, files and logs of this machine."""
