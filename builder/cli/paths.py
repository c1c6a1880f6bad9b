"""Paths that a command takes: whether they are there and of the right kind, and the line to type where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from builder.cli.recognise import Kind, find_kind, list_environments
from builder.cli.targets import choose_site
from builder.cli.typed import quote
from builder.model.finding import ConfigError, Finding
from builder.model.text import exists, sanitize
from builder.parse.yaml import suggest_path
from builder.system.path_errors import check_reachable

MOST = 4  # names in a message


def check_existing(path: Path, *, what: str) -> Path:
    """The absolute path of an argument; raises ConfigError if it does not exist or is of another kind."""
    check_reachable(path)
    shown = sanitize(str(path), limit=400)
    if not path.exists():
        fix = suggest_path(path, other=_how_to_make(path, what=what))
        raise ConfigError(Finding(code="path-missing", message=f"the {what} '{shown}' does not exist", fix=fix))
    folders, files = what in ("image", "data folder"), what != "data folder"
    if not ((files and path.is_file()) or (folders and path.is_dir())):
        found = "a folder" if path.is_dir() else "not a regular file"
        fix = f"give the {what} itself"
        raise ConfigError(Finding(code="path-special", message=f"the {what} '{shown}' is {found}", fix=fix))
    return path.resolve()


def _how_to_make(path: Path, *, what: str) -> str:
    """The line that makes what a path should be; "" where none does."""
    word = quote(str(path))
    if what == "archive":
        return f"`docker save NAME -o {word}` writes it"
    if what == "data folder":
        return "leave --data out: the digits are synthetic then"
    files = list_environments() if what == "image" else []
    file = next((name for name in files if Path(name).stem == path.stem), next(iter(files), ""))
    return f"`recipe build {choose_site()} {quote(file)} -o {word}` builds it" if file else ""


def write_line(command: str, words: Sequence[str], *, others: Iterable[str] = ()) -> str:
    """A line to type, and other names that may take the place of its last word; "" without words."""
    names = [name for name in dict.fromkeys(others) if name not in words]
    more = f"; also here: {', '.join(names[:MOST])}{' ...' if names[MOST:] else ''}" if names else ""
    return f"`recipe {command} {quote(*words)}`{more}" if words else ""


def explain_kind(
    finding: Finding, path: Path, *, command: str, takes: str, here: Sequence[str], but: Sequence[Kind] = ()
) -> Finding:
    """A finding on a path of the wrong kind: what it is, and the line to type; as it was for another fault.

    `takes` is what the command takes, `here` what of that is in this folder, `but` the kinds that are right.
    """
    kind, shown = find_kind(path), sanitize(str(path), limit=400)
    if kind is None or kind in but:
        return finding
    image = find_image_of(path) if kind == "a plan folder" else None
    fix = write_line(command, [str(image)] if image else here[:1], others=() if image else here)
    if not fix and kind == "an environment file":
        fix = f"build it first: `recipe build {choose_site()} {quote(str(path))}`"
    message = f"'{shown}' is {kind}, and not {takes}"
    return replace(finding, message=message, fix=fix or finding.fix, at=None)


def find_image_of(folder: Path) -> Path | None:
    """The image next to a plan folder, None where there is none."""
    if folder.name in ("", ".."):
        return None
    image = folder.with_name(f"{folder.stem}.sif")
    return image if exists(image) else None
