"""What the last layers hold: the user's own files, and what an image says of itself."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from . import copies, tree
from .bases.facts import BaseFacts
from .bounded import parse_json
from .digest import sha256_of_open
from .failure import LayeringError
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
