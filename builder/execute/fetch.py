"""What a build needs from elsewhere, got ahead of it: by the plan's own script, which ends there."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from builder.audit import CODE as AUDIT
from builder.execute.build_options import ExecutionOptions, Signals
from builder.execute.cache_maintenance import ensure_cache_folder
from builder.execute.folder_lock import lock_folder
from builder.execute.plan_executor import StepBatch, prepare_execution
from builder.execute.plan_folder import write_plan
from builder.execute.progress import Progress
from builder.layers.private_folders import FETCH
from builder.layers.spec import VARIABLE as OFFLINE
from builder.layers.spec import is_offline
from builder.model.finding import BuilderError, ConfigError, Finding, GpuError, StepError
from builder.model.plan import Plan, Step, to_json
from builder.system.files import remove_tree

VARIABLE = "RECIPE_FETCH"
BACKEND = "layers"
OLD = 86400.0  # seconds after which the log of a failed fetch is removed
FIXES = {
    "no-network": "fetch where the internet can be reached (a login node or a workstation), or set https_proxy",
}


def check_offline(plan: Plan, options: ExecutionOptions, *, backends: Collection[str]) -> None:
    """Raise ConfigError where no server may be asked and the plan's engine would, or a second build has to.

    `backends` are the site's.
    """
    if not is_offline(options.environment):
        return
    if options.reproduce:
        message = f"--reproduce with --offline ({OFFLINE}): a second build starts with nothing but downloads"
        fix = "leave out one of them: what a container has installed, and base images, would have to be fetched again"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    check_fetchable(plan, backends=backends, what=f"no server is to be asked (--offline, {OFFLINE}), and ")


def fetch(
    plan: Plan,
    *,
    backends: Collection[str],
    recipe_folder: Path,
    options: ExecutionOptions,
    progress: Progress,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Have all that a plan's image is made of in the caches; where that fails, the plan stays there with its log.

    `settings` are variables of the step that come before the user's: another cache, for one. Raises ConfigError for a
    backend that cannot, GpuError for packages that cannot use the site's GPU, StepError, ToolError, and SignalInterrupt
    as `execute`.
    """
    check_fetchable(plan, backends=backends)
    cache = ensure_cache_folder(options.environment)
    digest = hashlib.sha256(to_json(plan).encode()).hexdigest()
    folder = cache / FETCH / f"{Path(plan.image).stem}-{digest[:12]}"
    _sweep(folder.parent)
    environment = {name: value for name, value in options.environment.items() if name != OFFLINE}
    environment |= {**settings, VARIABLE: "yes"}
    signals = Signals()
    with signals.catch():
        write_plan(plan, folder, recipe_folder=recipe_folder, force=True)
        work = StepBatch(
            plan=plan,
            steps=(fetch_step(plan),),
            folder=folder,
            output=folder / plan.image,
            options=replace(options, environment=environment),
            progress=progress,
        )
        with lock_folder(folder):
            with prepare_execution(work, signals=signals) as run:
                progress.begin(title=f"{plan.target}: {work.steps[0].why}", total=1)
                try:
                    done = run.run_steps(work.steps)
                finally:
                    progress.end()
                if not done:
                    kind = GpuError if any(finding.code == AUDIT for finding in run.findings) else StepError
                    raise kind(*(_adapt_finding(finding) for finding in run.findings))
            remove_tree(folder)


def fetch_step(plan: Plan) -> Step:
    """The step that makes the image, ended when everything for it is here."""
    step = next(step for step in plan.steps if step.kind == "build")
    return replace(step, name="fetch", why=f"fetch what {plan.image} is made of", produces=(), batch="")


def check_fetchable(plan: Plan, *, backends: Collection[str], what: str = "") -> None:
    """Raise ConfigError where an engine downloads by itself while it builds."""
    if plan.backend == BACKEND:
        return
    message = f"{what}with the backend '{plan.backend}' packages are downloaded inside the engine, while it builds"
    fix = "build where there is a network and copy the image"
    fix = f"choose --backend {BACKEND}, or {fix}" if BACKEND in backends else fix
    raise ConfigError(Finding(code="fetch-backend", message=message, fix=fix))


def _sweep(place: Path) -> None:
    """Remove what fetches that failed, or were killed, left long ago."""
    with suppress(OSError):
        for folder in place.iterdir():
            if time.time() - folder.stat().st_mtime > OLD:
                with suppress(BuilderError, OSError), lock_folder(folder):
                    remove_tree(folder)


def _adapt_finding(finding: Finding) -> Finding:
    """A finding that speaks of fetching."""
    return replace(finding, fix=FIXES.get(finding.code, finding.fix).replace("build again", "fetch again"))
