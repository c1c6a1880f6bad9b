"""The last layers: the user's own files, and the metadata of an image; the check of its torch.

The torch is read from the files of the image: the same check as `verify.py`, without running anything.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from ..sif import tree
from ..sif.bounded import hash_open_file, parse_json
from ..sif.errors import LayeringError, report
from ..sif.programs import call, require_program
from ..sif.reader import Reader
from ..sif.sif import read_sif
from ..sif.tree import read
from . import copies
from .base_facts import BaseFacts
from .bytecode import name_compiled_file
from .spec import Spec

ENVIRONMENT = "env/91-recipe.sh"
RUNSCRIPT = '#!/bin/sh\nexec "$@"\n'
TEST = "#!/bin/sh\nPATH=/opt/env/bin:$PATH exec python3 /opt/recipe/verify.py /opt/recipe/recipe.json\n"
LAYERS = "recipe.layers"  # label: what `recipe inspect --integrity` compares the layers with
FIX = (
    "give `container.files` a place in the image that its own links do not move, and remove such links from the folder"
)
METADATA = ("env.sh", "labels.txt", "recipe.json", "verify.py")


def write_own_files(top: Path, *, spec: Spec, facts: BaseFacts) -> None:
    """Write the user's own files; a folder that the image has keeps its mode, and a link to a folder stays one.

    Links come last, and each has to lead to the same place as in the recipe: the base's links may move it. Raises
    LayeringError.
    """
    links, modules = list[tuple[str, str]](), list[str]()
    source = spec.folder / "root"
    try:
        with copies.open_folders(top) as at:
            for entry in tree.walk(source):
                above = "/" + (entry.above.path if entry.above else "")
                if entry.kind == tree.FOLDER:
                    at(facts.resolve_path(f"/{entry.path}"))
                elif entry.kind == tree.LINK:
                    _check_link(entry.read_target(), above=above, facts=facts)
                    links.append((f"{facts.resolve_path(above)}/{entry.name}", entry.read_target()))
                else:
                    _check_no_folder(f"/{entry.path}", facts=facts)
                    _copy_file(entry, at(facts.resolve_path(above)))
                    modules.append(f"{facts.resolve_path(above)}/{entry.name}")
            for place in _list_compiled(modules, minor=facts.minor):
                at(os.path.dirname(place))
        for place, target in links:
            tree.link(top, place, target)
        for place in _list_compiled(modules, minor=facts.minor):
            if tree.stat_path(top, place.lstrip("/")) is None:
                tree.write(top, place.lstrip("/"), b"")
        _set_modes(top, facts=facts)
    except OSError as error:
        if not isinstance(error, (tree.TreeError, IsADirectoryError)):
            raise
        message = (
            f"two of the recipe's own files meet at one place of the base image: '{error.filename}': {error.strerror}"
        )
        raise LayeringError(message, fix=FIX) from None


def _list_compiled(modules: Iterable[str], *, minor: str) -> list[str]:
    """Return the .pyc files that Python would read for modules in the place of others, whose .pyc it does not compare.

    An empty one makes it read the source.
    """
    tag = f"cpython-{minor.replace('.', '')}"
    inside = (f"/python{minor}/", "/dist-packages/")
    found = [path for path in modules if minor and path.endswith(".py") and any(part in path for part in inside)]
    return [name_compiled_file(path, tag) for path in found]


def check_own_folders(base: Path, *, spec: Spec, facts: BaseFacts) -> None:
    """Raise LayeringError where a folder of the recipe would take the place of a file of the base image."""
    new, folders = set[str](), list[str]()
    for entry in tree.walk(spec.folder / "root"):
        above = entry.above.path if entry.above else ""
        if entry.kind == tree.FOLDER and facts.resolve_path(f"/{entry.path}") not in facts.folders:
            new.add(entry.path)
            folders += [] if above in new else [entry.path]
    if not folders:
        return
    with base.open("rb") as file:
        reader = Reader(file, offset=read_sif(base).system.offset)
        taken = next((path for path in folders if reader.find(facts.resolve_path(f"/{path}")) is not None), "")
    if taken:
        message = f"'/{taken}' is a file of the image, and a folder of the recipe would replace it"
        raise LayeringError(message, fix="give `container.files` another place, such as /opt/NAME")


def _check_no_folder(path: str, *, facts: BaseFacts) -> None:
    if facts.resolve_path(path) in facts.folders:
        message = f"'{path}' is a folder of the image, and a file of the recipe would replace it"
        raise LayeringError(message, fix=f"give `container.files` a place in it: {path}/NAME")


def _check_link(target: str, *, above: str, facts: BaseFacts) -> None:
    """Refuse a link that leads elsewhere after the base image's links have moved it."""
    if target.startswith("/"):
        return
    if facts.resolve_path(f"{facts.resolve_path(above)}/{target}") != facts.resolve_path(
        os.path.normpath(f"{above}/{target}")
    ):
        message = f"the link to '{target}' in '{above}' leads elsewhere in the base image, where that is another folder"
        raise LayeringError(message, fix=FIX)


