"""How much room a build takes at its peak, and where: the cache, the temporary folder, beside the image.

Each folder is looked at ten times a second; what is told of is blocks, as `du` counts them. Caches are new.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

PAUSE = 0.1  # seconds
BLOCK = 512  # bytes
PLACES = ("cache", "tmp", "out")


def blocks(folder: Path) -> int:
    """Bytes that a folder takes on its disk; a file of several names counts once, what goes meanwhile does not."""
    total, known = 0, set[int]()
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    seen = entry.stat(follow_symlinks=False)
                    if seen.st_ino not in known:
                        known.add(seen.st_ino)
                        total += seen.st_blocks * BLOCK
        except OSError:
            continue
    return total


def space(runs: int, *, program: str, base: str, recipes: Mapping[str, str]) -> None:
    """Peaks of layers and apptainer, the largest of so many runs each."""
    print("\nroom at the peak, in MB (new caches)")
    print(f"  {'':24} {'cache':>8} {'TMPDIR':>8} {'output':>8}   {'image':>8}")
    for name, text in recipes.items():
        for backend in ("layers", "apptainer"):
            found = [_peaks(backend, text, program=program, base=base) for _ in range(runs)]
            peaks = [max(run[place] for run in found) / 1e6 for place in (*PLACES, "image")]
            print("  {:24} {:8.1f} {:8.1f} {:8.1f}   {:8.1f}".format(f"{name}, {backend}", *peaks), flush=True)


def _peaks(backend: str, text: str, *, program: str, base: str) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="recipe-space-") as folder:
        places = {name: Path(folder, name) for name in PLACES}
        for path in places.values():
            path.mkdir(0o700)
        recipe, image = Path(folder, "x.yml"), places["out"] / "x.sif"
        recipe.write_text(text, encoding="utf-8")
        words = ["build", "local", str(recipe), "--base", base, "--backend", backend, "-o", str(image), "--no-smoke"]
        env = {**os.environ, "RECIPE_CACHE_DIR": str(places["cache"]), "TMPDIR": str(places["tmp"])}
        peaks, ended = dict.fromkeys(PLACES, 0), threading.Event()

        def look() -> None:
            while not ended.wait(PAUSE):
                for name, path in places.items():
                    peaks[name] = max(peaks[name], blocks(path))

        beside = threading.Thread(target=look)
        beside.start()
        try:
            done = subprocess.run([program, *words], env=env, capture_output=True, text=True, check=False)
        finally:
            ended.set()
            beside.join()
        if done.returncode:
            sys.exit(f"{words} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return {**peaks, "image": image.stat().st_size}
