"""What may be replaced: an image, never another file, and in a plan folder only what a plan wrote there."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from builder.inspect.attestations import find_foreign_attestation, name_attestations
from builder.model.finding import ConfigError, Finding, Location
from builder.sif import tree
from builder.sif.bounded import LIMIT as PLAN_LIMIT
from builder.sif.bounded import parse_json
from builder.system.files import write_atomic
from builder.system.layout import PLAN_FILE, USER_SETTINGS, WRITTEN_FILE, name_failed_copy
from builder.system.trust import read_below

LIMIT = 16 * 1024 * 1024  # bytes of the record
WHOLE = 16 * 1024 * 1024  # bytes; of a larger file, which no one edits by hand, the size counts
CACHES = "__pycache__"  # of scripts that were run by hand
SHOWN = 5

Digests = Mapping[str, tuple[str, ...]]


def look(folder: Path, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The digest of every file at `paths`, and of all files below those that are folders; links by their target."""
    return {name: (_compute_digest(folder, name),) for path in paths for name in _list_files(folder, path)}


def note_written(folder: Path, digests: Digests, *, whole: bool = True) -> None:
    """Note what is written; without `whole` some of it may not be there yet. Raises OSError."""
    texts = {name: list(known) for name, known in sorted(digests.items()) if _is_text(name)}
    raw = {os.fsencode(name).hex(): list(known) for name, known in sorted(digests.items()) if not _is_text(name)}
    content = {"schema": 1, "whole": whole, "files": texts} | ({"files_hex": raw} if raw else {})
    write_atomic(folder / WRITTEN_FILE, json.dumps(content, indent=0) + "\n")


