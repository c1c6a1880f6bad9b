"""What torch an image holds, read from its files: the question of `verify.py` without running anything."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .failure import LayeringError
from .programs import call, needed_program
from .tree import read

LINE = re.compile(r"^(__version__|cuda|hip|xpu)\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


def prove(places: Sequence[tuple[Path, int]], *, folders: Sequence[str], folder: Path, work: Path, minor: str) -> None:
    """Hold the torch of the topmost squashfs that has one against the plan; raises LayeringError.

    `places` are files and where the squashfs begins in them, lowest first; `folders` are where a torch may lie;
    `folder` is the plan's image/. It is printed as verify.py does inside an image: a report takes it from either.
    """
    verify = _verify(folder / "verify.py")
    expected = json.loads((folder / "recipe.json").read_text(encoding="utf-8")).get("expect", {})
    found = next((answer for place in reversed(places) if (answer := _torch(*place, folders=folders, work=work))), None)
    planned = "torch" in expected
    if found is None:
        if planned:
            raise LayeringError("the image holds no torch, and one was planned")
        print("verify: the recipe has no torch, nothing to ask", flush=True)
        return
    if not planned and expected.get("vendor", "cpu") == "cpu":
        return
    answer = {"torch": found.pop("__version__", ""), **({"python": minor} if minor else {}), **found}
    wrong = verify.faults({name: value for name, value in expected.items() if name != "architecture"}, answer)
    print("verify: " + json.dumps(answer, sort_keys=True), flush=True)
    for fault in wrong:
        print(f"verify: error: {fault}", flush=True)
    if wrong:
        raise LayeringError("the image is not what was planned")


def _verify(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("verify", path)
    if spec is None or spec.loader is None:
        raise LayeringError(f"'{path}' is missing", fix="write the plan again")
    sys.dont_write_bytecode = True  # nothing of ours stays in the plan folder
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _torch(file: Path, offset: int, *, folders: Sequence[str], work: Path) -> dict[str, str]:
    """torch/version.py of a squashfs, as names and values; empty where it has none."""
    tree = work / f"torch-{file.name}"
    program = needed_program("unsquashfs", fix="install squashfs-tools")
    names = [f"{name.lstrip('/')}/version.py" for name in folders]
    words = [program, "-n", "-q", "-no-xattrs", "-d", str(tree), "-o", str(offset), str(file)]
    call([*words, *names], what=f"reading the torch of '{file.name}'")  # names that are not there are no fault to it
    for name in names:
        with suppress(OSError):  # what was unpacked holds the image's links
            return dict(LINE.findall(read(tree, name, limit=1 << 20).decode(errors="replace")))
    return {}
