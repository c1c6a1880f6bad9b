"""recipe inspect --gpu: which GPUs packages can use, by what their files say, and what that is on a site."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builder.audit.binary import Binary
from builder.audit.content import AuditError
from builder.audit.device_code import Code
from builder.audit.distribution import Distribution, Inventory
from builder.audit.elf import parse_version
from builder.audit.gpu_verdict import NAMES, STACKS, Machine, Verdict, find_majors, find_vendors, judge
from builder.cli.inputs import find_sites_folder
from builder.cli.output import StyledText, color_word, echo, emit_document, format_columns
from builder.model.finding import ConfigError, Finding, GpuError, Location
from builder.model.site import Site
from builder.model.text import escape_line, exists, sanitize
from builder.parse.site import load_site
from builder.parse.yaml import suggest_path
from builder.resolve.driver import make_machine
from builder.sif.archive import is_archive
from builder.system.files import check_reachable

KINDS = "a wheel, a conda package, a folder, a SIF, a squashfs file or a docker-archive"
PACKED = ("wheel", "conda")  # kinds that are one package
TYKKY = ("container.sif", "img.sqfs")  # the parts of one of its folders


def read_inventory(path: Path) -> Inventory:
    """Read every ELF file of what a path names; raises ConfigError where it is nothing that the audit reads."""
    check_reachable(path)
    name = sanitize(str(path), limit=400)
    if not exists(path):
        fix = suggest_path(path, other=f"give the path of {KINDS}")
        raise _make_error("path-missing", f"'{name}' does not exist", path, fix=fix)
    try:
        return _read_source(path)
    except AuditError as error:
        message = f"'{name}' cannot be read: {sanitize(str(error), limit=400)}"
        raise _make_error("audit-unreadable", message, path) from None


def _read_source(path: Path) -> Inventory:
    # One of them is used: the others need not be imported.
    if path.is_dir() and (parts := [part for name in TYKKY if (part := path / name).is_file()]):
        from builder.audit.images import read_image

        return read_image(*parts)
    if path.is_dir():
        from builder.audit.installed import read_folder

        return read_folder(path)
    if path.suffix in (".whl", ".zip"):
        from builder.audit.package_archives import read_wheel

        return read_wheel(path)
    if path.name.endswith((".conda", ".tar.bz2")):
        from builder.audit.package_archives import read_conda

        return read_conda(path)
    if is_archive(path):
        from builder.audit.images import read_archive

        return read_archive(path)
    from builder.audit.images import read_image

    return read_image(path)


def check_whole(inventory: Inventory, path: Path) -> None:
    """Raise ConfigError for a package with a file that cannot be read: no site can be judged by the rest of it."""
    if inventory.kind not in PACKED or not inventory.unread:
        return
    one, name = inventory.unread[0], sanitize(str(path), limit=400)
    message = f"'{name}' is damaged: {sanitize(one.path, limit=200)}: {sanitize(one.reason, limit=200)}"
    raise _make_error("audit-unreadable", message, path, fix="download or build the package again")


def _make_error(code: str, message: str, path: Path, *, fix: str = f"give the path of {KINDS}") -> ConfigError:
    return ConfigError(Finding(code=code, message=message, at=Location(file=sanitize(str(path), limit=400)), fix=fix))


PACKAGES = ("pip", "conda")


def _read(path: Path) -> Inventory:
    """Read what is to be judged; of a missing path the fix names no file of another kind."""
    try:
        return read_inventory(path)
    except ConfigError as error:
        from builder.cli.file_kinds import find_kind
        from builder.cli.paths import suggest_image
        from builder.parse.yaml import find_near_path

        near = "" if exists(path) else find_near_path(path)
        if near and find_kind(Path(near)) not in ("an image", "an archive", "a folder", "a file of another kind"):
            raise ConfigError(
                *(dataclasses.replace(finding, fix=suggest_image(path)) for finding in error.findings)
            ) from None
        raise


def show_gpu(path: Path, *, site_name: str | None, as_json: bool) -> None:
    """Print what the files say; with a site raises GpuError where a package cannot use its GPU."""
    site = load_site(site_name, folder=find_sites_folder()) if site_name else None
    if path.name.endswith("-variants.json") and path.is_file():
        from builder.cli.inspect_variants import show_variants

        show_variants(path, site, as_json=as_json)
        return
    inventory = _read(path)
    machine = make_machine(site) if site is not None else None
    verdicts = judge(inventory, machine) if machine is not None else ()
    if as_json:
        emit_document(describe_audit(path, inventory, site, machine, verdicts))
    else:
        echo(format_audit(path, inventory, site, machine, verdicts))
    if site is not None:
        check_whole(inventory, path)
    if site is not None and (bad := [verdict for verdict in verdicts if verdict.wrong]):
        raise GpuError(*(make_finding(verdict, site) for verdict in bad))


def make_finding(verdict: Verdict, site: Site) -> Finding:
    """One package that cannot use the site's GPU."""
    message = f"'{verdict.name}' is wrong for '{site.name}': {verdict.reason}"
    if verdict.says == "CPU only":
        fix = f"install the build of {verdict.name} for {NAMES[site.vendor]} GPUs, or leave it out"
    elif verdict.says == "library missing in the image":
        fix = "install what is missing, or use a base image that has it"
    else:
        fix = f"leave it out, or install a build for this site: `recipe sites {site.name}` shows its GPU and driver"
    return Finding(code="gpu-audit", message=escape_line(message), at=Location(file=escape_line(verdict.file)), fix=fix)


