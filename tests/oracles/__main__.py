"""`python -m oracles KIND FILE`: print the differences between our tables and a fetched file."""

from __future__ import annotations

import sys
from pathlib import Path

from oracles.compare import compare
from oracles.formats import READERS
from oracles.names import NAME_READERS, compare_names


def main(words: list[str]) -> int:
    if len(words) != 2 or words[0] not in (*READERS, *NAME_READERS):
        print(f"usage: python -m oracles {'|'.join((*READERS, *NAME_READERS))} FILE", file=sys.stderr)
        return 2
    text = Path(words[1]).read_text(encoding="utf-8")
    if words[0] in NAME_READERS:
        read, whole = NAME_READERS[words[0]]
        found = list(compare_names(read(text), whole=whole))
    else:
        found = list(compare(READERS[words[0]](text)))
    print(*found, sep="\n")
    return int(any(not line.startswith("#") for line in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
