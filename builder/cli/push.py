"""recipe push: an image into a registry, with its SBOM and its provenance."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from builder.cli.file_kinds import list_images
from builder.cli.help import GroupedCommand
from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import echo, emit, is_quiet
from builder.cli.paths import check_existing, explain_kind, replace_image
from builder.cli.typed import quote
from builder.execute.registry_upload import Document, SifToPush, Upload
from builder.inspect.attestations import is_sbom, name_attestations
from builder.inspect.integrity import check_claims
from builder.layers.registry import LOOPBACK, RegistryError, find_login
from builder.model.finding import ConfigError, DifferentError, Finding, Location, StepError
from builder.model.text import escape_line, format_bytes, sanitize
from builder.sif.sif import SifError, read_sif

SCHEME = "oras://"
HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:))(?::[0-9]{1,5})?"
PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
# https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#pulling-manifests
REFERENCE = re.compile(rf"{HOST}/{PART}(?:/{PART})*:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}")
KINDS = {True: "application/vnd.cyclonedx+json", False: "application/vnd.in-toto+json"}  # SBOM, provenance
LARGEST = 64 << 20  # bytes of an SBOM


@click.command("push", cls=GroupedCommand)
@click.argument("image", type=click.Path(path_type=Path))
@click.argument("reference", metavar="REFERENCE", default="")
@click.option("-f", "--force", is_flag=True, help="Give the tag to this image where another one has it.")
@click.option("-n", "--dry-run", "dry_run", is_flag=True, help="Print what would be sent, and ask no server.")
@add_plain_verbosity
def run_command(image: Path, reference: str, force: bool, dry_run: bool) -> None:
    """Push IMAGE, a SIF, to a registry as `apptainer pull oras://...` reads it; SBOM and provenance are attached.

    REFERENCE is oras://HOST/NAME:TAG. The login is that of `apptainer registry login` or `docker login`. What the
    registry has already is not sent again.
    """
    if not reference:
        raise _make_short_error(image)
    name = read_reference(reference)
    _check_image(image)
    documents = tuple(_read_documents(image))
    added = f" with {' and '.join(document.name for document in documents)}" if documents else ""
    _say(f"{image}: {format_bytes(image.stat().st_size)} to {SCHEME}{name}{added}")
    if not added:
        _say(f"note: there is no SBOM and no provenance next to {image}: it is pushed alone")
    if dry_run:
        return
    digest = push(image, name, documents=documents, force=force)
    emit(f"{SCHEME}{name.rpartition(':')[0]}@{digest}")
    plain = "--no-https " if LOOPBACK.fullmatch(name.partition("/")[0].rpartition(":")[0]) else ""
    _say(f"next: apptainer pull {plain}{quote(image.name)} {SCHEME}{name}")


def _make_short_error(only: Path) -> ConfigError:
    """The error for one argument in the place of two."""
    if str(only).startswith(("oras:", "docker:")):
        images = list_images()
        fix = f"write the image before it: {images[0]}" if images else "write the image before it"
        return ConfigError(Finding(code="usage", message="no image is named", fix=fix))
    fix = f"write it after the image, as in {SCHEME}ghcr.io/me/demo:1.0"
    return ConfigError(Finding(code="usage", message="no registry is named", fix=fix))


def _check_image(image: Path) -> None:
    """Raise ConfigError for a path that is no SIF."""
    path = check_existing(image, what="image")
    try:
        if path.is_dir():
            raise SifError("is a folder")
        read_sif(path)
    except SifError as error:
        message = f"'{sanitize(str(image), limit=400)}' is no SIF image: {error}"
        at, fix = Location(file=str(image)), "build it again, or name another image"
        finding = Finding(code="path-special", message=message, at=at, fix=fix)
        here = list_images()
        finding = explain_kind(finding, image, command="push", takes="a SIF image", here=here)
        fix = f"`{replace_image(image, here[0])}`" if here else finding.fix
        raise ConfigError(replace(finding, fix=fix)) from None


def read_reference(text: str) -> str:
    """Return HOST/NAME:TAG; raises ConfigError for anything else."""
    name = text.removeprefix(SCHEME)
    if REFERENCE.fullmatch(name):
        return name
    shown = sanitize(re.sub(r"//[^/@\s]+@", "//", text), limit=200)
    fix = f"write it as {SCHEME}HOST/NAME:TAG, in small letters, as in {SCHEME}ghcr.io/me/demo:1.0"
    if "@" in text:
        fix += "; a login is no part of it (`apptainer registry login`)"
    raise ConfigError(Finding(code="option-value", message=f"'{shown}' is no name of an image in a registry", fix=fix))


def push(image: Path, name: str, *, documents: tuple[Document, ...], force: bool) -> str:
    """Push an image and what is attached to it; return the digest of its manifest. Raises StepError and ConfigError."""
    host = name.partition("/")[0]
    upload = Upload(name, logins=partial(find_login, environment=os.environ))
    try:
        before = upload.find_digest()
        sif = SifToPush.read(image)
        digest = str(sif.entry["digest"])
        if before and before != digest and not force:
            message = f"'{SCHEME}{name}' is another image already ({before[:19]})"
            fix = "choose another tag, or give --force to move it to this image"
            raise ConfigError(Finding(code="output-exists", message=message, fix=fix))
        if before == digest:
            _say("the registry has it already")
        else:
            upload.push_image(sif, report=_make_report(image))
        for document in documents:
            upload.attach(document, to=sif.entry)
    except RegistryError as error:
        raise _make_error(str(error), host=host) from None
    except OSError as error:
        if error.filename is not None:
            raise
        raise _make_error(f"the registry could not be reached: {error}", host=host) from None
    return digest


def _read_documents(image: Path) -> Iterator[Document]:
    """The SBOM and the provenance next to an image; raises DifferentError where they are of another one."""
    paths = [path for path in name_attestations(image) if path.is_file() and path.stat().st_size <= LARGEST]
    if not paths:
        return
    wrong = [claim for claim in check_claims(image, environment=os.environ) if claim.verdict == "BAD"]
    if wrong:
        message = f"what is next to '{image}' does not belong to it: {wrong[0].what}"
        fix = f"see `recipe inspect {quote(str(image))} --integrity`, and push what belongs together"
        raise DifferentError(Finding(code="not-the-same", message=message, at=Location(file=str(image)), fix=fix))
    for path in paths:
        content = path.read_bytes()
        yield Document(name=path.name, kind=KINDS[is_sbom(content[:65536])], content=content)


def _make_report(image: Path) -> Callable[[int], None]:
    """Print every tenth of a large image."""
    size, shown = max(image.stat().st_size, 1), [0]

    def report(done: int) -> None:
        tenth = 10 * done // size
        if tenth > shown[0] and size > 100 << 20:
            shown[0] = tenth
            _say(f"sent {format_bytes(done)} of {format_bytes(size)}")

    return report


def _make_error(text: str, *, host: str) -> StepError:
    if "401" in text or "403" in text or "login" in text:
        fix = f"log in and push again: `apptainer registry login --username NAME docker://{host}`"
        return StepError(Finding(code="unauthorized", message=f"{host}: {text}", fix=fix))
    fix = "push where it can be reached, or set https_proxy (check it if it is set)"
    return StepError(Finding(code="no-network", message=f"{host}: {text}", fix=fix))


def _say(text: str) -> None:
    if not is_quiet():
        echo(escape_line(text), err=True)
