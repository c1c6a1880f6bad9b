"""Making locks: what needs the network (conda's solver, uv, the registry of the base image)."""
