"""recipe lock: record the exact files of an environment for one site or several."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from builder.cli.inputs import add_compile_options, add_verbosity, find_sites_folder, make_context
from builder.cli.output import echo, emit, show_findings
from builder.cli.targets import read_words
from builder.model.finding import ConfigError, Finding, UnsupportedError, select_errors
from builder.model.lock import Lock
from builder.model.target import Target
from builder.parse.lock_files import is_index, name_index, read_lock
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline.plans import add_lock, make_target


@click.command("lock")
@click.argument("words", nargs=-1, metavar="SITE... ENV")
@click.option("--offline", is_flag=True, help="Use what was downloaded before, and ask no server.")
@click.option("--check", "check_only", is_flag=True, help="Say whether the lock fits, and write nothing.")
@add_compile_options
@add_verbosity
def run_command(
    words: tuple[str, ...], offline: bool, check_only: bool, verbose: int, quiet: bool, **chosen: str | bool | None
) -> None:
    """Record the exact files of ENV for each SITE: conda and pip packages with hashes, the base image's digest.

    Put NAME.lock.yml and the folder NAME.lock next to ENV under version control; `recipe build` uses them.
    """
    del verbose
    named = read_words(words)
    if len(named.files) > 1:
        message = f"a lock is of one file, and {len(named.files)} are named"
        fix = f"`recipe lock {named.sites[0]} {named.files[0]}`, and so on"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    if named.note and not quiet:
        echo(named.note, err=True)
    (path,) = named.files
    recipe = load_recipe(path)
    index = name_index(path)
    context = make_context(**chosen, locked=check_only)
    loaded = [load_site(site, folder=find_sites_folder()) for site in named.sites]
    targets = [
        make_target(site, recipe, context=add_lock(context, recipe, site.name, use=check_only)) for site in loaded
    ]
    if check_only:
        _check(targets, index=index)
        return
    from builder.cli.output_file import OutputFile

    OutputFile(path=index, what="a lock of recipe", is_own=is_index, inputs=[("the recipe", path)]).check()
    _lock(targets, index=index, offline=offline, quiet=quiet)
    emit(str(index))


def _lock(targets: Sequence[Target], *, index: Path, offline: bool, quiet: bool) -> None:
    """Lock the sites one by one; nothing is written before all are locked."""
    from builder.execute.layer_cache import open_cache
    from builder.lock.session import Session
    from builder.lock.site_lock import lock_site, write_locks
    from builder.system.scratch import make_work_folder

    environment = dict(os.environ)
    store, locked = open_cache(environment), []
    with store.lock_downloads(), make_work_folder("recipe-lock-") as work:
        for target in targets:
            folder = work / target.site.name
            folder.mkdir()
            session = Session(environment=environment, work=folder, cache=store.folder.parent, offline=offline)
            item = lock_site(target, session=session)
            locked.append(item)
            show_findings(item.findings)
            if not quiet:
                echo(summarize_lock(item.lock, before=_read_before(index, item.lock.site)), err=True)
    write_locks(index, locked, tool=targets[0].context.tool)


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
