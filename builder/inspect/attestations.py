"""The attestations of an image: its bill of materials (CycloneDX 1.5), and its provenance (in-toto, SLSA v1).

https://cyclonedx.org/docs/1.5/json/ and https://github.com/package-url/purl-spec

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance

Nothing of the user's machine is in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from builder.model.plan import Plan
from builder.model.report import Report
from builder.sif.bounded import read_json
from builder.system.files import write_atomic

if TYPE_CHECKING:
    from builder.model.contents import Contents, InstalledPackage

VERSION = "1.5"
PLAN_PROPERTY = "recipe:plan"
OURS = ("recipe.name", "recipe.digest", "recipe.lock", "recipe.site", "recipe.tool")


def make_sbom(contents: Contents, *, name: str, tool: str, plan: str = "") -> str:
    """Write the bill of materials of an image; it has no time in it, and its number is made from its content.

    `plan` is the digest of the plan that the image was made from.
    """
    components = _list_components(contents)
    image = {"type": "container", "bom-ref": "image", "name": name, "properties": _list_properties(contents, plan=plan)}
    program, _, version = tool.partition(" ")
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": VERSION,
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": program or "recipe", "version": version}]},
            "component": image,
        },
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": [item["bom-ref"] for item in components]}],
    }
    number = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    # A UUID of version 8 (RFC 9562): its bits are those of a digest.
    uuid = f"{number[:8]}-{number[8:12]}-8{number[13:16]}-8{number[17:20]}-{number[20:32]}"
    document["serialNumber"] = f"urn:uuid:{uuid}"
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def is_sbom(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a bill of materials in CycloneDX's JSON."""
    return head.lstrip()[:1] == b"{" and re.search(rb'"bomFormat"\s*:\s*"CycloneDX"', head) is not None


def _list_properties(contents: Contents, *, plan: str) -> list[dict[str, str]]:
    pairs = [(f"recipe:{name.partition('.')[2]}", contents.labels[name]) for name in OURS if name in contents.labels]
    pairs += [("recipe:base", make_base_uri(contents.base))] if contents.base else []
    pairs += [(PLAN_PROPERTY, plan)] if plan else []
    for build in contents.torch:
        fields = (("torch", build.version), ("cuda", build.cuda), ("hip", build.hip), ("xpu", build.xpu))
        pairs += [(f"recipe:{name}", value) for name, value in fields if value]
    pairs += [("recipe:unknown", line) for line in contents.unknown]
    return [{"name": name, "value": value} for name, value in sorted(set(pairs))]


def _list_components(contents: Contents) -> list[dict[str, Any]]:
    """One for each package; a package in several places is one."""
    found: dict[str, list[InstalledPackage]] = {}
    for package in contents.packages:
        found.setdefault(make_purl(package, distribution=contents.distribution), []).append(package)
    return [_make_component(name, packages) for name, packages in sorted(found.items())]


def _make_component(ref: str, packages: list[InstalledPackage]) -> dict[str, Any]:
    first = max(packages, key=lambda package: (package.license, package.sha256))
    entry: dict[str, Any] = {"type": "library", "bom-ref": ref, "purl": ref, "name": first.name}
    if first.version:
        entry["version"] = first.version
    if first.license:
        entry["licenses"] = [{"license": {"name": first.license}}]
    if first.sha256:
        entry["hashes"] = [{"alg": "SHA-256", "content": first.sha256}]
    places = sorted({package.place for package in packages if package.place})
    if places:
        entry["properties"] = [{"name": "recipe:place", "value": place} for place in places]
    return entry


def make_purl(package: InstalledPackage, *, distribution: str = "") -> str:
    """The address of a package as other tools write it; `distribution` is the image's, as in "debian 12"."""
    vendor, _, release = distribution.partition(" ")
    name, namespace, number = package.name, "", package.version
    more: list[tuple[str, str]] = []
    if package.kind == "pip":
        kind, name = "pypi", name.lower().replace("_", "-")
    elif package.kind == "conda":
        kind = "conda"
        more = [("build", package.build), ("channel", package.channel), ("subdir", package.subdir)]
    else:
        kind, namespace = package.kind, vendor or "unknown"
        more = [("arch", package.arch), ("distro", f"{vendor}-{release}" if vendor and release else "")]
    if (
        kind == "rpm" and ":" in number
    ):  # https://github.com/package-url/purl-spec/blob/main/types-doc/rpm-definition.md
        epoch, _, number = number.partition(":")
        more.append(("epoch", epoch))
    path = "/".join(_escape(part) for part in (kind, namespace, name) if part)
    version = f"@{_escape(number)}" if number else ""
    return f"pkg:{path}{version}{_make_query(more)}"


def _make_query(pairs: Iterable[tuple[str, str]]) -> str:
    words = "&".join(f"{name}={_escape(value)}" for name, value in sorted(pairs) if value)
    return f"?{words}" if words else ""


def _escape(text: str) -> str:
    return quote(text, safe=":")


def make_base_uri(base: str) -> str:
    """A base image; of a file only its name: folders tell of users."""
    return f"file:{base.rpartition('/')[2]}" if base.startswith("/") else base


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


def write_attestations(plan: Plan, report: Report, *, sbom: str, new: Collection[Path] = ()) -> str:
    """Write both files next to an image that passed; returns an error message, "" on success.

    Those among `new` were not there when the build began: they replace nothing.
    """
    if report.status != "passed" or not report.image:
        return ""
    image = Path(report.image)
    bill, origin = name_attestations(image)
    try:
        named = None
        if sbom:
            write_atomic(bill, sbom, new=bill in new)
            named = (bill.name, hashlib.sha256(sbom.encode()).hexdigest())
        elif bill not in new:
            bill.unlink(missing_ok=True)  # of an earlier image
        if report.image_sha256:
            finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            text = make_provenance(plan, report, name=image.name, finished=finished, sbom=named)
            write_atomic(origin, text, new=origin in new)
    except OSError as error:
        return f"the SBOM and provenance of '{image}' could not be written: {(error.strerror or str(error)).lower()}"
    return ""