def describe_audit(
    path: Path, inventory: Inventory, site: Site | None, machine: Machine | None, verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Everything as plain data (docs/gpu-audit.md)."""
    found: dict[str, Any] = {
        "source": path.name,
        "kind": inventory.kind,
        "glibc": inventory.glibc,
        "distributions": [_describe_distribution(one) for one in inventory.distributions],
        "unread": [dataclasses.asdict(one) for one in inventory.unread],
    }
    if site is not None and machine is not None:
        found["site"] = {"name": site.name, **dataclasses.asdict(machine)}
        damaged = bool(inventory.unread) and inventory.kind in PACKED
        found["ok"] = not damaged and not any(verdict.wrong for verdict in verdicts)
        found["verdicts"] = [
            {
                "verdict": verdict.says,
                **{key: value for key, value in dataclasses.asdict(verdict).items() if key != "says"},
            }
            for verdict in verdicts
        ]
    return found


def _describe_distribution(one: Distribution) -> dict[str, Any]:
    files = [_describe_file(binary) for binary in one.binaries]
    return {
        "kind": one.kind, "name": one.name, "version": one.version, "python": one.python, "tags": one.tags,
        "files": [row for row in files if row is not None], "elf_files": len(one.binaries),
        "glibc": find_newest_glibc(one.binaries), "variant": one.variant, "features": one.features,
    }  # fmt: skip


def _describe_file(binary: Binary) -> dict[str, Any] | None:
    """A file that has to do with a GPU, or could not be read."""
    if not (binary.linked or binary.code or binary.opened or binary.fault):
        return None
    return {
        "path": binary.path, "size": binary.size, "machine": binary.machine, "glibc": binary.glibc,
        "python": binary.python, "needs": [dataclasses.asdict(runtime) for runtime in binary.linked],
        "opens": binary.opened, "code": [dataclasses.asdict(code) for code in binary.code], "fault": binary.fault,
    }  # fmt: skip


def find_newest_glibc(binaries: Sequence[Binary]) -> str:
    """The newest version that some file needs."""
    return max((binary.glibc for binary in binaries), key=parse_version, default="")


def format_audit(
    path: Path, inventory: Inventory, site: Site | None, machine: Machine | None, verdicts: Sequence[Verdict]
) -> str:
    """Everything as text: with a site a verdict for each package, else what its files hold."""
    files = sum(len(one.binaries) for one in inventory.distributions)
    system = f", glibc {inventory.glibc}" if inventory.glibc else ""
    blocks: list[str] = [f"{escape_line(path.name)}: {inventory.kind}, {files} ELF files{system}"]
    if site is not None and machine is not None:
        blocks += _format_verdicts(site, machine, verdicts)
    else:
        blocks += _format_inventory(inventory)
    if inventory.unread:
        rows = [(f"  {one.path}", one.reason) for one in inventory.unread]
        blocks.append(StyledText("not read\n" + format_columns(rows)))
    return StyledText("\n\n".join(block if isinstance(block, StyledText) else escape_lines(block) for block in blocks))


def escape_lines(text: str) -> str:
    """Lines of which each is one, whatever is in it."""
    return "\n".join(escape_line(line) for line in text.split("\n"))


def _format_verdicts(site: Site, machine: Machine, verdicts: Sequence[Verdict]) -> list[str]:
    gpu = " ".join((NAMES[machine.vendor], *machine.targets))
    stack = STACKS.get(machine.vendor) if machine.vendor != "cpu" else None
    serves = f", the driver serves {stack} {', '.join(map(str, machine.majors))}" if stack and machine.majors else ""
    head = f"site {site.name}: {gpu}{serves}"
    # Files of the base image that need no GPU say nothing of the recipe.
    rows = [one for one in verdicts if one.kind in PACKAGES and (one.says != "CPU only" or one.wrong or one.variant)]
    rows.sort(key=lambda verdict: (not verdict.wrong, verdict.name.lower()))
    table = [
        (color_word("BAD" if one.wrong else "ok"), one.says, f"{one.name} {one.version}", one.reason) for one in rows
    ]
    plain = sum(one.kind in PACKAGES and one not in rows for one in verdicts)
    blocks = [escape_lines(head), *([format_columns(table)] if table else [])]
    return [*blocks, *([f"{format_count(plain, 'package')} with ELF files and no need of a GPU"] if plain else [])]


def _format_inventory(inventory: Inventory) -> list[str]:
    blocks: list[str] = []
    plain = 0
    for one in inventory.distributions:
        rows = _make_rows(one)
        if rows:
            newest = find_newest_glibc(one.binaries)
            about = f"{one.name} {one.version}".strip() + (f", glibc {newest}" if newest else "")
            blocks.append(StyledText(escape_line(about) + "\n" + format_columns(rows)))
        else:
            plain += 1
    return [
        *blocks,
        *([f"{format_count(plain, 'package or folder')} with ELF files and no need of a GPU"] if plain else []),
    ]


def _make_rows(one: Distribution) -> list[tuple[str, str, str]]:
    """A row for each vendor: the versions of its runtime, and the targets of the device code."""
    rows = []
    for vendor in ("nvidia", "amd", "intel"):
        own = [binary for binary in one.binaries if vendor in find_vendors(binary)]
        if not own:
            continue
        majors = sorted({major for binary in own for major in find_majors(binary, vendor)})
        stack = STACKS[vendor]
        said = ", ".join(f"{stack} {major}".replace("20 ", "20") for major in majors) or f"{stack.split()[0]} ?"
        code = {item for binary in own for item in binary.code if item.vendor == vendor}
        rows.append((f"  {NAMES[vendor]}", said, ", ".join(_list_targets(code)) or "no device code"))
    opened = sorted({name for binary in one.binaries for name in binary.opened})
    rows += [(f"  variant {one.variant}", key, ", ".join(values)) for key, values in one.features.items()]
    return [*rows, *([("  opens", "when it runs", ", ".join(opened))] if opened else [])]


def _list_targets(code: set[Code]) -> list[str]:
    """The targets by kind and number, sm_90 before sm_100; of PTX with its versions."""
    found: dict[str, list[str]] = {}
    for one in sorted(code, key=_make_sort_key):
        found.setdefault(one.target, []).extend([one.isa] if one.isa else [])
    return [f"{target} (PTX {_format_span(versions)})" if versions else target for target, versions in found.items()]


def _format_span(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _make_sort_key(code: Code) -> tuple[str, int, str, tuple[int, ...]]:
    digits = "".join(filter(str.isdigit, code.target.partition("-")[0]))
    return code.kind, int(digits or 0), code.target, parse_version(code.isa)


def format_count(count: int, noun: str) -> str:
    """A number of things in words."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} " + " or ".join(f"{word}s" for word in noun.split(" or "))
