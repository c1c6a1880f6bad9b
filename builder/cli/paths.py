"""Paths that a command takes: whether they are of the right kind; files that it writes, and what they may replace."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from builder.cli.file_kinds import Kind, find_kind, list_archives, list_environments, list_images
from builder.cli.inputs import find_sites_folder
from builder.cli.targets import choose_site
from builder.cli.typed import TypedLine, add_argument, has_no_site, quote, replace_argument
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError
from builder.model.text import exists, sanitize
from builder.parse.site import find_site_files
from builder.parse.yaml import find_near_path, suggest_path
from builder.pipeline.own_inputs import check_not_inputs
from builder.system.files import FULL, check_reachable, write_atomic

MOST = 4  # names in a message
RECORD = 16 * 1024 * 1024  # bytes of a plan's record of its recipe


def check_existing(path: Path, *, what: str) -> Path:
    """The absolute path of an argument; raises ConfigError if it does not exist or is of another kind."""
    check_reachable(path)
    shown = sanitize(str(path), limit=400)
    if not path.exists():
        fix = suggest_path(path, other=_how_to_make(path, what=what))
        if what in ("image", "archive"):
            fix = suggest_image(path, archive=what == "archive")
        raise ConfigError(Finding(code="path-missing", message=f"the {what} '{shown}' does not exist", fix=fix))
    folders, files = what in ("image", "data folder"), what != "data folder"
    if not ((files and path.is_file()) or (folders and path.is_dir())):
        found = "a folder" if path.is_dir() else "not a regular file"
        here = {"image": list_images, "archive": list_archives}.get(what, list)()
        fix = f"`{replace_image(path, here[0])}`" if here else f"give the {what} itself"
        raise ConfigError(Finding(code="path-special", message=f"the {what} '{shown}' is {found}", fix=fix))
    return path.resolve()


def suggest_image(path: Path, *, archive: bool = False) -> str:
    """The fix for an image or an archive that does not exist: one that is there, or the line that makes it."""
    right = ("an archive",) if archive else ("an image", "an archive", "a folder")
    near = find_near_path(path, fits=lambda file: find_kind(file) in right)
    here = list_archives() if archive else list_images()
    if near:
        return f"did you mean '{sanitize(near)}'?"
    make = _how_to_make(path, what="archive" if archive else "image")
    if not exists(path.parent):
        return suggest_path(path)  # what is built here is not there
    if not here:
        fix = suggest_path(path, other=make)
        return fix if fix.startswith("it") else make
    listed = (
        f"there {'is' if len(here) == 1 else 'are'} {', '.join(here[:MOST])}: `{replace_argument(str(path), here[0])}`"
    )
    return "; ".join(filter(None, [listed, make]))


def replace_image(path: Path, name: str) -> str:
    """The line again with another image, and with a site where the command takes one and none is named."""
    if has_no_site(str(path)):
        return add_argument(choose_site(), at=0, instead={str(path): name})
    return replace_argument(str(path), name)


def suggest_whole_image(path: Path) -> str:
    """The fix for an image that ends before its end: another copy, or another build from the file that it is of."""
    file, site = find_own_file(path)
    line = f"recipe build {site or choose_site()} {quote(file)} -o {quote(str(path))} --force"
    same = "build it again, with the options of its build"
    return f"copy it again, or {same}: `{line}`" if file else "copy it again from where it was built"


def find_own_file(image: Path) -> tuple[str, str]:
    """Find the environment file of this folder that an image was built from, and its site; "" where no record says so.

    The record is the plan folder next to the image, else its name: NAME.sif or NAME-SITE.sif.
    """
    from builder.compile.image_files import IMAGE_FOLDER
    from builder.system.layout import plan_folder
    from builder.system.trust import read_below

    try:
        text = read_below(plan_folder(image), f"{IMAGE_FOLDER}/recipe.json", limit=RECORD)
        record = json.loads(text)
        name, digest, site = (str(record[key]) for key in ("recipe", "digest", "site"))
    except FileNotFoundError:
        return _find_by_name(image)
    except (BuilderError, OSError, ValueError, KeyError, TypeError):
        return "", ""
    same = (file for file in list_environments() if _has_name(Path(file), name=name, digest=digest))
    return next(same, ""), site


def _find_by_name(image: Path) -> tuple[str, str]:
    """The environment file of this folder whose image is called so, and the site in that name; "" where none is."""
    from builder.compile.image_files import slugify
    from builder.parse.recipe import load_recipe

    sites = find_site_files(find_sites_folder())
    for file in list_environments():
        names = {Path(file).stem, slugify(Path(file).stem)}
        with suppress(BuilderError, OSError):
            names.add(slugify(load_recipe(Path(file)).name))
        if image.stem in names:
            return file, ""
        if site := next((site for site in sites if image.stem in {f"{name}-{site}" for name in names}), ""):
            return file, site
    return "", ""


def _has_name(file: Path, *, name: str, digest: str) -> bool:
    """Whether an environment file is the one of a record, or a later state of it with the same name."""
    from builder.parse.recipe import load_recipe

    with suppress(BuilderError, OSError):
        recipe = load_recipe(file)
        return recipe.digest == digest or recipe.name == name
    return False


def _how_to_make(path: Path, *, what: str) -> str:
    """The line that makes what a path should be; "" where none does."""
    word = quote(str(path))
    if what == "archive":
        return f"`docker save NAME -o {word}` writes it"
    if what == "data folder":
        return "leave --data out: the digits are synthetic then"
    if what != "image":
        return ""
    file, site = find_own_file(path)
    if not site:
        site = next((site for site in find_site_files(find_sites_folder()) if path.stem.endswith(f"-{site}")), "")
    line = f"recipe build {site or choose_site()} {quote(file) if file else 'ENV'}"
    named = path.suffix == ".sif" and path.parent.is_dir()
    builds = f"`{line} -o {word}` builds it" if named else f"`{line}` builds one"
    return builds if file else f"{builds} from the environment file ENV"


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
    if command == "diff" and (line := _replace_side(path, [*([str(image)] if image else []), *here])):
        fix = f"`{line}`"
    if not fix and kind == "an environment file":
        fix = f"build it first: `recipe build {choose_site()} {quote(str(path))}`"
    message = f"'{shown}' is {kind}, and not {takes}"
    return replace(finding, message=message, fix=fix or finding.fix, at=None)


def _replace_side(path: Path, names: Sequence[str]) -> str:
    """The line of `recipe diff` with another image in the place of one path; "" where there is no third one."""
    typed = TypedLine.read()
    words = [typed.words[at] for at in typed.places]
    other = next((name for name in names if name not in words), "")
    return replace_argument(str(path), other) if other and str(path) in words else ""


def find_image_of(folder: Path) -> Path | None:
    """The image next to a plan folder, None where there is none."""
    if folder.name in ("", ".."):
        return None
    image = folder.with_name(f"{folder.stem}.sif")
    return image if exists(image) else None


HEAD = 64 * 1024  # bytes of an existing file that show its kind


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file to write: `what` it is in words, and whether the first bytes of an existing one are of this kind.

    `option` is what names it, "" where its name is made from that of another file.
    """

    path: Path
    what: str
    is_own: Callable[[bytes], bool]
    option: str = ""
    inputs: Iterable[tuple[str, Path]] = ()

    def check(self) -> None:
        """Raise ConfigError where the file exists and is an input, not regular, or of another kind."""
        check_not_inputs(self.inputs, image=self.path, folder=None, option=self.option or "-o")
        if not os.path.lexists(self.path):
            return
        other = f"choose another file with {self.option}" if self.option else "rename the file that it is made from"
        if self.path.is_dir():
            raise self._make_error("output-exists", "is a folder", fix=other)
        if not self.path.is_file():
            raise self._make_error("output-exists", "exists and is not a regular file", fix=other)
        if not self.is_own(_read_head(self.path)):
            raise self._make_error("output-exists", f"exists and is not {self.what}", fix=f"remove it, or {other}")

    def write(self, text: str) -> None:
        """Write the file, or replace an earlier one of this kind; raises ConfigError, and ToolError on a full disk."""
        self.check()
        try:
            write_atomic(self.path, text)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            fix = f"choose another file with {self.option}"
            if error.errno in FULL:
                at = Location(file=str(self.path))
                message = f"'{sanitize(str(self.path), limit=400)}' cannot be written: {reason}"
                raise ToolError(Finding(code="no-space", message=message, fix=f"make room, or {fix}", at=at)) from None
            raise self._make_error("output-unwritable", f"cannot be written: {reason}", fix=fix) from None

    def _make_error(self, code: str, says: str, *, fix: str) -> ConfigError:
        shown = sanitize(str(self.path), limit=400)
        return ConfigError(Finding(code=code, message=f"'{shown}' {says}", fix=fix, at=Location(file=shown)))


def _read_head(path: Path) -> bytes:
    """The first bytes of a file, b"" where it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(HEAD)
    return b""
