"""What pip installs: resolved, unpacked and compiled on this machine."""