def _copy_file(entry: tree.TreeEntry, at: int) -> None:
    with open(entry.open(), "rb", buffering=0) as file, open(tree.create_in(at, entry.name), "wb", buffering=0) as new:
        copies.copy_bytes(file.fileno(), new.fileno())
        os.fchmod(new.fileno(), 0o755 if os.fstat(file.fileno()).st_mode & 0o111 else 0o644)


def _set_modes(top: Path, *, facts: BaseFacts) -> None:
    """Give folders of a layer the modes that they have in the image."""
    copies.set_modes(top, lambda path: facts.folders.get(f"/{path}", 0o755))


def write_metadata(top: Path, *, spec: Spec, facts: BaseFacts) -> None:
    """Write environment, labels and what the image was made from."""

    def put(path: str, text: str, mode: int = 0o644) -> None:
        folder, _, name = path.rpartition("/")
        tree.write(top, f"{facts.resolve_path(folder)}/{name}", text.encode(), mode=mode)

    put(f"/.singularity.d/{ENVIRONMENT}", spec.read_text("env.sh"), 0o755)
    labels = dict(facts.labels) | parse_labels(spec.read_text("labels.txt"))
    put("/.singularity.d/labels.json", json.dumps(labels, indent=1, sort_keys=True) + "\n")
    if not facts.runscript:
        put("/.singularity.d/runscript", RUNSCRIPT, 0o755)
    put("/.singularity.d/test", TEST, 0o755)
    for name in ("recipe.json", "verify.py"):
        put(f"/opt/recipe/{name}", spec.read_text(name))


def inspect_document(layers: Sequence[tuple[str, str]], *, spec: Spec, facts: BaseFacts) -> bytes:
    """Return what `inspect` reports for the image: the base's, our labels, environment and layers (title, sha256)."""
    try:
        document = parse_json(facts.inspect)
        attributes = document["data"]["attributes"]
    except (ValueError, KeyError, TypeError):
        return b""  # the engine reads the image itself
    attributes["labels"] = dict(facts.labels) | parse_labels(spec.read_text("labels.txt"))
    attributes["labels"][LAYERS] = " ".join(f"{title}={sha256}" for title, sha256 in layers)
    attributes.setdefault("environment", {})[f"/.singularity.d/{ENVIRONMENT}"] = spec.read_text("env.sh")
    if not facts.runscript:
        attributes["runscript"] = RUNSCRIPT
    attributes["test"] = TEST
    return json.dumps(document, sort_keys=True).encode()


def parse_labels(text: str) -> dict[str, str]:
    """Parse labels.txt: a name and a value on each line."""
    rows = [line.partition(" ") for line in text.splitlines()]
    return {name: value for name, _, value in rows if name}


def list_tree(folder: Path) -> list[list[str]]:
    """List a folder as far as it goes into an image; raises LayeringError for what no image can hold."""
    found = []
    for entry in tree.walk(folder):
        content = ""
        if entry.kind == tree.LINK:
            content = f"-> {entry.read_target()}"
        elif entry.kind != tree.FOLDER:
            try:
                with FileIO(entry.open()) as file:
                    content = hash_open_file(file)
            except tree.TreeError:
                message = f"'{entry.path}' in '{folder}' is neither a file, a folder nor a link"
                raise LayeringError(message, fix="write the plan again") from None
        found.append([entry.path, content, "x" if entry.stat().st_mode & 0o111 else ""])
    return sorted(found)


LINE = re.compile(r"^(__version__|cuda|hip|xpu)\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


def compare_torch(
    places: Sequence[tuple[Path, int]], *, folders: Sequence[str], folder: Path, work: Path, minor: str
) -> None:
    """Compare the torch of the topmost squashfs that has one with the plan; raises LayeringError.

    `places` are files with the offset of the squashfs in them, lowest first; `folders` are where a torch may be;
    `folder` is the plan's image/. The result is printed as verify.py does in an image, and reported as an event.
    """
    verify = _load_verify(folder / "verify.py")
    expected = json.loads((folder / "recipe.json").read_text(encoding="utf-8")).get("expect", {})
    found = next(
        (answer for place in reversed(places) if (answer := _read_torch(*place, folders=folders, work=work))), None
    )
    planned = "torch" in expected
    if found is None:
        if planned:
            raise LayeringError("the image has no torch, and one was planned")
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


def _load_verify(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("verify", path)
    if spec is None or spec.loader is None:
        raise LayeringError(f"'{path}' is missing", fix="write the plan again")
    sys.dont_write_bytecode = True  # nothing of ours remains in the plan folder
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read_torch(file: Path, offset: int, *, folders: Sequence[str], work: Path) -> dict[str, str]:
    """Return torch/version.py of a squashfs as names and values; empty if it has none."""
    tree = work / f"torch-{file.name}"
    program = require_program("unsquashfs", fix="install squashfs-tools")
    names = [f"{name.lstrip('/')}/version.py" for name in folders]
    words = [program, "-n", "-q", "-no-xattrs", "-d", str(tree), "-o", str(offset), str(file)]
    call([*words, *names], what=f"reading the torch of '{file.name}'")  # unsquashfs ignores names that are missing
    for name in names:
        with suppress(OSError):  # what was unpacked has the image's links
            return dict(LINE.findall(read(tree, name, limit=1 << 20).decode(errors="replace")))
    return {}
