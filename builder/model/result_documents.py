"""Assemble the results of an image from its JSON documents. Pure: the files are read by `builder.report.records`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from builder.model.report import SmokeCheck
from builder.model.results import (
    SHAPES,
    WORKLOADS,
    Results,
    ShapeVerdict,
    Stage,
    WorkloadResult,
    format_device,
    read_checks,
    read_workload_result,
)
from builder.model.text import to_dict, to_integer, to_list, to_number, to_text

TORCH_BUILD_NAMES = {"cuda": "CUDA", "hip": "ROCm", "rocm": "ROCm", "xpu": "XPU"}


@dataclass(kw_only=True)
class ResultDocuments:
    """The documents of one image: report.json, plan.json, results by shape and workload, verdicts by shape, jobs."""

    name: str
    source: str
    report: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    shapes: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdicts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    jobs: list[Mapping[str, Any]] = field(default_factory=list)
    submitted: Mapping[str, Any] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def list_workload_results(self) -> list[Mapping[str, Any]]:
        """List the result of every workload, those of the build first."""
        found = [*to_dict(self.report.get("smoke")).values()]
        found += [result for shape in self.shapes.values() for result in shape.values()]
        return [result for result in found if isinstance(result, dict)]


def assemble_results(found: ResultDocuments) -> Results:
    """Assemble the results of one image; missing parts of a document are left out."""
    workloads = [*_read_build_workloads(found), *_read_shape_workloads(found)]
    shapes = tuple(_shape(name, verdict) for name, verdict in sorted(found.verdicts.items(), key=_order_of_shape))
    stages = (*_steps(found), *_jobs(found))
    findings = [to_text(to_dict(item).get("message")) for item in to_list(found.report.get("findings"), limit=200)]
    return Results(
        name=to_text(found.report.get("target") or found.plan.get("target"), limit=120) or found.name,
        source=found.source,
        status=_status(found, workloads, shapes, stages),
        image=to_text(found.report.get("image")),
        image_bytes=to_integer(found.report.get("image_bytes")),
        image_sha256=to_text(found.report.get("image_sha256"), limit=80),
        stages=stages,
        workloads=tuple(sorted(workloads, key=_order)),
        shapes=shapes,
        facts=_facts(found),
        packages={
            to_text(to_dict(item).get("asked"), limit=120): to_text(to_dict(item).get("became"), limit=120)
            for item in to_list(found.plan.get("packages"), limit=2000)
        },
        findings=tuple(filter(None, findings)),
        damaged=tuple(found.damaged),
    )


def _read_build_workloads(found: ResultDocuments) -> Iterable[WorkloadResult]:
    """Read the workloads of the smoke step; the report stores its checks under the name of the workload."""
    by_name: dict[str, list[SmokeCheck]] = {}
    for check in read_checks(found.report.get("checks")):
        name, colon, rest = check.name.partition(": ")
        key = name if colon else ""
        plain = SmokeCheck(name=rest or name, ok=check.ok, measured=check.measured, expected=check.expected)
        by_name.setdefault(key, []).append(plain)
    smoke = {to_text(name, limit=60): result for name, result in to_dict(found.report.get("smoke")).items()}
    for name in {**smoke, **by_name}:
        checks = tuple(by_name[name]) if name in by_name else None
        yield read_workload_result(smoke.get(name), name=name or "smoke", checks=checks)


def _read_shape_workloads(found: ResultDocuments) -> Iterable[WorkloadResult]:
    for shape in sorted({*found.shapes, *found.verdicts}):
        results = found.shapes.get(shape, {})
        judged = to_dict(found.verdicts.get(shape, {}).get("workloads"))
        for name in {**judged, **results}:
            verdict = to_dict(judged.get(name))
            checks = read_checks(verdict.get("checks")) or None
            raw = results.get(name)
            # The verdict includes workloads without a complete result.
            yield read_workload_result(
                raw if isinstance(raw, dict) else verdict or None,
                name=to_text(name, limit=60),
                shape=to_text(shape, limit=60),
                checks=checks,
            )


def _shape(name: str, verdict: Mapping[str, Any]) -> ShapeVerdict:
    passed = verdict.get("verdict") == "pass"
    return ShapeVerdict(shape=name, verdict="pass" if passed else "FAIL", reason=to_text(verdict.get("reason")))


def _steps(found: ResultDocuments) -> Iterable[Stage]:
    kinds = {to_text(to_dict(step).get("name")): to_dict(step).get("kind") for step in to_list(found.plan.get("steps"))}
    for item in map(to_dict, to_list(found.report.get("steps"), limit=200)):
        name = to_text(item.get("name"), limit=80)
        yield Stage(
            name=name,
            status=to_text(item.get("status"), limit=40),
            seconds=max(0.0, to_number(item.get("seconds")) or 0.0),
            exit_code=to_integer(item.get("exit_code")),
            note=to_text(to_dict(item.get("finding")).get("message")),
            fix=to_text(to_dict(item.get("finding")).get("fix")),
            log=to_text(item.get("log")),
            proves=kinds.get(name, name) == "smoke",
        )


def _jobs(found: ResultDocuments) -> Iterable[Stage]:
    entries = map(to_dict, to_list(found.submitted.get("jobs"), limit=1000))
    submitted = {to_text(item.get("job"), limit=40): to_number(item.get("submitted")) for item in entries}
    for item in sorted(found.jobs, key=lambda job: to_number(job.get("started")) or 0.0):
        job = to_text(item.get("job"), limit=40)
        started, ended = to_number(item.get("started")), to_number(item.get("ended"))
        asked, code = submitted.get(job), to_integer(item.get("exit_code"))
        waited = started - asked if started is not None and asked is not None else None
        purpose = to_text(item.get("purpose"), limit=40)
        yield Stage(
            name=f"{to_text(item.get('name'), limit=80) or purpose} (job {job})",
            kind="job",
            status="ok" if code == 0 else to_text(item.get("reason"), limit=80) or "failed",
            seconds=max(0.0, ended - started) if started is not None and ended is not None else 0.0,
            queued=max(0.0, waited) if waited is not None else None,
            exit_code=code,
            note=" ".join(
                filter(None, [purpose, to_text(item.get("shape"), limit=40), to_text(item.get("nodes"), limit=80)])
            ),
            proves=purpose in ("smoke", "run"),
        )


def _status(
    found: ResultDocuments,
    workloads: Iterable[WorkloadResult],
    shapes: tuple[ShapeVerdict, ...],
    stages: tuple[Stage, ...],
) -> str:
    """Return the worst known status: of the build, the shapes, the workloads and the jobs.

    A build that passed without a check is `built`: nothing in its image was tested.
    """
    own = to_text(found.report.get("status"), limit=40)
    if own not in ("", "passed"):
        return own
    words = [*(workload.verdict for workload in workloads), *(shape.verdict for shape in shapes)]
    if "FAIL" in words:
        return "smoke-failed"
    if any(stage.status not in ("ok", "skipped") for stage in stages):
        return "failed"
    return "passed" if words or to_list(found.report.get("checks")) else "built"


def _facts(found: ResultDocuments) -> dict[str, str]:
    """Collect the facts of the environment in display order; unknown ones are left out."""
    raw, report, plan = found.list_workload_results(), found.report, found.plan
    torch = {**to_dict(next((result["torch"] for result in raw if to_dict(result.get("torch"))), {}))}
    proof = to_dict(report.get("proof"))
    version = to_text(proof.get("torch"), limit=80) or to_text(torch.get("version"), limit=80)
    builds = {**torch, **proof}
    built = [f"{title} {to_text(builds[key], limit=40)}" for key, title in TORCH_BUILD_NAMES.items() if builds.get(key)]
    architectures = [to_text(item, limit=40) for item in to_list(builds.get("architectures"), limit=100)]
    facts = {
        "recipe": to_text(plan.get("recipe"), limit=120),
        "site": to_text(plan.get("site"), limit=120),
        "backend": to_text(plan.get("backend"), limit=40),
        "base image": to_text(report.get("base") or plan.get("base")),
        "vendor": to_text(report.get("vendor") or plan.get("vendor"), limit=40),
        "torch": version,
        "torch built for": ", ".join(dict.fromkeys(built)) or ("CPUs" if version else ""),
        "architectures": ", ".join(filter(None, architectures)),
        "Python": to_text(proof.get("python"), limit=40) or _all(raw, "python"),
        "devices": ", ".join(dict.fromkeys(filter(None, (format_device(result.get("device")) for result in raw)))),
        "hosts": _hosts(raw),
        "machine": _all(raw, "machine"),
        "tool": to_text(report.get("tool") or plan.get("tool"), limit=80),
        "started": to_text(report.get("started"), limit=40),
    }
    versions = {
        to_text(key, limit=40): to_text(value, limit=80) for key, value in to_dict(report.get("versions")).items()
    }
    return {key: value for key, value in {**facts, **versions}.items() if key and value}


def _all(raw: Iterable[Mapping[str, Any]], key: str) -> str:
    return ", ".join(dict.fromkeys(filter(None, (to_text(result.get(key), limit=80) for result in raw))))


def _hosts(raw: Iterable[Mapping[str, Any]]) -> str:
    entries = [entry for result in raw for entry in [result, *map(to_dict, to_list(result.get("ranks")))]]
    hosts = list(dict.fromkeys(filter(None, (to_text(entry.get("host"), limit=80) for entry in entries))))
    more = f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    return ", ".join(hosts[:8]) + more


def _order(workload: WorkloadResult) -> tuple[int, str, int, str]:
    shape = SHAPES.index(workload.shape) if workload.shape in SHAPES else len(SHAPES)
    name = WORKLOADS.index(workload.name) if workload.name in WORKLOADS else len(WORKLOADS)
    return shape, workload.shape, name, workload.name


def _order_of_shape(item: tuple[str, Any]) -> tuple[int, str]:
    return (SHAPES.index(item[0]) if item[0] in SHAPES else len(SHAPES), item[0])
