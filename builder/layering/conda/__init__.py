"""What conda installs: linked on this machine."""
