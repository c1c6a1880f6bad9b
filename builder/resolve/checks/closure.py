"""The closure of a recipe on a site: every package that is installed, judged; a torch that no line names is planned.

What uv and py-rattler resolve comes before the lists of names: of a package that another one requires the same is asked
as of a line of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from packaging.version import Version

from builder.layers.conda_solver import CondaPackage
from builder.model.finding import Finding, Location, UnsupportedError
from builder.model.lock import PipFile
from builder.model.recipe import PipRequirement
from builder.model.target import Target
from builder.parse.gpu_tables import load_package_table, load_torch_table
from builder.parse.lock_files import TORCH_FAMILY
from builder.resolve.checks import Check, builds, default_wheels, packages
from builder.resolve.checks.vendors import VENDOR_NAMES
from builder.resolve.conda_names import find_python_name
from builder.resolve.resolve import resolve
from builder.resolve.tokens import has_trouble, list_tokens

CHECKS: tuple[Check, ...] = (
    packages.check_vendor,
    packages.check_vendor_names,
    default_wheels.check_default_wheel,
    packages.check_package_cuda,
    builds.check_build_needs,
    builds.check_package_glibc,
    builds.check_package_rocm,
)
Requirers = Callable[[], Mapping[str, Sequence[str]]]  # the packages that require each package


def make_unknown_finding(what: str, reason: Finding) -> Finding:
    """Report packages that were judged by the lists, because something did not answer."""
    message = f"{what} were judged by name, not looked up: {reason.message}"
    fix = reason.fix
    if reason.code == "lock-network":  # a check has no --offline
        fix = fix.replace("lock where", "check where", 1).partition("; --offline")[0]
    return Finding(code="not-looked-up", message=message, at=reason.at, fix=fix, level="warning")


def find_unplanned_torch(target: Target, files: Iterable[PipFile]) -> str:
    """The version of a torch that no line of the recipe names, "" where there is none."""
    torch = next((file for file in files if file.name == "torch"), None)
    return torch.version.partition("+")[0] if torch is not None and target.environment.torch is None else ""


def list_served_torch(target: Target, *, sure: bool = False) -> list[str]:
    """The releases of torch that the site serves with the environment's Python, oldest first.

    With `sure` those without doubts in the tables and without known trouble at the site.
    """
    site, python = target.site, target.environment.python
    served = [
        row.torch
        for row in load_torch_table().releases
        if (tokens := list_tokens(row, site=site))
        and python in (None, *row.pythons)
        and not (sure and ({"cuda", "rocm", "xpu", "cpu"} & {*row.unsure} or has_trouble(tokens[0], site=site)))
    ]
    return sorted(served, key=Version)


def make_torch_limits(served: Sequence[str]) -> tuple[str, ...]:
    """Constraints that leave a resolver only some releases of torch, which are in order."""
    if not served:
        return ()
    first, last = Version(served[0]), Version(served[-1])
    gaps = [row.torch for row in load_torch_table().releases if first < Version(row.torch) < last]
    return (f"torch>={first},<={last}" + "".join(f",!={name}" for name in gaps if name not in served),)


def plan_torch(
    target: Target,
    files: Sequence[PipFile],
    *,
    resolve_pip: Callable[[tuple[str, ...]], Sequence[PipFile]],
    requirers: Requirers,
) -> Target | None:
    """Plan a torch that a package requires and no line names; None where there is no such torch.

    It is the release that the resolver takes, where need be among those that the site serves (`resolve_pip` takes more
    constraints). Raises UnsupportedError, with what requires it.
    """
    found = find_unplanned_torch(target, files)
    if not found:
        return None
    for served in (list_served_torch(target, sure=True), list_served_torch(target)):
        if found in served:
            break
        with suppress(UnsupportedError):
            found = find_unplanned_torch(target, resolve_pip(make_torch_limits(served)))
            break
    context = replace(target.context, brought=(f"torch=={found}",))
    try:
        return resolve(target.recipe, target.site, context=context) if found else None
    except UnsupportedError as error:
        resolve_pip(())
        names = " and ".join(sorted(requirers().get("torch", ()))[:3])
        why = f"{names or 'a package'} requires torch: "
        fix = f"remove {names or 'it'}, or pin an older release of it"
        about = [one for one in error.findings if f"torch=={found}" in one.message]
        told = {one: replace(one, message=why + one.message, fix=f"{fix} ({one.fix})") for one in about}
        raise UnsupportedError(*(told.get(one, one) for one in error.findings)) from None


def judge_closure(target: Target, files: Sequence[PipFile], *, requirers: Requirers) -> tuple[Finding, ...]:
    """What is wrong with packages that no line of the recipe names, and with files that have to be compiled."""
    lines = tuple(_list_brought(target, files))
    recipe = replace(target.recipe, pip=(*target.recipe.pip, *lines))
    texts = tuple(line.text for line in lines)
    environment = replace(target.environment, pip_lines=(*target.environment.pip_lines, *texts))
    whole = replace(target, recipe=recipe, environment=environment)
    known = {finding for check in CHECKS for finding in check(target)}
    found = [finding for check in CHECKS for finding in check(whole) if finding not in known]
    told = [
        replace(finding, message=_add_requirer(finding.message, lines, requirers()), fix=_adapt_fix(finding.fix))
        for finding in found
    ]
    return (*_report_torch(target), *told, *_report_sources(target, files))


def _list_brought(target: Target, files: Iterable[PipFile]) -> Iterator[PipRequirement]:
    own = {line.name for line in target.recipe.pip}
    own |= {find_python_name(spec.name) or spec.name for spec in target.recipe.conda}
    for file in files:
        if file.name not in (*own, *TORCH_FAMILY) and file.version and file.kind != "vcs":
            text = f"{file.name}=={file.version}"
            yield PipRequirement(text=text, name=file.name, specifier=f"=={file.version}", file=target.recipe.file)


def _add_requirer(message: str, lines: Sequence[PipRequirement], requirers: Mapping[str, Sequence[str]]) -> str:
    line = next((line for line in lines if f"'{line.text}'" in message), None)
    names = requirers.get(line.name, ()) if line is not None else ()
    return f"{message} (required by {' and '.join(sorted(names)[:3])})" if names else message


def _adapt_fix(fix: str) -> str:
    """The fix for what no line names: nothing can be removed but what requires it."""
    return fix.replace("remove it", "remove what requires it", 1)


def _report_torch(target: Target) -> Iterator[Finding]:
    """Report a torch that no line names, with the build that is installed."""
    torch = target.environment.torch
    if not target.context.brought or torch is None:
        return
    what = f"the base image's own torch {torch.version} is kept" if torch.provided else f"torch {torch.local} is taken"
    message = f"torch is required, and no line names it: {what} for '{target.site.name}'"
    fix = f"write torch=={Version(torch.version).base_version} to keep this version, or make a lock"
    yield Finding(code="torch-brought", message=message, at=Location(file=target.recipe.file), fix=fix, level="note")


def report_torch_conflict(target: Target, name: str, needs: str) -> tuple[Finding, ...]:
    """Report a package that installs next to the target's torch and does not use it."""
    torch = target.environment.torch
    if not name or torch is None:
        return ()
    message = f"'{name}' uses {needs}, by its extra 'torch': on '{target.site.name}' torch is {torch.local}"
    fix = f"choose an older {name}, or {needs}"
    at = Location(file=target.recipe.file)
    return (Finding(code="torch-pin", message=message, at=at, fix=fix, level="warning"),)


