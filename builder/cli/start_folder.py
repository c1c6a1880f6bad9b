"""The folder that `recipe module` or `recipe kernel` writes, and what both take: [SITE] IMAGE, a name, a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from builder.cli.image_arguments import read_image_words
from builder.cli.inputs import add_plain_verbosity, make_context
from builder.cli.typed import quote
from builder.compile.image_plans import make_image_target
from builder.execute.plan_folder import write_plan
from builder.execute.preflight import check_bindable
from builder.model.finding import ConfigError, Finding
from builder.model.plan import LIMIT, Plan, from_json
from builder.model.target import Target
from builder.model.text import sanitize
from builder.pipeline.own_inputs import check_not_inputs
from builder.pipeline.resolution import add_gpu
from builder.system.layout import PLAN_FILE
from builder.system.trust import read_below

F = TypeVar("F", bound=Callable[..., object])
KEEP = "give --force to lose these changes, or another folder with -o"


def add_start_options(command: F) -> F:
    """Add the image, and the options that say what is replaced and printed."""
    for add in (
        add_plain_verbosity,
        click.option("-f", "--force", is_flag=True, help="Replace one of another image, or with changes by hand."),
        click.argument("words", metavar="[SITE] IMAGE", nargs=-1),
    ):
        command = add(command)
    return command


def read_start_target(words: Sequence[str], *, quiet: bool = False) -> Target:
    """Read the site and the image; raises ConfigError."""
    named = read_image_words(words, what="image", quiet=quiet)
    context = add_gpu(make_context(), named.site)
    return make_image_target(named.site, image=str(named.path), context=context, folder=(named.path / "bin").is_dir())


def write_start_folder(plan: Plan, folder: Path, *, what: str, force: bool) -> Path:
    """Write the folder and return its absolute path; raises ConfigError where it is not to be replaced."""
    check_bindable(folder, what=f"the {what}", fix="choose another folder with -o")
    check_not_inputs([("the image", Path(plan.image))], image=None, folder=folder)
    if not force:
        _check_same(plan, folder, what=what)
    write_plan(plan, folder, recipe_folder=folder, force=force, fix=KEEP)
    return folder.absolute()


def _check_same(plan: Plan, folder: Path, *, what: str) -> None:
    """Raise ConfigError for a folder of another image, another site or another kind."""
    try:
        before = from_json(read_below(folder, PLAN_FILE, limit=LIMIT))
    except (ConfigError, OSError, ValueError):
        return  # no plan of ours: it is refused where it is written, if anything is there
    if (before.image, before.target) == (plan.image, plan.target):
        return
    of = f"of {sanitize(before.image, limit=400)} on {sanitize(before.site)}" if before.image else "of a build"
    message = f"'{sanitize(str(folder), limit=400)}' is a folder {of}, and not this {what}"
    free = next(name for at in range(2, 10_000) if not (name := folder.with_name(f"{folder.name}-{at}")).exists())
    fix = f"give --force to replace it, or another folder with -o {quote(str(free))}"
    raise ConfigError(Finding(code="folder-taken", message=message, fix=fix))
