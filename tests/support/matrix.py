"""The matrix: every bundled site and each of its backends, times the example recipes and one that has everything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from builder.cli.output import format_finding
from builder.compile.compile import compile_plan
from builder.compile.launch import choose_job, make_shape_script
from builder.model.finding import Finding, UnsupportedError
from builder.model.plan import Plan, to_json
from builder.model.recipe import Recipe
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import BUNDLED, load_site
from builder.resolve.resolve import resolve

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "recipes"
OWN = ROOT / "tests" / "recipes"
TOOL = "recipe 0.0.0"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One target of the matrix."""

    stem: str
    site: str
    backend: str

    @property
    def name(self) -> str:
        return f"{self.stem}.{self.site}.{self.backend}"


@cache
def recipes() -> dict[str, tuple[Recipe, Path]]:
    """Every recipe with its folder, read under a name that is the same on every machine."""
    files = [path for folder in (EXAMPLES, OWN) for path in sorted(folder.iterdir()) if path.suffix in (".yml", ".txt")]
    return {path.stem: (load_recipe(path, shown=path.name), path.parent) for path in files}


@cache
def cases() -> tuple[Case, ...]:
    """Every target, in the order of its name."""
    sites = [load_site(path.stem) for path in sorted(BUNDLED.glob("*.yaml"))]
    return tuple(
        Case(stem=stem, site=site.name, backend=backend)
        for stem in recipes()
        for site in sites
        for backend in site.build.backends
    )


def compiled(case: Case) -> Plan | tuple[Finding, ...]:
    """Resolve and compile afresh: the plan, or the findings that refuse it."""
    recipe, _ = recipes()[case.stem]
    try:
        target = resolve(recipe, _site(case.site), context=Context(backend=case.backend, tool=TOOL))
        return compile_plan(target)
    except UnsupportedError as error:
        return error.findings


_site = cache(load_site)


@cache
def outcome(case: Case) -> Plan | tuple[Finding, ...]:
    """The outcome of a target, compiled once."""
    return compiled(case)


def plans() -> Iterator[tuple[Case, Plan]]:
    """Every target that is not refused."""
    for case in cases():
        found = outcome(case)
        if isinstance(found, Plan):
            yield case, found


def everything() -> str:
    """A digest of the whole matrix, compiled afresh."""
    return hashlib.sha256("\0".join(text_of(compiled(case)) for case in cases()).encode()).hexdigest()


def text_of(found: Plan | tuple[Finding, ...]) -> str:
    return to_json(found) if isinstance(found, Plan) else shown(found)


def target_plan(recipe: Recipe, *, site: str, backend: str, **context: str) -> Plan:
    """The plan of any recipe for a site."""
    return compile_plan(resolve(recipe, load_site(site), context=Context(backend=backend, tool=TOOL, **context)))


def bare_target(site: str, stem: str = "finetune") -> Target:
    """A target of the matrix that names no workloads."""
    recipe, _ = recipes()[stem]
    bare = replace(recipe, container=replace(recipe.container, smoke=replace(recipe.container.smoke, workloads=None)))
    return resolve(bare, load_site(site), context=Context(tool=TOOL))


def script_of(site: str, *, nodes: int | None, devices: int | None) -> str:
    """The job script of a shape."""
    target = bare_target(site)
    purpose, job = choose_job(target, nodes=nodes, devices=devices)
    return make_shape_script(target, job, purpose=purpose).file.text


def shown(findings: tuple[Finding, ...]) -> str:
    """Findings as the command line prints them."""
    return "".join(line + "\n" for finding in findings for line in format_finding(finding))
