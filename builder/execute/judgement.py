"""The verdict of a smoke step, from the numbers that the workload left; also of an image that exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from builder.execute.build_options import Signals
from builder.execute.progress import Progress
from builder.execute.report_file import LIMIT
from builder.model.finding import Finding
from builder.model.plan import Plan, Step
from builder.model.report import SmokeCheck, StepResult
from builder.model.results import read_checks
from builder.model.secrets import Mask
from builder.model.text import to_dict, to_list, to_text
from builder.sif.bounded import parse_json
from builder.system.layout import LOGS, PROOF_FILE, RESULTS, SMOKE_FILE
from builder.system.process import run
from builder.system.scratch import RESULTS_VARIABLE
from builder.system.trust import read_below

_SUITE = re.compile(r"results/(?P<shape>[\w.-]+)/verdict\.json")
_ANSWER = "verify.json"  # what the image answered when the smoke step asked it for its torch
TORCH_CHECK = "image: torch"
_IN_TORCH = ("probe", "mnist", "ddp", "pi", "allreduce", "startup")


def read_results(step: Step, folder: Path) -> dict[str, Any]:
    """Read the results that a step left, by the name of the workload; one that cannot be read is None."""
    results: dict[str, Any] = {}
    for product in step.produces:
        found = SMOKE_FILE.fullmatch(Path(product).name)
        if found is not None:
            results[found["name"]] = _read(folder, product)
    return results


def list_suite_shapes(step: Step) -> tuple[str, ...]:
    """The shapes of job whose suite a step runs."""
    return tuple(found["shape"] for product in step.produces if (found := _SUITE.fullmatch(product)))


def judge_suite(shape: str, folder: Path) -> tuple[dict[str, Any], tuple[SmokeCheck, ...]]:
    """Read what the suite over a shape has left, by `SHAPE/WORKLOAD`, with the checks of its verdict."""
    place = f"{RESULTS}/{shape}"
    verdict = _read(folder, f"{place}/verdict.json")
    found = to_dict(verdict)
    workloads = to_dict(found.get("workloads"))
    results = {f"{shape}/{name}": _read(folder, f"{place}/{Path(name).name}.json") for name in workloads}
    checks = [check for name, item in workloads.items() for check in _read_checks(f"{shape}/{name}", item)]
    whole = found.get("verdict")
    said = str(found.get("reason") or whole or "no verdict")
    checks.append(SmokeCheck(name=f"{shape}: verdict", ok=whole == "pass", measured=said, expected="pass"))
    return results, tuple(checks)


def _read_checks(name: str, item: Any) -> list[SmokeCheck]:
    """The checks of one workload, as the verdict lists them; one that lists none is one that failed."""
    found = to_dict(item)
    checks = [replace(check, name=f"{name}: {check.name}") for check in read_checks(found.get("checks"))]
    if not checks or (found.get("verdict") != "pass" and all(check.ok for check in checks)):
        said = str(found.get("error") or found.get("verdict") or "no result")
        checks.append(SmokeCheck(name=f"{name}: verdict", ok=False, measured=said, expected="pass"))
    return checks


def judge_results(results: Mapping[str, Any], *, expect: Mapping[str, str]) -> tuple[SmokeCheck, ...]:
    """Judge results by their numbers; what the plan expects of the image outweighs what a result says of itself."""
    from builder.smoke.verdict import judge

    checks = []
    for name, result in results.items():
        for check in judge(result, _find_expected(result, expect)):
            measured, expected = str(check.measured), str(check.expected)
            checks.append(SmokeCheck(name=f"{name}: {check.name}", ok=check.ok, measured=measured, expected=expected))
    return tuple(checks)


def is_not_run(results: Mapping[str, Any]) -> bool:
    """Whether all results come from the script alone, which ended before any workload ran."""
    return bool(results) and all(to_dict(result).get("not_run") is True for result in results.values())


def judge_answer(step: Step, folder: Path) -> tuple[SmokeCheck, ...]:
    """A failed check for each fault of the image's torch that the smoke step found; none where there is no fault."""
    document = to_dict(_read(folder, _ANSWER)) if _ANSWER in step.produces else {}
    expected = to_dict(document.get("expected"))
    wanted = to_text(expected.get("torch"), limit=80) or f"a build for {to_text(expected.get('vendor'), limit=40)}"
    return tuple(
        SmokeCheck(name=TORCH_CHECK, ok=False, measured=to_text(fault), expected=wanted)
        for fault in to_list(document.get("faults"), limit=20)
    )


