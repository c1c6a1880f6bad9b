"""Checks of the lock of another tool: whether it has files for the site, and what of it is the site's own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from builder.model.finding import Finding, Location
from builder.model.target import Target
from builder.resolve.checks.packages import locate
from builder.resolve.conda_names import find_python_name
from builder.resolve.requested import FAMILY, find_family_name

NEWEST_GLIBC = "2.60"  # of a base image whose own is not known: another check says so


def check_lock_platform(target: Target) -> Iterator[Finding]:
    """Report a lock that was made for other processors."""
    recipe, arch = target.recipe, target.site.node.arch
    if recipe.processors and arch not in recipe.processors:
        message = f"the lock is for {' and '.join(recipe.processors)}, and '{target.site.name}' has {arch}"
        fix = f"lock for {arch}, too, with the tool that made it, or give the file that it was made from"
        yield Finding(code="lock-platform", message=message, at=Location(file=recipe.file), fix=fix)


def check_lock_files(target: Target) -> Iterator[Finding]:
    """Report packages of a lock that have no file for the site's Python, processor and glibc."""
    python, arch = target.environment.python, target.site.node.arch
    lines = [line for line in target.recipe.pip if line.files]
    if not lines or python is None:
        return
    from builder.resolve.wheel_tags import choose_wheel  # few recipes are a lock

    glibc, planned = target.base.glibc or NEWEST_GLIBC, set(target.environment.pip_lines)
    for line in lines:
        sources = any(not file.endswith(".whl") for file in line.files)
        if line.text not in planned or sources or choose_wheel(line.files, python=python, arch=arch, glibc=glibc):
            continue
        message = f"'{line.name}{line.specifier}' has no file for Python {python} on {arch}"
        message += f" with glibc {target.base.glibc}" if target.base.glibc else ""
        message += f": the lock has {PurePosixPath(line.files[0]).name}"
        message += f" and {len(line.files) - 1} more" if len(line.files) > 1 else ""
        fix = f"lock for Python {python} on Linux with {arch}, or for every system, as `uv lock` does"
        yield Finding(code="lock-no-file", message=message, at=locate(target.recipe, line), fix=fix)


def check_lock_torch(target: Target) -> Iterator[Finding]:
    """Say that torch, and what belongs to it, is the site's and not the lock's."""
    recipe, torch, environment = target.recipe, target.environment.torch, target.environment
    asked = [line for line in recipe.pip if find_family_name(line)]
    conda = [spec for spec in recipe.conda if find_python_name(spec.name) in FAMILY]
    if recipe.kind != "lock" or torch is None or not (asked or conda):
        return
    planned = {*environment.pip_lines, *environment.conda}
    others = [line.name for line in recipe.pip if line.text not in planned]
    others += [spec.name for spec in recipe.conda if spec.text not in planned]
    kept = len(others) - len(asked) - len(conda) - ("python" in others)
    names = ", ".join(f"{line.name} {line.specifier.lstrip('=')}" for line in asked)
    names = names or ", ".join(f"{spec.name} {spec.version.lstrip('=')}" for spec in conda)
    own = ", ".join(line.replace("==", " ") for line in environment.torch_lines)
    message = f"{names} of the lock is replaced by this site's build, {own or f'torch {torch.local} of the base image'}"
    message += f", and {kept} package{'s' * (kept > 1)} that belong{'s' * (kept == 1)} to it" if kept else ""
    message += ": every other package keeps its version and hash"
    words = shlex.join([target.site.name, recipe.file, *recipe.options])
    fix = f"`recipe lock {words}` finds the new hashes, which a build needs" if own else "no action needed"
    at = locate(recipe, asked[0]) if asked else Location(file=recipe.file, line=conda[0].line)
    yield Finding(code="lock-torch", message=message, at=at, fix=fix, level="note")
