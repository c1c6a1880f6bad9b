"""recipe inspect --gpu NAME-VERSION-variants.json: the variants of a package, and which of them a site serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builder.audit.content import AuditError
from builder.audit.judged_machine import Machine
from builder.audit.variants import (
    SIZE,
    Features,
    find_unknown,
    find_unserved,
    list_properties,
    parse_variants,
    select_serving,
)
from builder.cli.output import StyledText, color_word, echo, emit_document, format_columns
from builder.model.finding import ConfigError, Finding, GpuError, Location
from builder.model.site import Site
from builder.model.text import escape_line, sanitize
from builder.resolve.driver import make_machine
from builder.sif.bounded import open_file


def show_variants(path: Path, site: Site | None, *, as_json: bool) -> None:
    """Print the variants, with a site the best first; raises GpuError where it serves none of them, and ConfigError."""
    name = sanitize(str(path), limit=400)
    try:
        with open_file(path) as file:
            variants = parse_variants(file.read(SIZE + 1))
    except (AuditError, OSError) as error:
        message = f"'{name}' cannot be read: {sanitize(str(error), limit=400)}"
        fix = "give the file of an index that lists the variants of one release"
        raise ConfigError(Finding(code="audit-unreadable", message=message, at=Location(file=name), fix=fix)) from None
    machine = make_machine(site) if site is not None else None
    serving = select_serving(variants, machine) if machine is not None else ()
    if as_json:
        emit_document(_describe(path, variants, site, machine, serving))
    else:
        rows = [_make_row(label, variants[label], machine, serving) for label in sorted(variants, key=_rank(serving))]
        echo(StyledText(escape_line(f"{path.name}: {len(variants)} variants") + "\n\n" + format_columns(rows)))
    if site is not None and machine is not None and not serving:
        message = f"'{site.name}' serves none of the variants of '{sanitize(path.name, limit=200)}'"
        fix = f"choose a release with one for: {'; '.join(list_properties(machine))}"
        raise GpuError(Finding(code="wheel-variant", message=message, at=Location(file=name), fix=fix))


def _rank(serving: tuple[str, ...]) -> Any:
    return lambda label: (serving.index(label) if label in serving else len(serving), label)


def _make_row(label: str, features: Features, machine: Machine | None, serving: tuple[str, ...]) -> tuple[str, ...]:
    asked = "; ".join(f"{key} :: {', '.join(values[:6])}" for key, values in features.items()) or "nothing"
    if machine is None:
        return label, asked
    word = "ok" if label in serving else "BAD" if find_unserved(features, machine) else "?"
    return color_word(word) if word != "?" else word, label, _explain(features, machine) or asked


def _explain(features: Features, machine: Machine) -> str:
    unserved, unknown = find_unserved(features, machine), find_unknown(features, machine)
    if unserved is not None:
        return unserved.reason
    return f"not known of the site: {', '.join(unknown)}" if unknown else ""


def _describe(
    path: Path, variants: Mapping[str, Features], site: Site | None, machine: Machine | None, serving: tuple[str, ...]
) -> dict[str, Any]:
    rows = []
    for label in sorted(variants, key=_rank(serving)):
        row: dict[str, Any] = {"label": label, "features": variants[label]}
        if machine is not None:
            row |= {"serves": label in serving, "reason": _explain(variants[label], machine)}
        rows.append(row)
    found: dict[str, Any] = {"source": path.name, "kind": "variants", "variants": rows}
    return found | ({"site": {"name": site.name}, "ok": bool(serving)} if site is not None else {})
