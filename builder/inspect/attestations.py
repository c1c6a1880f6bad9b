"""Writes the attestations of an image: its bill of materials, and its provenance as an in-toto statement (SLSA v1).

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance

Nothing of the user's machine is in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from builder.inspect.sbom import make_base_uri
from builder.model.plan import Plan
from builder.model.report import Report
from builder.sif.bounded import read_json
from builder.system.files import write_atomic

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:recipe:build:v1"
BUILDER = "urn:recipe:builder"
PROGRAM = "recipe"  # the tool that a bill of materials names
LIMIT = 64 * 1024 * 1024  # bytes of an attestation that is read again


def make_provenance(plan: Plan, report: Report, *, name: str, finished: str, sbom: tuple[str, str] | None) -> str:
    """Write the statement of a published image; `sbom` is the name and the sha256 of its bill of materials."""
    record = _record(plan)
    program, _, version = plan.tool.partition(" ")
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {
            "recipe": plan.recipe,
            "site": plan.site,
            "backend": plan.backend,
            "base": make_base_uri(plan.base),
        },
        "internalParameters": {
            "engines": dict(sorted(report.versions.items())),
            "expect": dict(plan.expect),
            "plan": report.plan,
        },
        "resolvedDependencies": _list_dependencies(plan, record),
    }
    byproducts = [{"name": sbom[0], "digest": {"sha256": sbom[1]}}] if sbom else []
    details = {
        "builder": {"id": BUILDER, "version": {program or "recipe": version}},
        "metadata": {"startedOn": report.started, "finishedOn": finished},
        "byproducts": byproducts,
    }
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": report.image_sha256}}],
        "predicateType": PREDICATE,
        "predicate": {"buildDefinition": definition, "runDetails": details},
    }
    return json.dumps(statement, indent=1, sort_keys=True) + "\n"


def _record(plan: Plan) -> Mapping[str, Any]:
    """The plan's recipe.json: what the image is made from."""
    text = next((file.text for file in plan.files if file.path == "recipe.json"), "{}")
    record: Mapping[str, Any] = json.loads(text)
    return record


def _list_dependencies(plan: Plan, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    base: dict[str, Any] = {"name": "base image", "uri": make_base_uri(plan.base)}
    _, separator, digest = plan.base.partition("@sha256:")
    locked = str(record.get("base_digest", "")).removeprefix("sha256:")
    if separator or locked:
        base["digest"] = {"sha256": digest or locked}
    found = [base]
    for name, key in (("recipe", "digest"), ("lock", "lock")):
        if record.get(key):
            found.append({"name": name, "digest": {"sha256": str(record[key]).removeprefix("sha256:")}})
    return found


BILL, PROVENANCE = ".cdx.json", ".provenance.json"


def name_attestations(image: Path) -> tuple[Path, Path]:
    """Paths of the bill of materials and the provenance of an image."""
    return image.with_name(image.name + BILL), image.with_name(image.name + PROVENANCE)


def list_image_files(folder: Path) -> set[Path]:
    """List the image of a plan folder next to it, by its usual name or by one without .sif, and its attestations."""
    stem = folder.with_name(folder.name.removesuffix(".plan"))
    image = folder.with_name(f"{stem.name}.sif")
    found = {image, *name_attestations(image)}
    return (
        found | {stem, *name_attestations(stem)} if any(path.is_file() for path in name_attestations(stem)) else found
    )


def find_foreign_attestation(image: Path) -> Path | None:
    """The first file at the place of an attestation that no build wrote; None if each is missing or of a build."""
    checks = zip(name_attestations(image), (_is_bill, _is_provenance), strict=True)
    return next((path for path, ours in checks if os.path.lexists(path) and not _is_ours(path, ours)), None)


def _is_ours(path: Path, check: Callable[[Any], bool]) -> bool:
    try:
        return check(read_json(path, limit=LIMIT))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return False


def _is_bill(content: Any) -> bool:
    tool = content["metadata"]["tools"]["components"][0]["name"]
    return bool(content["bomFormat"] == "CycloneDX" and tool == PROGRAM)


def _is_provenance(content: Any) -> bool:
    return bool(content["predicate"]["runDetails"]["builder"]["id"] == BUILDER)


def write_attestations(plan: Plan, report: Report, *, sbom: str) -> str:
    """Write both files next to an image that passed; returns an error message, "" on success."""
    if report.status != "passed" or not report.image:
        return ""
    image = Path(report.image)
    bill, origin = name_attestations(image)
    try:
        named = None
        if sbom:
            write_atomic(bill, sbom)
            named = (bill.name, hashlib.sha256(sbom.encode()).hexdigest())
        else:
            bill.unlink(missing_ok=True)  # of an earlier image
        if report.image_sha256:
            finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            text = make_provenance(plan, report, name=image.name, finished=finished, sbom=named)
            write_atomic(origin, text)
    except OSError as error:
        return f"the SBOM and provenance of '{image}' could not be written: {(error.strerror or str(error)).lower()}"
    return ""
