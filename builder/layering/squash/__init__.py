"""squashfs: folders packed the same way every time, and several of them made one."""
