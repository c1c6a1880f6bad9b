"""Commands: the only floor that prints for the user and sets exit codes."""
