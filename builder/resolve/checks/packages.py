"""Checks of a recipe's packages: what installs but runs without the GPU, or is not what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.model.finding import Finding, Level, Location
from builder.model.recipe import PipRequirement, Recipe
from builder.model.site import Vendor
from builder.model.target import Target
from builder.parse.gpu_tables import VendorMarker, load_package_table, load_torch_table
from builder.parse.requirement import describe_hash_fault
from builder.resolve.checks.known_builds import find_known_release, suggest_known_build
from builder.resolve.checks.triton import is_triton, suggest_triton
from builder.resolve.checks.vendors import (
    VENDOR_NAMES,
    find_ending,
    find_named_vendor,
    read_local,
    report_dispute,
    suggest_counterpart,
)
from builder.resolve.conda_names import find_python_name, is_cuda_library, load_name_table, matches
from builder.resolve.indexes import TORCH_HOST, is_kept_index, list_builds
from builder.resolve.package_plan import (
    CUDA_RUNTIME,
)
from builder.resolve.releases import find_required_torch
from builder.resolve.replacements import Replacement, find_replacement
from builder.resolve.requested import COMPANIONS, FAMILY, PROTECTED_PACKAGES, TRITON, find_family_name, to_release
from builder.resolve.tokens import find_vendor, list_tokens, serves_cuda

OLDEST_CUDA = 11  # of the drivers' table; older ones run on every driver


def check_vendor(target: Target) -> Iterator[Finding]:
    """Report a package that works only on devices of another vendor."""
    site = target.site
    for line in target.recipe.pip:
        marker = find_other_vendor(line, target=target)
        if marker is None:
            continue
        works = f"'{line.text}' works on {VENDOR_NAMES[marker.vendor]} devices only"
        message = f"{works}, '{site.name}' has {name_devices(site.vendor)}"
        fix = suggest_counterpart(line.name, site=site, backend=target.backend, environment=target.environment)
        if is_triton(line.name):
            fix = suggest_triton(line.specifier, site=site, python=target.environment.python) or fix
        if fix.startswith("remove it") and line.extras and "cpu" in _find_index_vendors(line):
            fix += f"; {line.name} without the extra runs on CPUs: {suggest_cpu(target)}"
        level: Level = "warning" if site.vendor == "cpu" else "error"
        yield Finding(code="package-vendor", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def check_vendor_names(target: Target) -> Iterator[Finding]:
    """Report a package without a table row whose name, extra or local version names another vendor."""
    site = target.site
    for line in target.recipe.pip:
        found = None if find_family_name(line) or is_dropped(line, target=target) else find_named_vendor(line)
        if found is None or find_other_vendor(line, target=target):
            continue
        ending, part, is_extra = found
        if not ending.devices and (ending.vendor == site.vendor or site.vendor in line.extras):
            continue
        shown = unquote(line.url).partition("#")[0].rpartition("/")[2] if line.url else line.text
        by_name = f"by {part}, not looked up"
        message = f"'{shown}' is for {ending.devices or name_devices(ending.vendor)} ({by_name}), '{site.name}' has "
        message += name_devices(site.vendor)
        error = ending.certain and not is_extra and site.vendor != "cpu"
        fix = suggest_counterpart(line.name, site=site, backend=target.backend, environment=target.environment)
        if not error and fix.startswith("remove it"):
            fix = f"check that it does what you need on {name_devices(site.vendor)}, or remove it"
        level: Level = "error" if error else "warning"
        yield Finding(code="package-vendor", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def find_other_vendor(line: PipRequirement, *, target: Target) -> VendorMarker | None:
    """Find the marker that assigns a requirement to another vendor, None if there is none."""
    vendor = target.site.vendor
    found = (row for row in load_package_table().markers if is_marked(row, line) and row.vendor != vendor)
    marker = next(found, None)
    return None if marker is None or is_dropped(line, target=target) or vendor in _find_index_vendors(line) else marker


def _find_index_vendors(line: PipRequirement) -> tuple[Vendor, ...]:
    """Return the vendors that the file on the default index serves; it has no local version."""
    if "+" in line.specifier:
        return ()
    return next((row.pypi for row in load_package_table().packages if row.name == line.name), ())


def is_marked(marker: VendorMarker, line: PipRequirement) -> bool:
    """Whether a marker is for a requirement."""
    if marker.kind != "pip" or not any(matches(line.name, form) for form in marker.pattern.split()):
        return False
    return not marker.extra or any(matches(extra, marker.extra) for extra in line.extras)


def is_dropped(line: PipRequirement, *, target: Target) -> bool:
    """Whether the package is dropped or replaced anyway: CUDA libraries, Triton, packages of the base image."""
    if line.name in TRITON and target.environment.torch is not None:
        return True
    if find_own_replacement(line, target=target):
        return True
    if CUDA_RUNTIME.fullmatch(line.name) or line.name in load_package_table().harmless.split():
        return True
    return target.environment.place == "base" and line.name in PROTECTED_PACKAGES and line.name in target.base.provides


def find_own_replacement(line: PipRequirement, *, target: Target) -> Replacement | None:
    return find_replacement(line, site=target.site, base=target.base, python=target.environment.python)


def replace_line(line: PipRequirement, *, target: Target) -> PipRequirement:
    """The requirement that is installed for a line: itself, or its counterpart at its place in the file."""
    other = find_own_replacement(line, target=target)
    if other is None:
        return line
    name, extras, specifier = re.fullmatch(r"([\w.-]+)(?:\[(.*)\])?([^;]*?)(?: ;.*)?", other.text).groups("")  # type: ignore[union-attr]
    found = tuple(filter(None, extras.split(",")))
    return replace(line, text=other.text, name=name, extras=found, specifier=specifier)


def find_newest_python(line: PipRequirement, *, python: str | None) -> str:
    """Find the newest Python that a pinned release has a wheel for, "" if it is not older than the environment's."""
    asked = {line.name, *(f"{line.name}[{extra}]" for extra in line.extras)}
    table = load_package_table().newest_pythons  # a plug-in of an extra comes before its package
    rows = next((rows for names, rows in table.items() if asked & {*names.split()}), {})
    pin = re.fullmatch(r"={2,3}([^*,=]+)(?:\.\*)?", line.specifier)
    release = to_release(pin[1]) if pin else None
    if release is None or not python or line.url:
        return ""
    short = Version(f"{release.major}.{release.minor}")
    newest = next((row for until, row in rows.items() if short <= Version(until)), None)
    return newest if newest is not None and Version(python) > Version(newest) else ""


