"""A recipe is read: conda and pip files, the container section, every fault of a file at once."""
