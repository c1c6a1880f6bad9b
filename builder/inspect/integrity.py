"""Checks an image against the records in it and next to it. Nothing of the image is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from builder.inspect.attestations import BILL, PROVENANCE
from builder.inspect.origin import read_image_plan, read_image_report, read_made_of, read_plan_digest
from builder.inspect.sif_objects import SBOM, SIGNATURE
from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import sanitize, to_dict, to_list, to_text
from builder.sif.bounded import hash_file, hash_file_part, parse_json, read_file, read_json
from builder.sif.sif import INSPECT, LARGEST, Sif, SifError, list_layers, read_object, read_sif
from builder.system.layout import KEPT_FILE, MADE_OF, REPORT_FILE, plan_folder
from builder.system.process import capture, find_program

LAYERS = "recipe.layers"  # the label
SECONDS = 600.0  # for the engine to read the image
PART = "all of it but its layers"  # what no digest that is known covers
Verdict = Literal["ok", "BAD", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim about an image, and whether it is true."""

    verdict: Verdict
    what: str


def check_claims(image: Path, *, environment: Mapping[str, str]) -> tuple[Claim, ...]:
    """Check every claim; empty where nothing claims anything. Raises ConfigError.

    One of PART is `unknown` where no digest and no signature covers the whole image.
    """
    try:
        sif = read_sif(image)
        too_large = next((item for item in sif.objects if item.kind == SBOM and item.size > LARGEST), None)
        if too_large is not None:  # before hours are spent on the digest of the whole
            raise SifError(f"the bill of materials inside has {too_large.size} bytes, {LARGEST} at most are read")
        claims = tuple(_check_sif(image, sif, environment=environment))
        return claims if len(claims) > 1 or claims[0].verdict != "unknown" else ()
    except (SifError, OSError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        message, fix = f"'{image}' cannot be checked: {reason.lower()}", "name a SIF image"
        raise ConfigError(
            Finding(code="image-unreadable", message=message, at=Location(file=str(image)), fix=fix)
        ) from None


def find_uncovered(claims: Sequence[Claim]) -> str:
    """What of an image no claim covers, "" where one covers all of it."""
    return next((claim.what for claim in claims if claim.verdict == "unknown" and claim.what.startswith(PART)), "")


def _check_sif(image: Path, sif: Sif, *, environment: Mapping[str, str]) -> Iterator[Claim]:
    folder = plan_folder(image)
    report, provenance = _read(folder / REPORT_FILE), _read(image.with_name(image.name + PROVENANCE))
    known, kept = read_image_report(folder, image) if folder.is_dir() else ({}, False)
    name = f"{folder.name}/{KEPT_FILE if kept else REPORT_FILE}"
    if kept:  # a later build was stopped or has failed: its report is not of this image
        report = known
    digest, whole = hash_file(image) if report or provenance is not None else "", False
    if report and report.get("image_sha256"):
        whole = True
        yield _compare_values(f"sha256 in {name}", report["image_sha256"], digest)
    if provenance is not None:
        whole = True
        named = [to_dict(to_dict(one).get("digest")).get("sha256") for one in to_list(provenance.get("subject"))]
        yield _compare_values(f"sha256 in {image.name}{PROVENANCE}", named[0] if len(named) == 1 else None, digest)
    plan = read_image_plan(image)
    yield from _check_plans(plan, {name: report}, provenance=provenance, image=image)
    yield from _check_sbom(image, sif)
    if kept:
        yield Claim(verdict="unknown", what=f"{folder.name} holds the plan and the logs of a later build that failed")
        yield from _check_layers(image, sif, made_of=read_made_of(folder))
    elif plan and read_plan_digest(folder) not in ("", plan):
        yield Claim(
            verdict="unknown", what=f"{folder.name} holds another plan by now: what it says is not of this image"
        )
        yield from _check_layers(image, sif, made_of=None)
    else:
        yield from _check_layers(image, sif, made_of=_read(folder / MADE_OF))
    if any(item.kind == SIGNATURE for item in sif.objects):
        whole = True
        yield _check_signature(image, environment=environment)
    if not whole:
        what = f"{PART}: no digest of it is known without {image.name}{PROVENANCE}"
        yield Claim(verdict="unknown", what=what)


def _check_plans(
    inside: str, reports: Mapping[str, Mapping[str, Any] | None], *, provenance: Mapping[str, Any] | None, image: Path
) -> Iterator[Claim]:
    """The plan that the image names, against the plans of its report and its provenance."""
    said = {name: (report or {}).get("plan") for name, report in reports.items()}
    with suppress(KeyError, TypeError):
        definition = (provenance or {})["predicate"]["buildDefinition"]
        said[f"{image.name}{PROVENANCE}"] = definition["internalParameters"].get("plan")
    for name, digest in said.items():
        if inside and digest == inside:
            yield Claim(verdict="ok", what=f"{name} is of the plan that the image was made from")
        elif inside and digest:
            what = f"{name} is of another plan than the image: a build was ended before it wrote it"
            yield Claim(verdict="BAD", what=what)


def _compare_values(what: str, said: Any, found: str) -> Claim:
    if said == found:
        return Claim(verdict="ok", what=f"{what} is the image's")
    told = to_text(said, limit=80) or ("no text" if said else "not there")
    return Claim(verdict="BAD", what=f"{what} is {told}, the image's is {found}")


def _check_sbom(image: Path, sif: Sif) -> Iterator[Claim]:
    """The bill of materials inside against the file next to the image."""
    outside, inside = image.with_name(image.name + BILL), [item for item in sif.objects if item.kind == SBOM]
    if not inside:
        return
    try:
        same = read_file(outside, limit=LARGEST) == read_object(image, inside[0])
    except ValueError:
        same = False
    except FileNotFoundError:
        yield Claim(
            verdict="unknown", what=f"the bill of materials inside: there is no {outside.name} to compare it with"
        )
        return
    if same:
        yield Claim(verdict="ok", what=f"{outside.name} is the bill of materials inside")
    else:
        yield Claim(verdict="BAD", what=f"{outside.name} is not the bill of materials inside")


def _check_layers(image: Path, sif: Sif, *, made_of: Mapping[str, Any] | None) -> Iterator[Claim]:
    """The layers against the image's own label, and against what the build noted."""
    found = [hash_file_part(image, layer.offset, layer.size) for layer in list_layers(image, sif)]
    said = [word.partition("=")[2] for word in _read_label(image, sif).split()]
    if said:
        yield _list(f"layers in the label '{LAYERS}'", said, found)
    if made_of:
        rows = [to_text(to_dict(row).get("sha256")) for row in to_list(made_of.get("layers"))]
        yield _list(f"layers in {MADE_OF}", rows, found)


def _list(what: str, said: list[str], found: list[str]) -> Claim:
    if said == found:
        return Claim(verdict="ok", what=f"{what}: {len(found)} with the sha256 that they should have")
    wrong = [str(row) for row, pair in enumerate(zip(said, found, strict=False), start=1) if pair[0] != pair[1]]
    detail = f"not as it should be: {', '.join(wrong)}" if wrong else "as they should be as far as they are there"
    return Claim(verdict="BAD", what=f"{what}: {len(found)} in the image, {len(said)} named; {detail}")


def _read_label(image: Path, sif: Sif) -> str:
    for item in sif.objects:
        if item.label == INSPECT:
            with suppress(ValueError, KeyError, TypeError):
                return str(parse_json(read_object(image, item))["data"]["attributes"]["labels"][LAYERS])
    return ""


def _check_signature(image: Path, *, environment: Mapping[str, str]) -> Claim:
    engine = find_program("apptainer", env=environment) or find_program("singularity", env=environment)
    if engine is None:
        return Claim(verdict="unknown", what="signature: there is no engine here to verify it with")
    answer = capture([str(engine), "verify", str(image.resolve())], env=environment, timeout=SECONDS)
    if answer.exit_code == 0:
        return Claim(verdict="ok", what=f"signature: good, says `{engine.name} verify`")
    lines = [line.strip() for line in answer.text.splitlines() if line.strip()]
    said = sanitize(lines[-1], limit=400) if lines else f"exit code {answer.exit_code}"
    return Claim(verdict="BAD", what=f"signature: {said}")


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object of a file, None without the file, {} where it cannot be read."""
    try:
        found = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return to_dict(found)
