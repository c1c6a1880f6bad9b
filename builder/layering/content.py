"""What the last layers hold: the user's own files, and what an image says of itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from .bases.facts import BaseFacts
from .bounded import parse_json
from .digest import sha256_of
from .spec import Spec

ENVIRONMENT = "env/91-recipe.sh"
RUNSCRIPT = '#!/bin/sh\nexec "$@"\n'
TEST = "#!/bin/sh\nPATH=/opt/env/bin:$PATH exec python3 /opt/recipe/verify.py /opt/recipe/recipe.json\n"
LAYERS = "recipe.layers"  # label: what `recipe inspect --verify` holds the layers against
METADATA = ("env.sh", "labels.txt", "recipe.json", "verify.py")


def own_files(tree: Path, *, spec: Spec, facts: BaseFacts) -> None:
    """The user's own files; a folder that the image has keeps its mode, and a link to a folder stays one."""
    source = spec.folder / "root"
    for root, folders, names in os.walk(source):
        here = "/" + os.path.relpath(root, source)
        place = tree / facts.real(os.path.normpath(here)).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        for name in [*names, *[name for name in folders if Path(root, name).is_symlink()]]:
            path = Path(root, name)
            shutil.copy2(path, place / name, follow_symlinks=False)
            if not path.is_symlink():
                mode = path.stat().st_mode
                (place / name).chmod(0o755 if mode & 0o111 else 0o644)
    _modes(tree, facts=facts)


def _modes(tree: Path, *, facts: BaseFacts) -> None:
    """Folders of a layer get the modes that they have in the image."""
    for root, folders, _ in os.walk(tree):
        for name in folders:
            path = Path(root, name)
            if not path.is_symlink():
                path.chmod(facts.folders.get("/" + os.path.relpath(path, tree), 0o755))
    tree.chmod(facts.folders.get("/", 0o755))


def metadata(tree: Path, *, spec: Spec, facts: BaseFacts) -> None:
    """Environment, labels and what the image was made from."""
    own = tree / facts.real("/.singularity.d").lstrip("/")
    (own / "env").mkdir(parents=True)
    (own / ENVIRONMENT).write_text(spec.text("env.sh"), encoding="utf-8")
    (own / ENVIRONMENT).chmod(0o755)
    labels = dict(facts.labels) | labels_in(spec.text("labels.txt"))
    (own / "labels.json").write_text(json.dumps(labels, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if not facts.runscript:
        (own / "runscript").write_text(RUNSCRIPT, encoding="utf-8")
        (own / "runscript").chmod(0o755)
    (own / "test").write_text(TEST, encoding="utf-8")
    (own / "test").chmod(0o755)
    record = tree / facts.real("/opt/recipe").lstrip("/")
    record.mkdir(parents=True)
    for name in ("recipe.json", "verify.py"):
        shutil.copyfile(spec.folder / name, record / name)


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
    """What a folder holds, as far as it goes into an image."""
    found = []
    for root, folders, names in os.walk(folder):
        for name in sorted([*folders, *names]):
            path = Path(root, name)
            seen = path.lstat()
            content = f"-> {path.readlink()}" if path.is_symlink() else "" if path.is_dir() else sha256_of(path)
            found.append([os.path.relpath(path, folder), content, "x" if seen.st_mode & 0o111 else ""])
    return sorted(found)