def check_counterparts(target: Target) -> Iterator[Finding]:
    """Report packages of another vendor that are replaced by the site's counterpart."""
    for line in target.recipe.pip:
        other = find_own_replacement(line, target=target)
        if other is None or other.text not in target.environment.pip_lines:
            continue
        if find_newest_python(replace_line(line, target=target), python=target.environment.python):
            continue  # refused
        message = f"'{line.text}' is not built for the {VENDOR_NAMES[target.site.vendor]} GPUs of '{target.site.name}'"
        if target.site.vendor == "cpu":
            message = f"'{line.text}' is built for GPUs, '{target.site.name}' has none"
        message += f": it is replaced by '{other.text}'"
        doubts = other.row.unsure
        message += f"; not certain: {', '.join(doubts)}" if doubts else ""
        fix = "try it on a GPU node" if doubts else "no action needed: its module has the same name"
        level: Level = "warning" if doubts else "note"
        yield Finding(code="package-counterpart", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def has_extra(marker: VendorMarker, line: PipRequirement) -> bool:
    """Whether a pinned release has the marker's extra; pip ignores one that it does not have."""
    exact = re.fullmatch(r"={2,3}([^*,=]+)", line.specifier)
    pinned = to_release(exact[1]) if exact else None
    return not marker.since or pinned is None or pinned >= Version(marker.since)


def check_many_builds(target: Target) -> Iterator[Finding]:
    """Report packages with several GPU builds under one name, of which the default index has one."""
    site = target.site
    if site.vendor not in ("amd", "intel"):
        return
    known = {row.name for row in load_package_table().packages} | {*FAMILY, *TRITON}
    names = set(load_torch_table().gpu_dependent.names) - known
    for line in target.recipe.pip:
        kept = target.environment.place == "base" and line.name in target.base.provides
        pinned = find_vendor(line.specifier.partition("+")[2]) == site.vendor
        if line.name in names and not (kept or pinned or line.url or find_other_vendor(line, target=target)):
            message = f"'{line.text}' has builds for several vendors under one name; the default index has NVIDIA's"
            fix = f"check that it does what you need on {name_devices(site.vendor)}, or remove it"
            yield Finding(code="many-builds", message=message, at=locate(target.recipe, line), fix=fix, level="warning")


def check_torch_pin(target: Target) -> Iterator[Finding]:
    """Report a package that requires an exact other torch: it would replace torch, or fail to install.

    The table has some releases of a package: without a pin another one may fit, and that is a warning.
    """
    torch = target.environment.torch
    if torch is None or not torch.version:
        return
    for line in target.recipe.pip:
        if is_dropped(line, target=target) or _is_of_other_vendor(line, target=target):
            continue
        wanted = find_required_torch(line)
        if wanted and not any(item.contains(Version(torch.version).base_version) for item in wanted):
            texts, at = list(dict.fromkeys(str(item) for item in wanted)), locate(target.recipe, line)
            fix = _suggest_torch(line, texts=texts, target=target)
            if re.fullmatch(r"={2,3}[^*,]+", line.specifier):
                message = f"'{line.text}' requires torch{' or '.join(texts)}, the environment has torch {torch.version}"
                yield Finding(code="torch-pin", message=message, at=at, fix=fix)
                continue
            message = f"no release of '{line.text}' is known to fit torch {torch.version}, most require an exact torch"
            fix = (
                fix if fix.startswith("write") else f"pin the {line.name} that requires torch {torch.version}, or {fix}"
            )
            yield Finding(code="torch-pin", message=message, at=at, fix=fix, level="warning")


def _is_of_other_vendor(line: PipRequirement, *, target: Target) -> bool:
    """Whether a requirement is reported by its vendor: which torch it requires decides nothing then."""
    site, named = target.site, find_named_vendor(line)
    other = named is not None and named[0].vendor != site.vendor
    if named is None and site.vendor != "cpu" and not line.url:  # its wheel on the default index decides
        served = _find_index_vendors(line)
        other = bool(served) and site.vendor not in served
    return other or find_other_vendor(line, target=target) is not None


def _suggest_torch(line: PipRequirement, *, texts: list[str], target: Target) -> str:
    """Suggest a torch that a package requires and that the site serves, else another release of the package."""
    python = target.environment.python
    other = find_known_release(line.name, site=target.site, torch=target.environment.torch)
    served = [
        text
        for text in texts
        if any(
            SpecifierSet(text).contains(row.torch) and (python is None or python in row.pythons)
            for row in load_torch_table().releases
            if list_tokens(row, site=target.site)
        )
    ]
    if served:
        return f"write torch{served[-1]}, or {other or f'another {line.name}'}"
    known = f"write {other}" if other else ""
    known = known or suggest_known_build(line.name, site=target.site, torch=target.environment.torch)
    return known or f"use another {line.name}: '{target.site.name}' serves no torch that this one requires"


def check_package_cuda(target: Target) -> Iterator[Finding]:
    """Report a package whose name or extra names a CUDA version that the site's driver does not run."""
    site = target.site
    if site.vendor != "nvidia" or site.gpu is None:
        return
    for line in target.recipe.pip:
        if CUDA_RUNTIME.fullmatch(line.name) or find_family_name(line):
            continue
        texts = (line.name, *(f"-{extra}" for extra in line.extras), f"+{read_local(line)}")
        found = next((one for one in map(find_ending, texts) if one and one[1]), None)
        if found is None or int(found[1]) < OLDEST_CUDA or serves_cuda(f"{found[1]}.0", site=site):
            continue
        at = locate(target.recipe, line)
        if serves_cuda(f"{found[1]}.0", site=site, sure=False):
            yield report_dispute(f"'{line.text}' is built for CUDA {found[1]}", site=site, at=at)
            continue
        driver = site.gpu.driver or "not known"
        message = f"'{line.text}' is built for CUDA {found[1]}, the driver of '{site.name}' is {driver}"
        fix = f"use a build for CUDA {int(found[1]) - 1}"
        yield Finding(code="package-cuda", message=message, at=at, fix=fix)


def check_hashes(target: Target) -> Iterator[Finding]:
    """Report hashes if pip is called once: one hash makes pip require all, and the site's torch has none."""
    recipe = target.recipe
    hashed = [line for line in recipe.pip if line.hashes]
    if not target.traits.one_call or not target.environment.torch_lines or recipe.kind == "lock":
        return  # of another tool's lock `recipe lock` finds the hashes of torch, and nothing is built without them
    if hashed or recipe.pip_options.require_hashes:
        at = locate(recipe, hashed[0]) if hashed else Location(file=recipe.file)
        message = f"{target.backend} installs in one call of pip, and the file has no hash for this site's torch"
        yield Finding(code="pip-hashes", message=message, at=at, fix="remove the hashes from the file")


def check_marked_hashes(target: Target) -> Iterator[Finding]:
    """Report lines with a marker that pip refuses in a file with hashes; others are faults of the file."""
    recipe, asked = target.recipe, target.recipe.pip_options.require_hashes
    if target.environment.python is None or not (asked or any(line.hashes for line in recipe.pip)):
        return  # without a known Python the installer evaluates the markers
    for line in recipe.pip:
        if line.marker and (fault := describe_hash_fault(line, asked=asked)):
            yield Finding(code="pip-hash", message=fault[0], at=locate(recipe, line), fix=fault[1])


def check_source_hashes(target: Target) -> Iterator[Finding]:
    """Report digests of what has to be built from sources: a digest does not say whether it is of a wheel."""
    words = {str(canonicalize_name(word)) for word in target.recipe.pip_options.no_binary}
    found = [line for line in target.recipe.pip if line.hashes and not line.url and {line.name, ":all:"} & words]
    if not found or ":none:" in words or target.lock is not None:
        return
    message = f"'--no-binary' asks for sources: the digest of '{found[0].name}' has to be theirs, not that of a wheel"
    fix = "`recipe check --resolve` compares it with the index"
    yield Finding(code="pip-hash", message=message, at=locate(target.recipe, found[0]), fix=fix, level="note")


def check_torch_index(target: Target) -> Iterator[Finding]:
    """Report an index of torch wheels that is not used, because the compiler chooses the index."""
    torch = target.environment.torch
    if torch is None:
        return
    options, builds = target.recipe.pip_options, list_builds(target.environment.pip_lines)
    for url in filter(None, (options.index_url, *options.extra_index_urls, *options.find_links)):
        token = url.rstrip("/").rpartition("/")[2]
        if TORCH_HOST in url and token != torch.token and not is_kept_index(url, torch=torch, builds=builds):
            vendor = find_vendor(token)
            built = (
                f", which holds builds for {VENDOR_NAMES[vendor]}," if vendor and vendor != target.site.vendor else ""
            )
            message = f"the index '{url}'{built} is not used"
            chosen = (
                "the base image's own torch is kept"
                if torch.provided
                else f"torch {torch.local} comes from {torch.index}"
            )
            at = Location(file=target.recipe.file, line=target.recipe.lines.get("dependencies"))
            level: Level = "note"
            if "/nightly" in url:
                message, level = (
                    f"the index '{url}' holds nightly builds: a release is installed in their place",
                    "warning",
                )
                chosen = f"write the release that you need; {chosen}"
            elif vendor and vendor == target.site.vendor:
                message += ": it holds no build that fits the recipe and the driver"
            yield Finding(code="torch-index", message=message, at=at, fix=chosen, level=level)


def check_pins(target: Target) -> Iterator[Finding]:
    """Report packages without a version: a later image may contain others."""
    recipe = target.recipe
    conda = [
        spec
        for spec in recipe.conda
        if not spec.version and not spec.url and spec.name not in ("pip", "nodefaults") and not _is_chosen(spec.name)
    ]
    pip = [
        line for line in recipe.pip if line.name and not line.specifier and not line.url and not _is_chosen(line.name)
    ]
    loose = [*(spec.name for spec in conda), *(line.name for line in pip)]
    if loose:
        shown = ", ".join(loose[:6]) + (f" and {len(loose) - 6} more" if len(loose) > 6 else "")
        message = f"no version given for: {shown}; a later image may contain other versions"
        at = Location(file=recipe.file, line=conda[0].line) if conda else locate(recipe, pip[0])
        yield Finding(
            code="unpinned", message=message, at=at, fix="pin the versions that must not change", level="note"
        )


def _is_chosen(name: str) -> bool:
    """Whether the compiler chooses the version, or drops the package."""
    companion = name in COMPANIONS or find_python_name(name) in COMPANIONS
    return companion or name in load_name_table().torch_choosers or is_cuda_library(name) or name.startswith("nvidia-")


def suggest_cpu(target: Target) -> str:
    """The line that allows packages without the GPU."""
    vendors = target.recipe.container.gpu or (target.site.vendor,)
    return f"write gpu: [{', '.join([*vendors, 'cpu'])}] below container"


def locate(recipe: Recipe, line: PipRequirement) -> Location:
    return Location(file=line.file or recipe.file, line=line.line)


def name_devices(vendor: Vendor) -> str:
    """Name a vendor's devices for a message."""
    return "CPUs only" if vendor == "cpu" else f"{VENDOR_NAMES[vendor]} GPUs"
