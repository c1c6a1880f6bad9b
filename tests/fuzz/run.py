"""make fuzz: fresh cases of every kind, and their counts; exit code 1 where one was a fault or took five seconds."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from cases import KINDS, attempt  # noqa: E402


def main(kinds: list[str]) -> int:
    """FUZZ_CASES and FUZZ_SECONDS are of each kind; FUZZ_SEED is the first seed."""
    most, seconds = int(os.environ.get("FUZZ_CASES", "0")), float(os.environ.get("FUZZ_SECONDS", "60"))
    first = int(os.environ.get("FUZZ_SEED", time.time_ns()))
    faults = 0
    print(
        f"{'kind':10}{'cases':>8}{'refused':>9}{'accepted':>10}{'tracebacks':>12}{'slowest':>9}{'memory':>9}  {first}"
    )
    for kind in kinds or KINDS:
        seen: Counter[str] = Counter()
        places: Counter[str] = Counter()
        slowest, begun = 0.0, time.monotonic()
        with tempfile.TemporaryDirectory() as name:
            while seen.total() < most if most else time.monotonic() - begun < seconds:
                at, seed = time.monotonic(), first + seen.total()
                try:
                    seen["accepted" if attempt(kind, seed, Path(name)) else "refused"] += 1
                except Exception as error:
                    seen["tracebacks"] += 1
                    frame = traceback.extract_tb(error.__traceback__)[-1]
                    place = f"{type(error).__name__} at {frame.filename.rpartition('builder/')[2]}:{frame.lineno}"
                    if not places[place]:
                        place_text = "".join(traceback.format_exception(error)[-4:])
                        print(f"seed {seed}: {place_text}", file=sys.stderr)
                    places[place] += 1
                slowest = max(slowest, time.monotonic() - at)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        row = (f"{seen.total():8}", f"{seen['refused']:9}", f"{seen['accepted']:10}", f"{seen['tracebacks']:12}")
        print(f"{kind:10}{''.join(row)}{slowest:7.2f} s{memory:6.0f} MB", flush=True)
        for place, count in places.most_common():
            print(f"    {count} x {place}", flush=True)
        faults += seen["tracebacks"] + (slowest > 5)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
