"""recipe init --from: an environment file made of a Dockerfile, a definition file or an image."""

from __future__ import annotations

import os
import re
from pathlib import Path

from builder.cli.file_kinds import find_free_name, find_kind
from builder.cli.output import echo, emit
from builder.cli.schema import add_schema
from builder.cli.typed import quote
from builder.inspect.image_recipe import convert_image
from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import exists, sanitize
from builder.parse.build_file import SIZE_LIMIT
from builder.parse.build_file_recipe import convert_build_file
from builder.parse.definition_file import is_definition, read_definition
from builder.parse.dockerfile import is_dockerfile, read_dockerfile
from builder.parse.environment_yml import name_from
from builder.parse.recipe_draft import RecipeDraft, write_draft
from builder.parse.yaml import read_text, suggest_path
from builder.system.files import write_atomic

SUFFIXES = (".yml", ".yaml")
IMAGES = ("an image", "an archive", "a folder")
REPLACED = ("an environment file", "an empty file")  # by --force
KNOWN = "give a Dockerfile, an Apptainer definition file (.def) or an image (.sif)"


def write_environment_file(source: Path, *, output: Path | None, force: bool) -> None:
    """Write the file and print its path, and on stderr what is in it and what is not; raises ConfigError."""
    stem = _name_file(source)
    target = output / f"{stem}.yml" if output is not None and output.is_dir() else output or Path(f"{stem}.yml")
    _check_target(target, source=source, force=force)
    prefix = os.path.relpath(source.absolute().parent, target.absolute().parent)
    draft, by = _read_source(source, prefix=prefix)
    name = name_from(source.absolute().parent.name if stem == "environment" else stem)
    text, recipe = write_draft(draft, name=name, source=source.name, path=target)
    try:
        write_atomic(target, add_schema(text, kind="environment", target=target))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None  # not the draft, which is ours
    emit(str(target))
    parts = {
        "package": len(recipe.conda) + len(recipe.pip),
        "system package": len(recipe.container.system),
        "file": len(recipe.container.files),
        "variable": len({**recipe.container.env, **recipe.variables}),
        "command": len(recipe.container.run),
    }
    counted = ", ".join(_count(word, number) for word, number in parts.items() if number)
    echo(f"from {by}: {counted or 'a base image alone'}", err=True)
    if draft.left:
        echo(f"not taken over: {_count('line', len(draft.left))}, listed at the end of the file", err=True)
    echo(f"next: read it, then recipe check all {quote(str(target))}", err=True)


def _count(word: str, number: int) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _name_file(source: Path) -> str:
    """The name of the new file without its ending: x.def and x.sif are x, a Dockerfile is environment."""
    match = re.fullmatch(r"(?:Dockerfile|Containerfile|Singularity)(?:\.(.+))?", source.name)
    if match:
        return match[1] or "environment"
    return source.stem or "environment"


def _check_target(target: Path, *, source: Path, force: bool) -> None:
    """Raise ConfigError for a name that says another format, and for a file that is there."""

    def name_line(path: Path) -> str:
        return f"`recipe init --from {quote(str(source))} -o {quote(str(path))}`"

    if target.suffix.lower() not in SUFFIXES:
        message = f"'{target}' is no name for an environment file, which ends in .yml"
        fix = name_line(target.with_name(f"{target.stem}.yml"))
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    if not os.path.lexists(target):
        return
    line = name_line(find_free_name(target))
    if target.is_symlink() or find_kind(target) not in REPLACED:
        message = f"'{target}' exists and is not an environment file: it is never replaced"
        raise ConfigError(Finding(code="init-exists", message=message, fix=line))
    if not force:
        fix = f"{line}, or add --force to replace it"
        raise ConfigError(Finding(code="init-exists", message=f"'{target}' exists already", fix=fix))


def _read_source(source: Path, *, prefix: str) -> tuple[RecipeDraft, str]:
    """Read the other file by its content; the draft, and what it was made by."""
    if not exists(source):
        message = f"'{sanitize(str(source), limit=400)}' does not exist"
        at = Location(file=str(source))
        raise ConfigError(Finding(code="init-from", message=message, at=at, fix=suggest_path(source, other=KNOWN)))
    kind = find_kind(source)
    if kind == "a folder" and (inner := _find_inside(source)):
        message = f"'{source}' is a folder with a build file in it"
        fix = f"`recipe init --from {quote(str(inner))}`"
        raise ConfigError(Finding(code="init-from", message=message, at=Location(file=str(source)), fix=fix))
    if kind in IMAGES:
        return convert_image(source, prefix=prefix)
    if kind == "a file of another kind":
        raise _make_error(source, "is neither text nor an image")
    text = read_text(source, what="build file")
    if len(text) > SIZE_LIMIT:
        raise _make_error(source, f"has more than {SIZE_LIMIT // 1024} KiB of text, and is hardly a build file")
    if is_definition(text):
        build = read_definition(text, file=str(source))
    elif is_dockerfile(text):
        build = read_dockerfile(text, file=str(source))
    elif kind == "an environment file":
        message = f"'{source}' is an environment file already"
        fix = f"`recipe check all {quote(str(source))}`"
        raise ConfigError(Finding(code="init-from", message=message, at=Location(file=str(source)), fix=fix))
    else:
        raise _make_error(source, "is neither a Dockerfile nor a definition file")
    return convert_build_file(build, folder=source.parent, prefix=prefix), build.what


def _find_inside(folder: Path) -> Path | None:
    """The build file of a folder."""
    names = [folder / name for name in ("Dockerfile", "Containerfile", "Singularity")]
    return next((path for path in (*names, *sorted(folder.glob("*.def"))[:1]) if path.is_file()), None)


def _make_error(source: Path, what: str) -> ConfigError:
    message = f"'{sanitize(str(source), limit=400)}' {what}"
    return ConfigError(Finding(code="init-from", message=message, at=Location(file=str(source)), fix=KNOWN))
