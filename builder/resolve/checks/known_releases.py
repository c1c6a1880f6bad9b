"""Checks of pinned releases: whether the default index has them, and which Pythons have a wheel of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from packaging.version import Version

from builder.model.finding import Finding, Location
from builder.model.recipe import PipOptions, PipRequirement
from builder.model.target import Target
from builder.parse.gpu_tables import load_package_table
from builder.resolve.checks.builds import find_installed
from builder.resolve.checks.packages import find_newest_python, is_marked, locate, replace_line
from builder.resolve.checks.processor import has_own_files
from builder.resolve.checks.vendors import suggest_counterpart
from builder.resolve.conda_names import to_specifier
from builder.resolve.requested import to_release
from builder.resolve.source_releases import allows_since
from builder.resolve.tokens import find_vendor


def check_wheel_variant(target: Target) -> Iterator[Finding]:
    """Report the file of a variant wheel: installers refuse its name."""
    for line in target.recipe.pip:
        if ".whl" not in line.url:
            continue
        from builder.audit.wheel_names import drop_label, find_label

        file = unquote(line.url).partition("#")[0].rpartition("/")[2]
        if label := find_label(file):
            message = f"'{file}' is a variant wheel ('{label}'): pip and uv do not install it for another machine"
            fix = f"if `recipe inspect --gpu {file} --site {target.site.name}` finds nothing wrong, "
            fix += f"rename the file to {drop_label(file)}"
            yield Finding(code="wheel-variant", message=message, at=locate(target.recipe, line), fix=fix)


def check_other_index(target: Target) -> Iterator[Finding]:
    """Report a release that the default index does not have, where no address of the recipe has it."""
    rows = {row.package: row for row in load_package_table().other_indexes}
    options = target.recipe.pip_options
    for line in target.recipe.pip:
        row = rows.get(line.name)
        if (
            row is None
            or row.vendor != target.site.vendor
            or line.url
            or line.hashes
            or line.text not in target.environment.pip_lines
        ):
            continue
        if _has_address(options, host=row.host) or _is_below(line, since=row.since):
            continue
        message = f"'{line.text}' is not on the default index, which has {row.default}"
        fix = f"add a line before it: {row.line}"
        yield Finding(code="default-wheel", message=message, at=locate(target.recipe, line), fix=fix)


def _has_address(options: PipOptions, *, host: str) -> bool:
    """Whether an address of the recipe is of a host, or is an index of its own, whose files are not known."""
    own = (*options.extra_index_urls, *options.find_links)
    return bool(options.index_url) or any(host in url or "://" not in url for url in own)


def _is_below(line: PipRequirement, *, since: str) -> bool:
    """Whether a pin is of a release that the default index has; a line without a version gets the newest there."""
    return bool(line.specifier) and not allows_since(line.specifier, since)


def check_newest_python(target: Target) -> Iterator[Finding]:
    """Report a pinned release, written or a replacement, without a wheel for a Python as new as the environment's."""
    python, vendor, markers = target.environment.python, target.site.vendor, load_package_table().markers
    for asked in target.recipe.pip:
        line = replace_line(asked, target=target)
        newest = find_newest_python(line, python=python)
        if not newest or line.text not in target.environment.pip_lines or _find_last(line.name, line.specifier):
            continue
        if target.site.gpu is not None and any(is_marked(row, line) and row.vendor != vendor for row in markers):
            continue  # reported by its vendor
        what = f"'{line.text}'" if line is asked else f"'{asked.text}' is replaced by '{line.text}', which"
        message = f"{what} has no wheel for Python {python}: the newest one that it has is for Python {newest}"
        right = {"conda": f"python={newest}", "project": f'requires-python = "=={newest}.*"'}
        right_line = right.get(target.recipe.kind, f"python={newest} in an environment.yml")
        fix = f"write {right_line}, or choose a newer {line.name}"
        fix += "" if line is asked else f" in place of {asked.name}"
        yield Finding(code="default-wheel", message=message, at=locate(target.recipe, asked), fix=fix)


def check_last_release(target: Target) -> Iterator[Finding]:
    """Report a pin above the last release of a series that its project has closed: no index has it."""
    recipe = target.recipe
    own_channels = {*target.environment.channels} - {"conda-forge", "nodefaults", "defaults", "nvidia"}
    asked = [
        (spec.name, to_specifier(spec.version) or "", spec.text, Location(file=recipe.file, line=spec.line))
        for spec in recipe.conda
        if not spec.url and not spec.channel and not own_channels
    ]
    asked += [
        (line.name, line.specifier, line.text, locate(recipe, line))
        for line in recipe.pip
        if not line.url and not has_own_files(recipe.pip_options)
    ]
    for name, specifier, text, at in asked:
        if found := _find_last(name, specifier):
            pin, last = found
            series = last.rpartition(".")[0]
            message = f"'{text}' does not exist: the last release of {name} {series} is {last}"
            yield Finding(code="release-missing", message=message, at=at, fix=f"write {text.replace(pin, last, 1)}")


