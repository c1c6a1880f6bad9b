"""recipe kernel: a kernel for Jupyter that runs in an image."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import read_image
from builder.cli.output import echo, emit, show_findings
from builder.cli.paths import find_own_file
from builder.cli.start_folder import add_start_options, read_start_target, write_start_folder
from builder.cli.targets import name_environment
from builder.cli.typed import quote
from builder.compile.image_files import slugify
from builder.compile.start_plans import make_kernel_plan
from builder.model.finding import ConfigError, Finding, Location, UnsupportedError
from builder.model.target import Target
from builder.model.text import escape_line, sanitize

PACKAGE = "ipykernel"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")  # jupyter_client 8, kernelspec.py; it lowers letters


@click.command("kernel", cls=GroupedCommand)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder; default: your folder of kernels.")
@click.option("--name", help="Name of the kernel; default: the image's.")
@add_start_options
def run_command(words: tuple[str, ...], output: Path | None, name: str | None, force: bool) -> None:
    """Write a kernel for Jupyter whose Python is that of IMAGE, started as SITE runs it.

    IMAGE must have ipykernel; Jupyter itself is not in it. The kernel is where Jupyter looks for yours:
    JUPYTER_DATA_DIR, else ~/.local/share/jupyter.
    """
    target = read_start_target(words)
    image = Path(target.recipe.file)
    name = name or (output.name if output and NAME.fullmatch(output.name) else slugify(image.stem))
    if not NAME.fullmatch(name):
        message = f"'{sanitize(name)}' cannot be the name of a kernel"
        fix = f"write small letters, digits and any of ._-, as in --name {slugify(name)}"
        raise ConfigError(Finding(code="option-value", message=message, at=Location(key="--name"), fix=fix))
    _check_package(image, target=target)
    place = output or _find_kernels() / name
    plan = make_kernel_plan(target, title=escape_line(f"{name} ({target.site.name})"))
    folder = write_start_folder(plan, place, what="kernel", force=force)
    emit(str(place))
    if output is None:
        echo("next: jupyter kernelspec list", err=True)
    else:
        echo(f"next: jupyter kernelspec install --user --name {name} {quote(str(folder))}", err=True)
    echo(escape_line(f"note: the folder may be moved; the image stays at {image}"), err=True)


def _find_kernels() -> Path:
    """The user's folder of kernels (jupyter_core 5, paths.py); raises ConfigError without a home folder."""
    own = os.environ.get("JUPYTER_DATA_DIR")
    if own:
        return Path(own) / "kernels"
    try:
        data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError:
        message, fix = "your home folder is not known", "set HOME to its path, or name a folder with -o"
        raise ConfigError(Finding(code="variable", message=message, at=Location(key="HOME"), fix=fix)) from None
    return data / "jupyter" / "kernels"


def _check_package(image: Path, *, target: Target) -> None:
    """Raise UnsupportedError for an image that is known to have no ipykernel, with the line that adds it."""
    contents = read_image(image, command="kernel")
    if any(one.name.lower() == PACKAGE for one in contents.packages if one.kind in ("pip", "conda")):
        return
    if contents.unknown:
        message = (
            f"not all of '{sanitize(image.name, limit=400)}' could be read: {PACKAGE}, which it needs, may be missing"
        )
        line = f"recipe run {target.site.name} {quote(str(image))} -- python3 -m {PACKAGE} --version"
        fix = f"`{line}` says whether it is there"
        show_findings([Finding(code="no-ipykernel", message=message, fix=fix, level="warning")])
        return
    file = find_own_file(image)[0] or name_environment()
    line = PACKAGE if file.endswith((".txt", ".in")) else f"- {PACKAGE}"
    if file.endswith(".toml"):
        line = f'"{PACKAGE}"'
    message = f"the image '{sanitize(image.name, limit=400)}' has no {PACKAGE}, which Jupyter talks to"
    fix = f"add `{line}` to the dependencies of {quote(file)}, and build again: `recipe build {target.site.name}"
    words = f"{quote(file)} -o {quote(os.path.relpath(image))}"
    raise UnsupportedError(Finding(code="no-ipykernel", message=message, fix=f"{fix} {words} --force`"))
