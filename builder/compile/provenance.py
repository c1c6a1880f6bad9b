"""How an image came to be, as an in-toto statement with a predicate of SLSA v1. Nothing of the user's machine is in it.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from builder.compile.sbom import base_uri
from builder.model.plan import Plan
from builder.model.report import Report

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:recipe:build:v1"
BUILDER = "urn:recipe:builder"


def provenance(plan: Plan, report: Report, *, name: str, finished: str, sbom: tuple[str, str] | None) -> str:
    """Write the statement of a published image; `sbom` is the name and the sha256 of its bill of materials."""
    record = _record(plan)
    program, _, version = plan.tool.partition(" ")
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {
            "recipe": plan.recipe,
            "site": plan.site,
            "backend": plan.backend,
            "base": base_uri(plan.base),
        },
        "internalParameters": {
            "engines": dict(sorted(report.versions.items())),
            "expect": dict(plan.expect),
            "plan": report.plan,
        },
        "resolvedDependencies": _dependencies(plan, record),
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


def _dependencies(plan: Plan, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    base: dict[str, Any] = {"name": "base image", "uri": base_uri(plan.base)}
    _, separator, digest = plan.base.partition("@sha256:")
    locked = str(record.get("base_digest", "")).removeprefix("sha256:")
    if separator or locked:
        base["digest"] = {"sha256": digest or locked}
    found = [base]
    for name, key in (("recipe", "digest"), ("lock", "lock")):
        if record.get(key):
            found.append({"name": name, "digest": {"sha256": str(record[key]).removeprefix("sha256:")}})
    return found
