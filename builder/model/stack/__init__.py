"""What is known of GPU stacks: the tables of `data/gpu`, a dataclass a row."""