def note_cpu(results: Mapping[str, Any], *, vendor: str, site: str, image: str) -> Finding | None:
    """Warn of a training that ran on the CPU only, of a site that has GPUs; None where there is nothing to warn of."""
    kinds = [to_dict(to_dict(result).get("device")).get("type") for result in results.values()]
    if vendor == "cpu" or "cpu" not in kinds or any(kind not in ("cpu", None) for kind in kinds):
        return None
    message = f"there is no {vendor} GPU here: the smoke test trained on the CPU"
    fix = f"run it on a GPU node of '{site}' too: `recipe smoke {shlex.join([site, image])} --submit` there does"
    return Finding(code="smoke-cpu", message=message, fix=fix, level="warning")


def read_proof(folder: Path) -> dict[str, Any]:
    """What the image answered when a step of its own asked it for its torch (verify.py)."""
    return find_answer(_read(folder, PROOF_FILE))


def find_answer(document: Any) -> dict[str, Any]:
    """What an image answered, out of the document that verify.py writes; it may hold anything."""
    return to_dict(to_dict(document).get("found"))


def select_first_causes(checks: Sequence[SmokeCheck]) -> tuple[SmokeCheck, ...]:
    """The checks that failed for a reason of their own.

    Of a workload that an error has ended it is the error alone; where the image's torch is wrong it is that alone.
    """
    bad = [check for check in checks if not check.ok]
    if any(check.name == TORCH_CHECK for check in bad):  # without the right torch no workload says more
        return tuple(check for check in bad if check.name == TORCH_CHECK)
    ended = {name for name, _, what in (check.name.rpartition(": ") for check in bad) if what in ("error", "result")}
    causes = {f"{name}: {what}" for name in ended for what in ("error", "result")}
    return tuple(check for check in bad if check.name in causes or check.name.rpartition(": ")[0] not in ended)


def describe_failed_checks(checks: Sequence[SmokeCheck]) -> str:
    """Say which checks failed, "" when none did."""
    bad = [f"{check.name}: {check.measured}, expected {check.expected}" for check in select_first_causes(checks)]
    return "; ".join(bad)


def _find_expected(result: Any, expect: Mapping[str, str]) -> Mapping[str, Any] | None:
    own = result.get("expected") if isinstance(result, dict) else None
    if not isinstance(own, dict) or result.get("workload") not in _IN_TORCH:
        return None
    # The vendor is expected of a run on its GPUs only: on a login node the same image trains on the CPU.
    torch = expect.get("torch", "")
    return {**own, "torch": torch} if "+" in torch else own


def _read(folder: Path, name: str) -> Any:
    try:
        # A loss that is not finite is a number to be judged.
        return parse_json(read_below(folder, name, limit=LIMIT), finite=False)
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True)
class ImageVerdict:
    """The checks of an image, those that failed for a reason of their own, and what is to be said besides."""

    checks: tuple[SmokeCheck, ...]
    causes: tuple[SmokeCheck, ...]
    findings: tuple[Finding, ...] = ()


def test_image(plan: Plan, *, folder: Path, environment: Mapping[str, str], progress: Progress) -> ImageVerdict:
    """Run a plan's smoke step in the image that RECIPE_IMAGE of `environment` names, and judge what it left."""
    (step,) = plan.steps
    log = folder / LOGS / "smoke.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    progress.begin(title=f"{plan.target}: {plan.image}", total=1)
    progress.begin_step(step, number=1)
    try:
        with Signals().catch():
            ended = run(
                ["bash", step.script],
                cwd=folder,
                env={name: value for name, value in environment.items() if name != RESULTS_VARIABLE},
                log=log,
                on_line=progress.show_line,
                on_tick=progress.refresh,
                mask=Mask(environment),
            )
        verdict = _judge(plan, step, folder=folder, exit_code=ended.exit_code, image=environment["RECIPE_IMAGE"])
        progress.end_step(
            StepResult(
                name=step.name,
                status="failed" if verdict.causes else "ok",
                seconds=ended.seconds,
                exit_code=ended.exit_code,
                log=str(log),
            )
        )
    finally:
        progress.end()
    return verdict


def _judge(plan: Plan, step: Step, *, folder: Path, exit_code: int, image: str) -> ImageVerdict:
    """The one verdict: an exit code that no check explains is a check that failed."""
    results = read_results(step, folder)
    checks = (*judge_answer(step, folder), *judge_results(results, expect=plan.expect))
    if exit_code and not select_first_causes(checks):
        checks = (*checks, SmokeCheck(name="script: exit code", ok=False, measured=str(exit_code), expected="0"))
    note = note_cpu(results, vendor=plan.vendor, site=plan.site, image=image)
    return ImageVerdict(checks=checks, causes=select_first_causes(checks), findings=(note,) if note else ())
