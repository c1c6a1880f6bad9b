"""What a build needs from elsewhere, got ahead of it: by the plan's own script, which ends there."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from builder.execute.cache import cache_of
from builder.execute.executor import Work, prepared
from builder.execute.folder import write_plan
from builder.execute.hold import hold
from builder.execute.names import LOGS
from builder.execute.options import Options, Signals
from builder.execute.progress import Progress
from builder.layering.offline import VARIABLE as OFFLINE
from builder.layering.offline import is_offline
from builder.model.finding import ConfigError, Finding, Place, StepError
from builder.model.plan import Plan, Step

VARIABLE = "RECIPE_FETCH"
BACKEND = "layers"
FIXES = {
    "no-network": "fetch where the internet can be reached (a login node or a workstation), or set https_proxy",
}


def check_offline(plan: Plan, options: Options) -> None:
    """Raise ConfigError where no server may be asked and the plan's engine would."""
    if is_offline(options.environment):
        check_fetchable(plan)


def offline() -> dict[str, str]:
    """The variables by which a build asks no server."""
    return {OFFLINE: "yes"}


def check_fetchable(plan: Plan) -> None:
    """Raise ConfigError where an engine downloads by itself while it builds."""
    if plan.backend == BACKEND:
        return
    message = f"with the backend '{plan.backend}' packages are downloaded inside the engine, while it builds"
    fix = f"choose --backend {BACKEND} where the site has it, or build where there is a network and copy the image"
    raise ConfigError(Finding(code="fetch-backend", message=message, fix=fix))


def fetch(plan: Plan, *, recipe_folder: Path, options: Options, progress: Progress) -> None:
    """Have all that a plan's image is made of in the caches; where that fails, a log stays there too.

    Raises ConfigError for a backend that cannot, StepError, ToolError, and Interrupted as `execute`.
    """
    check_fetchable(plan)
    signals = Signals()
    environment = {**options.environment, VARIABLE: "yes"}
    with tempfile.TemporaryDirectory(prefix="recipe-fetch-", dir=options.tmpdir) as place, signals.caught():
        folder = Path(place).resolve() / "plan"
        write_plan(plan, folder, recipe_folder=recipe_folder)
        work = Work(
            plan=plan,
            steps=(fetch_step(plan),),
            folder=folder,
            output=folder / plan.image,
            options=replace(options, environment=environment),
            progress=progress,
        )
        with hold(folder), prepared(work, signals=signals) as run:
            progress.begin(title=f"{plan.target}: {work.steps[0].why}", total=1)
            try:
                done = run.lead(work.steps)
            finally:
                progress.end()
            if not done:
                log = run.carrier.log(work.steps[0])
                kept = cache_of(options.environment)[0] / LOGS / f"{Path(plan.image).stem}.fetch.log"
                with suppress(OSError):
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(log, kept)
                raise StepError(*(_kept(finding, log=log, kept=kept) for finding in run.findings))


def fetch_step(plan: Plan) -> Step:
    """The step that makes the image, ended when everything for it is here."""
    step = next(step for step in plan.steps if step.kind == "build")
    return replace(step, name="fetch", why=f"fetch what {plan.image} is made of", produces=(), batch="")


def _kept(finding: Finding, *, log: Path, kept: Path) -> Finding:
    """A finding that names the log where it stays, and speaks of fetching."""
    fix = FIXES.get(finding.code, finding.fix).replace("build again", "fetch again").replace(str(log), str(kept))
    return replace(finding, at=Place(file=str(kept)), fix=fix)
