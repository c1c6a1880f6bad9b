"""recipe inspect: show what is inside an image, without running it."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from builder import __version__
from builder.cli.image_arguments import read_image, warn_of_unknown
from builder.cli.inputs import add_plain_verbosity
from builder.cli.options import add_former_flag
from builder.cli.output import SCHEMA, color_word, echo, emit_document, format_columns, format_option, json_option
from builder.inspect.attestations import is_sbom
from builder.inspect.attestations import make_sbom as bill
from builder.inspect.integrity import Claim, check_claims, find_uncovered
from builder.model.contents import Contents, InstalledPackage, PackageKind, TorchBuild
from builder.model.finding import DifferentError, Finding, Location
from builder.model.text import escape_line, format_bytes
from builder.system.files import check_reachable
from builder.system.trust import read_to_show

WORDS: dict[PackageKind, str] = {"conda": "conda", "pip": "Python (pip)", "deb": "Debian", "rpm": "rpm"}


@click.command("inspect")
@click.argument("image", type=click.Path(path_type=Path))
@format_option
@json_option
@click.option("--sbom", type=click.Path(path_type=Path), metavar="FILE", help="Write an SBOM (CycloneDX).")
@add_former_flag("--verify", new="integrity")
@click.option(
    "--integrity",
    is_flag=True,
    help="Check IMAGE against its SBOM, provenance and signature: exit code 8 on a mismatch.",
)
@click.option("--gpu", is_flag=True, help="Show which GPUs its packages can use, as their files tell.")
@click.option("--site", metavar="SITE", help="With --gpu: judge that for a site, exit code 6 if one is wrong.")
@click.option("-a", "--all", "everything", is_flag=True, help="List the distribution's packages (deb, rpm) too.")
@add_plain_verbosity
def run_command(
    image: Path, shape: str, as_json: bool, sbom: Path | None, integrity: bool, gpu: bool, site: str | None,
    everything: bool,
) -> None:  # fmt: skip
    """Show what is inside IMAGE: base, labels, layers, packages, torch, signatures. Nothing in it is run.

    IMAGE is a SIF, a squashfs file, a docker-archive, a folder of Tykky or an unpacked image, made by any tool. With
    --gpu it can be a wheel, a conda package or any folder, too.
    """
    if gpu or site is not None:
        _check_gpu_options(gpu, {"--sbom": sbom is not None, "--integrity": integrity})
        from builder.cli.inspect_gpu import show_gpu  # what it reads with is needed here alone

        show_gpu(image, site_name=site, as_json=as_json or shape == "json")
        return
    check_reachable(image)
    if integrity:
        if sbom is not None:
            raise click.UsageError("--sbom does not go with --integrity")
        with read_to_show():
            claims = check_claims(image, environment=os.environ)
        show_claims(image, claims, as_json=as_json or shape == "json")
        return
    if sbom is None:
        contents = read_image(image, command="inspect")
        warn_of_unknown(contents)
    else:
        from builder.cli.paths import OutputFile

        inputs = [("the image", image)]
        file = OutputFile(path=sbom, what="an SBOM", is_own=is_sbom, option="--sbom", inputs=inputs)
        file.check()  # first: to read an image takes long
        contents = read_image(image, command="inspect")
        file.write(bill(contents, name=contents.image, tool=f"recipe {__version__}"))
        echo(f"SBOM: {sbom}", err=True)
    if as_json or shape == "json":
        emit_document(describe_contents(contents))
    else:
        echo(format_contents(contents, everything))


def _check_gpu_options(gpu: bool, others: dict[str, bool]) -> None:
    if not gpu:
        raise click.UsageError("--site goes with --gpu")
    for name, given in others.items():
        if given:
            raise click.UsageError(f"{name} does not go with --gpu")


def show_claims(image: Path, claims: Sequence[Claim], *, as_json: bool) -> None:
    """Print the result of each check; raises DifferentError if one failed or there is nothing to check."""
    bad = [claim for claim in claims if claim.verdict == "BAD"]
    partial = find_uncovered(claims)
    if as_json:
        rows = [dataclasses.asdict(claim) for claim in claims]
        emit_document({"image": image.name, "ok": bool(claims) and not bad and not partial, "claims": rows})
    elif claims:
        echo(format_columns([(color_word(claim.verdict), claim.what) for claim in claims]))
    if bad:
        message = f"'{image}' does not match its SBOM, provenance or signature: {bad[0].what}"
        fix = "build it again, or copy the image, its SBOM and its provenance from one place"
    elif not claims:
        message = f"'{image}' has no SBOM, provenance or signature to check it against"
        fix = f"put {image.name}.provenance.json and {image.name}.cdx.json of the build next to it"
    elif partial:
        message = f"'{image}' could be checked in part only: {partial}"
        fix = f"put {image.name}.provenance.json of the build next to it"
    else:
        return
    raise DifferentError(Finding(code="claims", message=message, at=Location(file=str(image)), fix=fix))


def describe_contents(contents: Contents) -> dict[str, Any]:
    """Make the JSON document (docs/inspect.md)."""
    return {"schema": SCHEMA, **dataclasses.asdict(contents)}


def format_contents(contents: Contents, everything: bool) -> str:
    """Write the contents as blocks of text."""
    facts = [("kind", f"{contents.kind} {contents.arch}".strip()), ("size", format_bytes(contents.size))]
    facts += [("base", contents.base)] if contents.base else []
    facts += [("system", contents.distribution)] if contents.distribution else []
    facts += [("torch", format_torch(contents))] if contents.torch else []
    facts += [("SBOM", "inside")] if contents.sbom else []
    facts += [("signed", f"{item.covers}, key {item.fingerprint or 'in a file'}") for item in contents.signatures]
    blocks = [escape_line(contents.image) + "\n" + format_columns([(f"  {name}", value) for name, value in facts])]
    if contents.parts:
        parts = [
            (f"  {part.name}", format_bytes(part.size).rjust(9), part.kind, part.compression) for part in contents.parts
        ]
        blocks.append("parts\n" + format_columns(parts))
    if contents.labels:
        blocks.append("labels\n" + format_columns([(f"  {name}", value) for name, value in contents.labels.items()]))
    counts = Counter(package.kind for package in contents.packages)
    for kind, word in WORDS.items():
        listed = kind in ("conda", "pip") or everything
        rows = [_make_row(package) for package in contents.packages if package.kind == kind] if listed else []
        if counts[kind]:
            head = f"{word}: {counts[kind]} packages" + ("" if listed else " (--all lists them)")
            blocks.append("\n".join([head, *([format_columns(rows)] if rows else [])]))
    if contents.unknown:
        blocks.append("\n".join(["not known", *(f"  {escape_line(line)}" for line in contents.unknown)]))
    return "\n\n".join(blocks)


def format_torch(contents: Contents) -> str:
    """Every torch with the GPUs it was built for."""
    return "; ".join(
        " ".join([build.version, *(f"{name} {value}" for name, value in _list_vendors(build) if value)])
        for build in contents.torch
    )


def _list_vendors(build: TorchBuild) -> list[tuple[str, str]]:
    return [("CUDA", build.cuda), ("ROCm", build.hip), ("XPU", build.xpu)]


def _make_row(package: InstalledPackage) -> tuple[str, str, str]:
    from_where = f"{package.channel}/{package.subdir} {package.build}" if package.kind == "conda" else package.arch
    return f"  {package.name}", package.version, from_where.strip("/ ") or package.place
