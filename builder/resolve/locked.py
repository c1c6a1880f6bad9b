"""Apply a lock to a target if it fits."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath

from builder.layers.conda_solver import CondaPackage
from builder.model.finding import Finding, Location, UnsupportedError
from builder.model.lock import Lock, LockRequest, describe_changes
from builder.model.target import Target


def make_lock_request(target: Target) -> LockRequest:
    """Collect everything in a target that decides which files are chosen."""
    environment, site = target.environment, target.site
    reference = target.base.reference
    return LockRequest(
        place=environment.place,
        arch=site.node.arch,
        base=reference if "://" in reference else PurePosixPath(reference).name,
        python=environment.python or "",
        glibc=target.base.glibc or "",
        cuda=environment.cuda,
        channels=environment.channels if environment.place == "conda" else (),
        conda=environment.conda,
        torch=environment.torch_lines,
        pip=environment.pip_lines,
        options=environment.pip_options,
        constraints=environment.constraints,
        protected=environment.protected,
        brought=target.context.brought,
    )


def refuse_own_packages(target: Target) -> None:
    """Raise UnsupportedError for folders of the recipe: a lock names packages by their content."""
    for one in target.environment.own:
        message = f"'{one.source}' is a folder on this machine: a lock names packages by their content"
        fix = "build without a lock, or name a wheel or a commit of its git repository"
        at = Location(file=target.recipe.file)
        raise UnsupportedError(Finding(code="pip-local", message=message, at=at, fix=fix))


def refuse_unlocked(target: Target) -> None:
    """Raise UnsupportedError for the lock of another tool, where a build would install files without a hash."""
    recipe, site = target.recipe, target.site.name
    if recipe.kind != "lock" or target.lock is not None:
        return
    lines, conda = target.environment.torch_lines, target.environment.conda
    if lines:
        message = f"'{recipe.file}' has no hash for {lines[0]}, the build for '{site}'"
        message += ", and a lock is never installed without one"
    elif any(spec.hashes and spec.text in conda for spec in recipe.conda):
        message = f"'{recipe.file}' says which files of conda are installed, and conda's solver compares no hashes"
    else:
        return
    fix = f"{_name_command(target)}, which finds {'it' if lines else 'these very files'}"
    finding = Finding(code="lock-missing", message=message, at=Location(file=recipe.file), fix=fix)
    raise UnsupportedError(*target.findings, finding)


def list_other_conda(target: Target, packages: Iterable[CondaPackage]) -> list[str]:
    """The conda packages whose files are not those of another tool's lock: name, given and found hash."""
    planned = set(target.environment.conda)
    given = {spec.name: spec.hashes for spec in target.recipe.conda if spec.hashes and spec.text in planned}
    others = []
    for package in packages:
        found = (f"sha256:{package.sha256}", f"md5:{package.md5}")
        wanted = sorted(given.get(package.name, ()), reverse=True)  # sha256 first
        if wanted and not any(one in found for one in wanted):
            others.append(f"'{package.name}': {wanted[0]} given, {found[0]} found")
    return others


def apply_lock(target: Target) -> Target:
    """Apply the lock to a target if it fits; otherwise a finding lists what has changed."""
    context = target.context
    if context.lock is None:
        return replace(target, findings=(*target.findings, _report_missing(target))) if context.locked else target
    changed = list(describe_changes(context.lock, make_lock_request(target)))
    if context.base_changed:
        changed.append("the base image: its file has another content")
    changed += _list_other_digests(target, context.lock)
    if not changed:
        # The lock pins the versions that the recipe leaves open.
        kept = tuple(item for item in target.findings if item.code not in _list_fixed_codes(context.lock))
        return replace(target, lock=context.lock, findings=kept)
    return replace(target, findings=(*target.findings, _report_stale(target, changed=changed)))


def _list_other_digests(target: Target, lock: Lock) -> list[str]:
    """The packages of which the lock has another file than the one whose digest the recipe gives."""
    planned, given = set(target.environment.pip_lines), dict[str, tuple[str, ...]]()
    for line in target.recipe.pip:  # torch, and what belongs to it, is the site's
        if line.text in planned and any("sha256:" in value for value in line.hashes):
            given[line.name] = (*given.get(line.name, ()), *line.hashes)
    others = [file.name for file in lock.pip if file.sha256 and f"sha256:{file.sha256}" not in given.get(file.name, ())]
    others = [f"'{name}': the recipe gives another digest than the lock" for name in others if name in given]
    return others + list_other_conda(target, lock.conda)


def _list_fixed_codes(lock: Lock) -> tuple[str, ...]:
    return ("unpinned", "base-floating") if lock.base.digest else ("unpinned",)


def _report_missing(target: Target) -> Finding:
    site = target.site.name
    message = f"a lock is required, and there is none for '{site}'"
    at = Location(file=target.context.lock_file)
    return Finding(code="lock-missing", message=message, at=at, fix=_name_command(target))


def _report_stale(target: Target, *, changed: list[str]) -> Finding:
    """Report a stale lock: a warning, and the build continues without it; an error with --locked."""
    site, locked = target.site.name, target.context.locked
    message = f"the lock for '{site}' is stale{'' if locked else ' and is not used'}; changed: {'; '.join(changed)}"
    at = Location(file=target.context.lock_file, key=f"sites.{site}")
    fix = _name_command(target)
    if base := _find_given_base(target):
        fix = f"give --base {shlex.quote(base)}, which the lock was made with, or {fix}"
    return Finding(code="lock-stale", message=message, at=at, fix=fix, level="error" if locked else "warning")


def _find_given_base(target: Target) -> str:
    """The base image of the lock that only --base can have named, "" where this command has one or the site has it."""
    lock, recipe = target.context.lock, target.recipe
    if lock is None or target.context.base or recipe.container.base:
        return ""
    same = lock.asked.base == make_lock_request(target).base
    known = any(image.reference == lock.base.reference for image in target.site.base_images)
    return "" if same or known else lock.base.reference


def _name_command(target: Target) -> str:
    """The command that makes the lock: with the options that decide what is in it."""
    context, recipe = target.context, target.recipe
    own = str(PurePosixPath("/", recipe.folder, recipe.container.base or ""))
    base = "" if recipe.container.base and context.base.endswith(own) else context.base  # its own needs no option
    options = {
        "--backend": context.backend, "--base": base, "--driver": context.driver, "--torch-index": context.torch_index,
    }  # fmt: skip
    given = [word for name, value in options.items() if value for word in (name, value)]
    return f"run `recipe lock {shlex.join([target.site.name, recipe.file, *recipe.options, *given])}`"