def read_written(folder: Path) -> tuple[dict[str, tuple[str, ...]], bool]:
    """What the last plan wrote, and whether it wrote all of it; nothing where no one noted it."""
    try:
        content = parse_json(read_below(folder, WRITTEN_FILE, limit=LIMIT))
        named = content["files"] | {
            os.fsdecode(bytes.fromhex(name)): known for name, known in content.get("files_hex", {}).items()
        }
        files = {str(name): tuple(str(one) for one in known) for name, known in named.items()}
        return files, bool(content["whole"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}, False  # of an earlier version, or a copy without it


def has_record(folder: Path) -> bool:
    """Whether it was noted what a plan wrote into a folder, its plan.json among them."""
    return PLAN_FILE in read_written(folder)[0]


def is_plan_folder(folder: Path) -> bool:
    """Whether a folder holds a plan of ours: one that is noted in the record of what was written, or has its form."""
    if not (folder / PLAN_FILE).is_file():
        return False
    if has_record(folder):
        return True
    with suppress(ConfigError, OSError, ValueError):
        content = parse_json(read_below(folder, PLAN_FILE, limit=PLAN_LIMIT))
        return isinstance(content, dict) and all(
            isinstance(content.get(key), kind) for key, kind in (("schema", int), ("steps", list), ("files", list))
        )
    return False


def check_unrecorded(folder: Path, *, texts: Mapping[str, Collection[bytes]], fix: str) -> None:
    """Raise ConfigError where a folder without a record has files that no plan is known to have written.

    `texts` has the paths of plans with the contents that each may have, none where that is not known.
    """
    known = {path: {hashlib.sha256(text).hexdigest() for text in own} for path, own in texts.items()}
    said = [
        f"'{path}'"
        for path in sorted(known, key=lambda path: (not known[path], path))  # a copied folder last: it may be unchanged
        if any(found[0] not in known.get(name, ()) for name, found in look(folder, [path]).items())
    ]
    if said:
        more = f" and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
        message = f"the plan folder '{folder}' has no record of what a plan wrote there, and it holds "
        message += f"{', '.join(said[:SHOWN])}{more}"
        raise ConfigError(Finding(code="folder-edited", message=message, at=Location(file=str(folder)), fix=fix))


def check_unedited(folder: Path, *, paths: Iterable[str], fix: str) -> None:
    """Raise ConfigError when files of a plan folder were edited, removed or added since a plan wrote them.

    `paths` are those that are to be written now: what else is at the top of the folder stays, and does not count.
    """
    files, whole = read_written(folder)
    new, found = set(paths), dict[str, str]()
    inside = {PurePosixPath(path).parts[0] for path in files if "/" in path}
    for path in sorted({*files, *inside, *new}):
        found |= {name: digests[0] for name, digests in look(folder, [path]).items()}
    said = [f"'{name}' was edited" for name in sorted(files) if name in found and found[name] not in files[name]]
    said += [f"'{name}' was removed" for name in sorted(files) if whole and name not in found]
    said += [f"'{name}' was added" for name in sorted(found) if name not in files]
    if not said:
        return
    more = f", and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    message = f"the plan folder '{folder}' was changed by hand: {', '.join(said[:SHOWN])}{more}"
    raise ConfigError(Finding(code="folder-edited", message=message, at=Location(file=str(folder)), fix=fix))


def _is_text(name: str) -> bool:
    """Whether a path is UTF-8; one that is not has no place in a JSON text and is noted by its bytes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _list_files(folder: Path, path: str) -> Iterator[str]:
    if not tree.is_folder(folder, path):
        if tree.stat_path(folder, path) is not None:
            yield path
        return
    for entry in tree.walk(folder, path):
        name = f"{path}/{entry.path}"
        if entry.kind != tree.FOLDER and CACHES not in name.split("/") and name != USER_SETTINGS:
            yield name


def _compute_digest(folder: Path, name: str) -> str:
    found = tree.stat_path(folder, name)
    if found is not None and stat.S_ISLNK(found.st_mode):
        target = str((folder / name).readlink())
        return f"link {target}" if _is_text(target) else f"link-hex {os.fsencode(target).hex()}"
    if found is not None and found.st_size > WHOLE:
        return f"size {found.st_size}"
    try:
        return hashlib.sha256(tree.read(folder, name, limit=WHOLE)).hexdigest()
    except OSError:
        return "unreadable"


# What environment files, site files, locks, reports and programs are called: no image that a build may replace.
NO_IMAGES = (".yml", ".yaml", ".txt", ".toml", ".json", ".lock", ".cfg", ".ini", ".md", ".html", ".py", ".sh", ".csv")
ANOTHER = "give another output with -o"
REMOVE = "remove it yourself, or give another output with -o"
_START, _MAGIC = 32, b"SIF_MAGIC"  # where it is in a SIF, and what


def check_named_output(output: Path) -> None:
    """Raise ConfigError where an output is a link: what it leads to would be replaced, or made, at its own place."""
    if output.is_symlink():
        place = output.resolve()
        done = "replaced" if output.exists() else "made"
        message = f"the output '{output}' is a link to '{place}', which is not {done} through a link"
        raise make_output_error(message, fix=f"name the file itself, -o {place}, or remove the link")


def check_file(output: Path, *, link: Path | None) -> None:
    """Raise ConfigError where a file exists that is not an image; `link` is the image of the plan folder, if any."""
    if output.suffix.lower() in NO_IMAGES:
        raise make_output_error(
            f"the output '{output}' exists and does not have the name of an image: it is never replaced"
        )
    if not is_image(output, link=link):
        message = f"the output '{output}' exists and is not an image: it is never replaced"
        raise make_output_error(message, fix=REMOVE)


def list_files_next_to(output: Path) -> tuple[Path, ...]:
    """The paths that a build may write next to its image."""
    return (*name_attestations(output), name_failed_copy(output))


def check_files_next_to(output: Path, *, link: Path | None) -> None:
    """Raise ConfigError where a file that no build wrote has the name of one that a build writes next to its image."""
    for path in list_files_next_to(output):
        if path.is_symlink() and path.exists():
            message = f"'{path}' is a link, and the build would replace it"
            raise make_output_error(message, fix=f"remove it, or {ANOTHER}")
    folder = next((path for path in name_attestations(output) if path.is_dir()), None)
    if folder is not None:
        message = f"'{folder}' is a folder, and the build writes a file there"
        raise make_output_error(message, fix=f"move it, or {ANOTHER}")
    found = find_foreign_attestation(output)
    failed = name_failed_copy(output)
    if found is None and failed.is_file() and not is_image(failed, link=link):
        found = failed
    if found is not None:
        message = f"'{found}' exists, and no build wrote it: it is never replaced"
        raise make_output_error(message, code="output-exists", fix=f"move it, or {ANOTHER}")


def is_image(path: Path, *, link: Path | None) -> bool:
    """Whether a file is a SIF or empty, or the plan folder says that it is its image: a link there leads to it."""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(_START + len(_MAGIC))
        if not head or head[_START:] == _MAGIC:
            return True
    with suppress(OSError):
        return link is not None and link.is_symlink() and link.samefile(path)
    return False


def make_output_error(message: str, *, fix: str = ANOTHER, code: str = "output-kind") -> ConfigError:
    return ConfigError(Finding(code=code, message=message, fix=fix))
