"""recipe init: an example environment file to start from, or the file of a site."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from builder.cli.file_kinds import find_free_name, find_kind
from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import echo, emit
from builder.cli.schema import add_schema
from builder.cli.typed import quote
from builder.model.finding import ConfigError, Finding, find_nearest
from builder.model.text import sanitize
from builder.parse.recipe import load_recipe
from builder.parse.site import find_data_folder
from builder.system.files import write_atomic

REPLACED = ("an environment file", "an empty file")  # by --force
SUFFIXES = (".yml", ".yaml"), (".txt", ".in")
SITE = "site"  # no example, but the file of a site
DEFAULT = "mnist"
RECIPES = find_data_folder("recipes")


@click.command("init")
@click.argument("example", required=False)
@click.argument("name", required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file to write; default: the example's name, here."
)
@click.option(
    "--from", "other", type=click.Path(path_type=Path), help="Make it of a Dockerfile, a definition file or an image."
)
@click.option("--list", "listed", is_flag=True, help="List the examples.")
@click.option("--detect", is_flag=True, help="Of a site: read this machine (Slurm, GPUs, engines, file systems).")
@click.option("-f", "--force", is_flag=True, help="Replace a file that exists.")
@add_plain_verbosity
def run_command(
    example: str | None,
    name: str | None,
    output: Path | None,
    other: Path | None,
    listed: bool,
    detect: bool,
    force: bool,
) -> None:
    """Write the example environment file EXAMPLE (default: mnist), and a schema next to it for your editor.

    `recipe init --from Dockerfile` makes the file of a Dockerfile, an Apptainer definition file or an image.

    `recipe init site NAME` writes the file of a site of your own, with --detect from what this machine says: run it on
    a login node, on a GPU node or on a workstation.
    """
    if other is not None:
        from builder.cli.init_from import write_environment_file  # few users need it

        _check_alone(other, [word for word in (example, name) if word], more=detect or listed)
        write_environment_file(other, output=output, force=force)
        return
    if example == SITE and not listed:
        from builder.cli.init_site import write_site_file  # few users need it

        write_site_file(name, output=output, detect=detect, force=force)
        return
    if detect or name is not None:
        message = "--detect is for the file of a site" if detect else f"'{name}' is one argument too many"
        line = " ".join(["recipe init site", *([name] if name else []), "--detect"])
        raise ConfigError(Finding(code="usage", message=message, fix=f"for a site: `{line}`"))
    found = {path.stem: path for path in sorted(RECIPES.iterdir()) if path.suffix in (".yml", ".txt")}
    if listed:
        for name, path in found.items():
            first = path.read_text(encoding="utf-8").splitlines()[0]
            echo(f"{name}: {first.removeprefix('# ')}")
        return
    _write_example(example or DEFAULT, found=found, output=output, force=force)


def _check_alone(other: Path, words: list[str], *, more: bool) -> None:
    """Raise ConfigError for words and options that have no meaning with --from."""
    if words or more:
        what = f"'{words[0]}' is an argument" if words else "--list or --detect is an option"
        source = "Dockerfile" if str(other).startswith("-") else quote(str(other))
        fix = f"`recipe init --from {source}`; -o names the new file"
        raise ConfigError(Finding(code="usage", message=f"{what} too many: --from names the source", fix=fix))


def _write_example(example: str, *, found: Mapping[str, Path], output: Path | None, force: bool) -> None:
    if example not in found:
        message, fix = _explain_unknown(example, found=found)
        raise ConfigError(Finding(code="init-unknown", message=message, fix=fix))
    source = found[example]
    target = output or Path(source.name)
    if not target.is_dir():
        _check_target(source, target)
    if os.path.lexists(target) and (target.is_dir() or not force):
        free = find_free_name(target / source.name if target.is_dir() else target)
        line = f"`recipe init {example} -o {quote(str(free))}`"
        fix = line if target.is_dir() else f"{line}, or add --force to replace it"
        message = f"'{target}' is a folder" if target.is_dir() else f"'{target}' exists already"
        raise ConfigError(Finding(code="init-exists", message=message, fix=fix))
    _copy(source, target)
    for extra in RECIPES.glob(f"{source.stem}-*.*style"):
        if not os.path.lexists(target.parent / extra.name):
            _copy(extra, target.parent / extra.name)
    emit(str(target))


def _explain_unknown(name: str, *, found: Mapping[str, Path]) -> tuple[str, str]:
    """The message and the fix for an unknown example: the nearest name, else one that has the package of that name."""
    from builder.resolve.checks.spelling import is_known_package  # for messages alone

    others = f"examples: {', '.join(sorted(found))}"
    message, package = f"there is no example '{sanitize(name)}'", name.lower()
    if near := find_nearest(name, known=found):
        return message, f"did you mean `recipe init {near}`? {others}"
    having = [example for example, path in found.items() if package in _list_packages(path)]
    if having:
        lines = " or ".join(f"`recipe init {example}`" for example in having)
        return f"{message}, and a package has this name", f"{lines} writes a file with it; {others}"
    if is_known_package(package):
        line = f"`recipe init {DEFAULT} -o {quote(package)}.yml`"
        fix = f"{line}, and write {package} in the place of torch and torchvision in it; {others}"
        return f"{message}, and a package has this name", fix
    return message, f"`recipe init {DEFAULT}`; {others}"


def _list_packages(path: Path) -> set[str]:
    """The names of the packages that an example has; torch by both of its names."""
    recipe = load_recipe(path)
    names = {*(spec.name for spec in recipe.conda), *(line.name for line in recipe.pip)}
    return names | ({"torch", "pytorch"} if names & {"torch", "pytorch"} else set())


def _check_target(source: Path, target: Path) -> None:
    """Raise ConfigError for a name that says another format, and for a file of another kind."""
    known = next(endings for endings in SUFFIXES if source.suffix in endings)
    if target.suffix.lower() not in known:
        message = f"'{target}' is no name for the example '{source.stem}', which is a {source.suffix} file"
        name = quote(str(target.with_name(f"{target.stem}{source.suffix}")))
        raise ConfigError(Finding(code="usage", message=message, fix=f"`recipe init {source.stem} -o {name}`"))
    if os.path.lexists(target) and (target.is_symlink() or find_kind(target) not in REPLACED):
        message = f"'{target}' exists and is not an environment file: it is never replaced"
        fix = f"`recipe init {source.stem} -o {quote(str(find_free_name(target)))}`"
        raise ConfigError(Finding(code="init-exists", message=message, fix=fix))


def _copy(source: Path, target: Path) -> None:
    """Copy an example, whole or not at all; one of YAML with its schema. Raises OSError."""
    text = source.read_text(encoding="utf-8")
    try:
        write_atomic(target, add_schema(text, kind="environment", target=target) if source.suffix == ".yml" else text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None  # not the draft, which is ours
