"""What `recipe check`, and a lock, refuse of a resolved target: by its backend, its lock and its base image's file."""

from __future__ import annotations

import os
from pathlib import Path

from builder.compile.backends import check_backend
from builder.model.finding import Finding, ToolError, UnsupportedError
from builder.model.recipe import Recipe
from builder.model.target import Context, Target


def check_target(target: Target, *, recipe: Recipe, context: Context) -> tuple[Finding, ...]:
    """Return the findings of a target, with what a build refuses of a base image that is here.

    Raises UnsupportedError for what its backend cannot do, and ConfigError for a file of the user's own that is no base
    image.
    """
    findings = check_backend(target)
    if target.lock is not None:  # what a lock holds is read when it is written into a plan
        from builder.compile.compile import compile_plan

        compile_plan(target, page=False)
    if target.base.reference.startswith("/") and Path(target.base.reference).exists():
        findings = (*findings, *_list_base_faults(target, recipe=recipe, context=context))
    return findings


def _list_base_faults(target: Target, *, recipe: Recipe, context: Context) -> tuple[Finding, ...]:
    """What a build refuses of a base image that is here: its processor, its Python, its glibc."""
    from builder.compile.compile import compile_plan
    from builder.pipeline.prepare import check_base_file
    from builder.pipeline.request import Build

    plan = compile_plan(target, page=False)
    build = Build(plan=plan, site=target.site, recipe=recipe, context=context, image=Path(plan.image))
    try:
        check_base_file(build, environment=os.environ)
    except (UnsupportedError, ToolError) as error:
        return error.findings
    return ()
