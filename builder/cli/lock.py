"""recipe lock: record the exact files of an environment for one site or several."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import click

from builder.cli.help import GroupedCommand
from builder.cli.input_options import add_input_options, read_choice
from builder.cli.inputs import add_decision_options, add_verbosity, find_sites_folder, make_context
from builder.cli.output import echo, emit, is_quiet, show_findings
from builder.cli.targets import read_words
from builder.compile.backends import check_backend
from builder.model.finding import (
    BuilderError,
    ConfigError,
    Finding,
    Location,
    StepError,
    ToolError,
    UnsupportedError,
    select_errors,
)
from builder.model.lock import Lock
from builder.model.recipe import STDIN
from builder.model.target import Context, Target
from builder.parse.lock_files import is_index, name_site_folder, read_lock
from builder.parse.recipe import load_recipe, name_index
from builder.parse.site import load_site
from builder.pipeline.resolution import resolve_recipe

if TYPE_CHECKING:  # loaded where something is resolved
    from builder.lock.forms import Form
    from builder.lock.session import Session

SILENT = 2.0  # seconds without a line
FORMS = ("pylock", "requirements", "conda-lock", "explicit")


@click.command("lock", cls=GroupedCommand)
@click.argument("words", nargs=-1, metavar="[SITE]... ENV")
@click.option("--offline", is_flag=True, help="Use what was downloaded before, and ask no server.")
@click.option("--check", "check_only", is_flag=True, help="Say whether the lock fits, and write nothing.")
@click.option("--format", "form", type=click.Choice(FORMS), help="Print a lock that fits as another tool reads it.")
@add_input_options
@add_decision_options
@add_verbosity
def run_command(
    words: tuple[str, ...], offline: bool, check_only: bool, form: Form | None, verbose: int, quiet: bool,
    **chosen: str | bool | None,
) -> None:  # fmt: skip
    """Record the exact files of ENV for each SITE: conda and pip packages with hashes, the base image's digest.

    Put NAME.lock.yml and the folder NAME.lock next to ENV under version control; `recipe build` uses them.
    """
    del verbose
    named = read_words(words)
    if len(named.files) > 1:
        message = f"a lock is of one file, and {len(named.files)} are named"
        fix = f"`recipe lock {named.sites[0]} {named.files[0]}`, and so on"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    (path,) = named.files
    _check_words(form, named.sites, path, others=check_only or offline)
    if named.note and not quiet:
        echo(named.note, err=True)
    recipe = load_recipe(path, choice=read_choice(named.files))
    context = make_context(**chosen, locked=check_only or form is not None)
    loaded = [load_site(site, folder=find_sites_folder()) for site in named.sites]
    targets = [resolve_recipe(site, recipe, context=context, use_lock=context.locked) for site in loaded]
    if form is not None:
        _print_form(targets[0], form=form)
    elif check_only:
        _check(targets, index=name_index(path))
    else:
        _write(targets, path=path, offline=offline, quiet=quiet, context=context)


def _write(targets: Sequence[Target], *, path: Path, offline: bool, quiet: bool, context: Context) -> None:
    """Lock the targets, and write what was locked next to the environment file."""
    from builder.cli.paths import OutputFile
    from builder.execute.uv_values import check_uv_values
    from builder.pipeline.refusals import check_target

    index = name_index(path)
    for target in targets:
        with name_site(target.site.name, among=len(targets)):
            found = check_target(target, recipe=target.recipe, context=context)
            if refused := select_errors(found):
                raise UnsupportedError(*refused)
        if not quiet:
            show_findings(one for one in found if one.level == "warning")
    check_uv_values(os.environ)
    OutputFile(path=index, what="a lock of recipe", is_own=is_index, inputs=[("the recipe", path)]).check()
    for target in targets:
        _check_folder(name_site_folder(index, target.site.name))
    _lock(targets, index=index, offline=offline, quiet=quiet)
    emit(str(index))


def _check_words(form: Form | None, sites: Sequence[str], path: Path, *, others: bool) -> None:
    """Raise ConfigError for standard input, and for --format with several sites or another option of this command."""
    if str(path) == STDIN:
        message = "a lock is written next to its environment file, and '-' is standard input"
        raise ConfigError(Finding(code="usage", message=message, fix="save it to a file, and name that"))
    if form is None or (len(sites) == 1 and not others):
        return
    message = f"--format prints the lock of one site, and {len(sites)} are named"
    if others:
        message = "--format prints a lock that is there: it solves nothing, and asks no server"
    fix = f"`recipe lock {shlex.join([sites[0], str(path)])} --format {form}`"
    raise ConfigError(Finding(code="usage", message=message, fix=fix))


def _print_form(target: Target, *, form: Form) -> None:
    """Print the lock of a target in the form of another tool; raises UnsupportedError where none fits."""
    from builder.lock.forms import report_base, write_form

    if target.lock is None:
        raise UnsupportedError(*(one for one in target.findings if one.code in ("lock-missing", "lock-stale")))
    file = Path(target.recipe.file).name
    text = write_form(target.lock, form=form, file=file)
    show_findings(report_base(target.lock, file=target.recipe.file))
    emit(text, end="")


def _check_folder(folder: Path) -> None:
    """Raise ToolError where a folder of the lock cannot be one, before anything is solved."""
    for path in (folder.parent, folder):
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            message = f"the lock cannot be written: '{path}' is a link or a file where a folder should be"
            fix = "check where it leads, remove it, and lock again"
            raise ToolError(Finding(code="lock-write", message=message, at=Location(file=str(path)), fix=fix))


@contextmanager
def open_sessions(*, offline: bool = False) -> Iterator[Callable[[], Session]]:
    """Yield what makes a session for each site: in a temporary folder, with the cache, whose downloads stay."""
    from builder.execute.cache_maintenance import open_cache
    from builder.lock.session import Session
    from builder.system.scratch import make_work_folder

    environment, numbers = dict(os.environ), count()
    store = open_cache(environment)
    with store.lock_downloads(), make_work_folder("recipe-lock-") as work:

        def make_session() -> Session:
            folder = work / str(next(numbers))
            folder.mkdir()
            return Session(environment=environment, work=folder, cache=store.folder.parent, offline=offline)

        yield make_session


def _lock(targets: Sequence[Target], *, index: Path, offline: bool, quiet: bool) -> None:
    """Lock the sites one by one; nothing is written or printed as locked before all are."""
    from builder.lock.site_lock import lock_site, write_locks

    locked = []
    with open_sessions(offline=offline) as make_session:
        for target in targets:
            waiting = show_waiting(target.site.name, file=str(target.recipe.file))
            with name_site(target.site.name, among=len(targets)), waiting:
                item = lock_site(target, session=make_session())
                if errors := select_errors(item.findings):
                    raise UnsupportedError(*errors)
            locked.append(item)
            own = [replace(one, fix="no action needed") for one in target.findings if one.code == "lock-torch"]
            show_findings([*own, *item.findings])
    lines = [summarize_lock(item.lock, before=_read_before(index, item.lock.site)) for item in locked]
    write_locks(index, locked, tool=targets[0].context.tool)
    for line in lines if not quiet else ():
        echo(line, err=True)


@contextmanager
def show_waiting(site: str, *, file: str) -> Iterator[None]:
    """Say after two seconds what takes long: servers that have not answered, or a solver."""
    text = f"waiting for the indexes and channels: the packages of {file} for {site} ..."
    timer = Timer(SILENT, echo, [text], {"err": True})
    timer.daemon = True
    if not is_quiet():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def name_site(site: str, *, among: int) -> Iterator[None]:
    """Name in an error the site of several that could not be locked."""
    try:
        yield
    except BuilderError as error:
        if among > 1:
            told = [replace(one, message=f"no lock was written: '{site}': {one.message}") for one in error.findings[:1]]
            error.findings = (*told, *error.findings[1:])
        raise


def look_up(target: Target, findings: tuple[Finding, ...], *, session: Session) -> tuple[Target, tuple[Finding, ...]]:
    """Resolve every package; the target with a torch that no line names, and the findings with those of the closure.

    What an index does not answer is judged by its name alone, and a warning says so. Raises UnsupportedError.
    """
    from builder.lock.site_lock import lock_site
    from builder.resolve.checks.closure import make_unknown_finding

    try:
        found = lock_site(target, session=session, images=False)
    except (StepError, ToolError, ConfigError) as error:
        return target, (*findings, make_unknown_finding("the packages", error.findings[0]))
    if found.target is not None and found.target is not target:
        target, findings = found.target, check_backend(found.target)
    return target, (*findings, *found.findings)


def _check(targets: Sequence[Target], *, index: Path) -> None:
    """Print whether each site's lock fits; raises UnsupportedError if one does not."""
    wrong = [finding for target in targets for finding in target.findings if finding.code.startswith("lock-")]
    for target in targets:
        if target.lock is not None:
            echo(f"{target.site.name}: {index} fits", err=True)
    if select_errors(wrong):
        raise UnsupportedError(*wrong)


