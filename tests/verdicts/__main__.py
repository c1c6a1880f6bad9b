"""`python -m verdicts [--held]`: print the table of false accepts and refusals, and every wrong cell."""

from __future__ import annotations

import sys

from verdicts.measure import measure, read_rows


def main(words: list[str]) -> int:
    held = words == ["--held"]
    if words and not held:
        print("usage: python -m verdicts [--held]", file=sys.stderr)
        return 2
    result = measure(row for row in read_rows() if row.held == held)
    print(*result.wrong, *result.list_lines(), sep="\n")
    return int(bool(result.wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