def _report_sources(target: Target, files: Iterable[PipFile]) -> Iterator[Finding]:
    """Report packages without a wheel for the site, as the index says; those of the table are reported by it."""
    told = {row.name for row in load_package_table().packages if row.needs}
    names = [f"{file.name}=={file.version}" for file in files if file.kind == "sdist" and file.name not in told]
    if not names:
        return
    python, base = target.environment.python, target.base
    message = f"no wheel for Python {python or 'of the image'}: {', '.join(names)}; built from source"
    bare = builds.has_no_compiler(target)
    if bare:
        message += f", and the base image '{base.reference}' has no compiler"
    fix = "choose a version that has a wheel, or a base image with a compiler"
    if not bare:
        fix = "no action needed if the build succeeds; else choose a version that has a wheel"
    at = Location(file=target.recipe.file)
    yield Finding(code="build-needs", message=message, at=at, fix=fix, level="warning" if bare else "note")


def judge_conda(target: Target, found: Sequence[CondaPackage]) -> tuple[Finding, ...]:
    """Report conda's torch that a conda package brings: no site installs that build, and two torches do not mix."""
    torch = next((one for one in found if one.name in ("pytorch", "libtorch")), None)
    asked = {spec.name for spec in target.recipe.conda}
    site = target.site
    if torch is None or torch.name in asked:
        return ()
    cpu_wanted = "cpu" in target.recipe.container.gpu
    fits = site.vendor in ("nvidia", "cpu") and (site.vendor == "cpu" or "cuda" in torch.build or cpu_wanted)
    if target.environment.torch is None and fits:
        return ()
    parts = ("pytorch", "libtorch", "pytorch-gpu", "pytorch-cpu")
    users = [one.name for one in found if one.name not in parts and _depends_on(one, parts)]
    named = [name for name in users if name in asked] or users
    who = " and ".join(named[:3]) or "a conda package"
    message = f"{who} of conda requires conda's {torch.name} {torch.version} ({torch.build})"
    message += (
        f", next to the torch of '{site.name}'" if target.environment.torch else ""
    ) or f", which is not built for the {VENDOR_NAMES[site.vendor]} GPUs of '{site.name}'"
    pip = [find_python_name(name) or "" for name in named]
    fix = f"write {' and '.join(pip)} below pip:" if pip and all(pip) else f"remove {who}"
    line = next((spec.line for spec in target.recipe.conda if spec.name in named), None)
    at = Location(file=target.recipe.file, line=line)
    return (Finding(code="conda-default", message=message, at=at, fix=fix),)


def _depends_on(package: CondaPackage, names: Sequence[str]) -> bool:
    return any(text.split()[0] in names for text in package.depends if text.split())
