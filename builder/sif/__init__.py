"""SIF and squashfs: read, write, join and normalise them; standard library only."""