def _find_last(name: str, specifier: str) -> tuple[str, str] | None:
    """Find a pinned release that is above the last one of its closed series, and that one; None for others."""
    pin = re.fullmatch(r"={2,3}([\d.]+?)(?:\.\*)?", specifier)
    release = to_release(pin[1]) if pin else None
    if pin is None or release is None:
        return None
    last = load_package_table().last_releases.get(name, {}).get(f"{release.major}.{release.minor}")
    return (pin[1], last) if last is not None and release > Version(last) else None


def check_empty_release(target: Target) -> Iterator[Finding]:
    """Report a requirement that only a release without anything to install fits, or gets as the newest one."""
    table, site = load_package_table(), target.site
    for line in target.recipe.pip:
        since = table.empty_since.get(line.name)
        if since is None or line.url or site.vendor not in ("nvidia", "cpu") or not allows_since(line.specifier, since):
            continue
        if has_own_files(target.recipe.pip_options) or line.text not in target.environment.pip_lines:
            continue
        message = f"'{line.text}' cannot be installed: from {since} on, {line.name} is a source file whose build fails"
        name = line.name.removesuffix("-gpu")
        fix = f"write {name}{'[and-cuda]' if site.vendor == 'nvidia' else ''}"
        if any(row.name == name and row.cpu_only == site.node.arch for row in table.packages):
            fix = suggest_counterpart(name, site=site, environment=target.environment)
        yield Finding(code="default-wheel", message=message, at=locate(target.recipe, line), fix=fix)


def check_missing_plugin(target: Target) -> Iterator[Finding]:
    """Report a pinned release with an extra whose plug-in the default index does not have for that release."""
    rows = load_package_table().missing_plugins
    for line in target.recipe.pip:
        pin = re.fullmatch(r"={2,3}([\d.]+?)(?:\.\*)?", line.specifier)
        row = next((row for row in rows if row.package == line.name and row.extra in line.extras), None)
        if row is None or pin is None or line.text not in target.environment.pip_lines:
            continue
        if not Version(row.after) < Version(pin[1]) < Version(row.before) or has_own_files(target.recipe.pip_options):
            continue
        message = f"'{line.text}' cannot be installed: "
        message += f"the index has no plug-in for it between {row.after} and {row.before}"
        fix = suggest_counterpart(line.name, site=target.site, environment=target.environment)
        yield Finding(code="default-wheel", message=message, at=locate(target.recipe, line), fix=fix)


def check_wheel_python(target: Target) -> Iterator[Finding]:
    """Report a vendor's build of a package that has wheels for other Pythons only."""
    python, vendor = target.environment.python, target.site.vendor
    for line, row in find_installed(target):
        known = row.pythons.get(vendor, ())
        if known and python and python not in known and find_vendor(line.specifier.partition("+")[2]) == vendor:
            wanted = " and ".join(known)
            message = f"'{line.text}' has wheels for Python {wanted} only, and the environment has Python {python}"
            fix = f"write python={known[-1]} in an environment.yml, or choose a base image with Python {wanted}"
            yield Finding(code="default-wheel", message=message, at=locate(target.recipe, line), fix=fix)


def check_retired(target: Target) -> Iterator[Finding]:
    """Report a package that its maintainers have abandoned."""
    for line, row in find_installed(target):
        if row.retired:
            message = f"'{line.text}' was abandoned by its maintainers: {row.retired}"
            fix = f"remove it: {row.instead} replaces it"
            at = locate(target.recipe, line)
            yield Finding(code="package-retired", message=message, at=at, fix=fix, level="warning")


def check_one_module(target: Target) -> Iterator[Finding]:
    """Report packages that provide the same module: the last one installed overwrites the others."""
    installed = [re.split(r"[\[ =<>!~;@]", text)[0] for text in target.environment.pip_lines]
    for row in load_package_table().packages:
        found = sorted({name for name in installed if name in (row.name, *row.shares)}) if row.shares else []
        if len(found) > 1:
            message = f"{' and '.join(found)} install the same module: one overwrites the other in part"
            line = next((line for line in target.recipe.pip if line.name in found), None)
            at = locate(target.recipe, line) if line else None
            yield Finding(code="one-module", message=message, at=at, fix="keep one of them", level="warning")