def _read_before(index: Path, site: str) -> Lock | None:
    """The lock to replace, None if there is none or it is invalid."""
    try:
        return read_lock(index, site)
    except ConfigError:
        return None


def summarize_lock(lock: Lock, *, before: Lock | None) -> str:
    """Write what was locked as a line, and below it the changes from the previous lock."""
    size = sum(package.size for package in lock.conda) + sum(file.size for file in lock.pip)
    parts = [f"{len(lock.conda)} conda packages"] if lock.conda else []
    parts += [f"{len(lock.pip)} Python file{'' if len(lock.pip) == 1 else 's'}"] if lock.pip else []
    parts += [f"{size / 1e6:.0f} MB as far as known"] if size > 1e6 else []
    parts.append(f"base image {lock.base.digest[:19] or 'by name'}")
    lines = [f"{lock.site}: {', '.join(parts)}"]
    if before is not None:
        lines += [f"  {line}" for line in list_changes(before, lock)] or ["  nothing has changed"]
    return "\n".join(lines)


def list_changes(before: Lock, now: Lock) -> list[str]:
    """The packages that a new lock adds, changes or removes."""
    old, new = _list_versions(before), _list_versions(now)
    lines = []
    for name in sorted({*old, *new}):
        was, is_now = old.get(name), new.get(name)
        if was is None:
            lines.append(f"+ {name} {is_now and is_now[0]}")
        elif is_now is None:
            lines.append(f"- {name} {was[0]}")
        elif was != is_now:
            lines.append(f"  {name} {was[0]} -> {is_now[0]}" + (" (another file)" if was[0] == is_now[0] else ""))
    if before.base.digest != now.base.digest:
        lines.append(f"  base image {before.base.digest or 'by name'} -> {now.base.digest or 'by name'}")
    return lines


def _list_versions(lock: Lock) -> dict[str, tuple[str, str]]:
    """Version and hash by name; conda's and pip's packages have different names."""
    found = {
        f"{package.name} (conda)": (f"{package.version} {package.build}", package.sha256) for package in lock.conda
    }
    return found | {file.name: (file.version or file.url, file.sha256 or file.url) for file in lock.pip}
