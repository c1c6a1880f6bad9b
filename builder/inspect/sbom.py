"""What is inside an image as a CycloneDX 1.5 bill of materials: the same contents give the same bytes.

https://cyclonedx.org/docs/1.5/json/ and https://github.com/package-url/purl-spec
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

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
