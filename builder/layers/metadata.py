"""What the last layers hold: the user's own files, and what an image says of itself.

What torch an image holds, read from its files: the question of `verify.py` without running anything.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from ..sif import tree
from ..sif.bounded import parse_json
from ..sif.digest import sha256_of_open
from ..sif.errors import LayeringError
from ..sif.events import report
from ..sif.programs import call, needed_program
from ..sif.tree import read
from . import copies
from .base_image import BaseFacts
from .spec import Spec

ENVIRONMENT = "env/91-recipe.sh"
RUNSCRIPT = '#!/bin/sh\nexec "$@"\n'
TEST = "#!/bin/sh\nPATH=/opt/env/bin:$PATH exec python3 /opt/recipe/verify.py /opt/recipe/recipe.json\n"
LAYERS = "recipe.layers"  # label: what `recipe inspect --verify` holds the layers against
FIX = (
    "give `container.files` a place in the image that its own links do not move, and remove such links from the folder"
)
METADATA = ("env.sh", "labels.txt", "recipe.json", "verify.py")


def own_files(top: Path, *, spec: Spec, facts: BaseFacts) -> None:
    """The user's own files; a folder that the image has keeps its mode, and a link to a folder stays one.

    Links come last, and each has to lead to the same place as where the recipe puts it: the base's links may put it
    elsewhere. Raises LayeringError.
    """
    links = list[tuple[str, str]]()
    source = spec.folder / "root"
    try:
        with copies.places(top) as at:
            for entry in tree.walk(source):
                above = "/" + (entry.above.path if entry.above else "")
                if entry.kind == tree.FOLDER:
                    at(facts.real(f"/{entry.path}"))
                elif entry.kind == tree.LINK:
                    _check_link(entry.target(), above=above, facts=facts)
                    links.append((f"{facts.real(above)}/{entry.name}", entry.target()))
                else:
                    _copied(entry, at(facts.real(above)))
        for place, target in links:
            tree.link(top, place, target)
        _modes(top, facts=facts)
    except OSError as error:
        if not isinstance(error, (tree.TreeError, IsADirectoryError)):
            raise
        message = (
            f"two of the recipe's own files meet at one place of the base image: '{error.filename}': {error.strerror}"
        )
        raise LayeringError(message, fix=FIX) from None


def _check_link(target: str, *, above: str, facts: BaseFacts) -> None:
    """Refuse a link that leads elsewhere when the base image's links have put it where it will lie."""
    if target.startswith("/"):
        return
    if facts.real(f"{facts.real(above)}/{target}") != facts.real(os.path.normpath(f"{above}/{target}")):
        message = f"the link to '{target}' in '{above}' leads elsewhere in the base image, where that is another folder"
        raise LayeringError(message, fix=FIX)


def _copied(entry: tree.Entry, at: int) -> None:
    with open(entry.open(), "rb", buffering=0) as file, open(tree.create_in(at, entry.name), "wb", buffering=0) as new:
        copies.pour(file.fileno(), new.fileno())
        os.fchmod(new.fileno(), 0o755 if os.fstat(file.fileno()).st_mode & 0o111 else 0o644)


def _modes(top: Path, *, facts: BaseFacts) -> None:
    """Folders of a layer get the modes that they have in the image."""
    copies.set_modes(top, lambda path: facts.folders.get(f"/{path}", 0o755))


def metadata(top: Path, *, spec: Spec, facts: BaseFacts) -> None:
    """Environment, labels and what the image was made from."""

    def put(path: str, text: str, mode: int = 0o644) -> None:
        folder, _, name = path.rpartition("/")
        tree.write(top, f"{facts.real(folder)}/{name}", text.encode(), mode=mode)

    put(f"/.singularity.d/{ENVIRONMENT}", spec.text("env.sh"), 0o755)
    labels = dict(facts.labels) | labels_in(spec.text("labels.txt"))
    put("/.singularity.d/labels.json", json.dumps(labels, indent=1, sort_keys=True) + "\n")
    if not facts.runscript:
        put("/.singularity.d/runscript", RUNSCRIPT, 0o755)
    put("/.singularity.d/test", TEST, 0o755)
    for name in ("recipe.json", "verify.py"):
        put(f"/opt/recipe/{name}", spec.text(name))


def inspected(layers: Sequence[tuple[str, str]], *, spec: Spec, facts: BaseFacts) -> bytes:
    """What `inspect` answers for the image: the base's answer, our labels, environment and layers (title, sha256)."""
    try:
        document = parse_json(facts.inspect)
        attributes = document["data"]["attributes"]
    except (ValueError, KeyError, TypeError):
        return b""  # the engine looks into the image itself
    attributes["labels"] = dict(facts.labels) | labels_in(spec.text("labels.txt"))
    attributes["labels"][LAYERS] = " ".join(f"{title}={sha256}" for title, sha256 in layers)
    attributes.setdefault("environment", {})[f"/.singularity.d/{ENVIRONMENT}"] = spec.text("env.sh")
    if not facts.runscript:
        attributes["runscript"] = RUNSCRIPT
    attributes["test"] = TEST
    return json.dumps(document, sort_keys=True).encode()


def labels_in(text: str) -> dict[str, str]:
    """labels.txt: a name and a value a line."""
    rows = [line.partition(" ") for line in text.splitlines()]
    return {name: value for name, _, value in rows if name}


def tree_digest(folder: Path) -> list[list[str]]:
    """What a folder holds, as far as it goes into an image; raises LayeringError for what no image can hold."""
    found = []
    for entry in tree.walk(folder):
        content = ""
        if entry.kind == tree.LINK:
            content = f"-> {entry.target()}"
        elif entry.kind != tree.FOLDER:
            try:
                with FileIO(entry.open()) as file:
                    content = sha256_of_open(file)
            except tree.TreeError:
                message = f"'{entry.path}' in '{folder}' is neither a file, a folder nor a link"
                raise LayeringError(message, fix="write the plan again") from None
        found.append([entry.path, content, "x" if entry.stat().st_mode & 0o111 else ""])
    return sorted(found)


LINE = re.compile(r"^(__version__|cuda|hip|xpu)\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


def prove(places: Sequence[tuple[Path, int]], *, folders: Sequence[str], folder: Path, work: Path, minor: str) -> None:
    """Hold the torch of the topmost squashfs that has one against the plan; raises LayeringError.

    `places` are files and where the squashfs begins in them, lowest first; `folders` are where a torch may lie;
    `folder` is the plan's image/. It is printed as verify.py does inside an image, and reported.
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
    report("answer", found=answer)
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
