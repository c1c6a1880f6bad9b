"""Results: all measurements of an image, from its report, the results of its shapes and its jobs.

The results of workloads are read tolerantly: missing or invalid values are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from builder.model.report import SmokeCheck
from builder.model.text import to_dict, to_integer, to_list, to_number, to_numbers, to_text
from builder.smoke.check_probe import format_cores

Verdict = Literal["pass", "FAIL"]
# Display order: first the properties of the machine, then its performance.
WORKLOADS = ("imports", "probe", "startup", "mnist", "ddp", "pi", "allreduce", "mpi")
SHAPES = ("", "one", "ranks", "gpu", "node", "nodes")


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One rank of a distributed workload."""

    rank: int
    local_rank: int | None = None
    host: str = ""
    device: str = ""
    affinity: str = ""  # its cores, e.g. "0-6,8"
    checksum: str = ""  # of its parameters
    seconds: float | None = None
    ended: str = ""  # how it ended, "" if unknown
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """One size of a bandwidth sweep: seconds an operation, bandwidths in GB/s (nccl-tests' definitions)."""

    size: int  # bytes
    seconds: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    correct: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """The measurements of a training; `losses` is a curve of evenly spaced steps, `images` counts all ranks."""

    steps: int | None = None
    losses: tuple[float, ...] = ()
    first_loss: float | None = None
    last_loss: float | None = None
    accuracy: float | None = None
    accuracies: tuple[float, ...] = ()  # one per epoch
    images: int | None = None


@dataclass(frozen=True, kw_only=True)
class WorkloadResult:
    """One workload of the smoke suite; `shape` is "" if it ran as a step of the build."""

    name: str
    shape: str = ""
    verdict: Verdict = "FAIL"
    error: str = ""
    host: str = ""
    device: str = ""
    backend: str = ""
    world: int = 1
    seconds: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[SmokeCheck, ...] = ()
    training: Training = Training()
    sweep: tuple[Transfer, ...] = ()
    floors: tuple[tuple[int, float], ...] = ()  # (bytes, GB/s of bus bandwidth)
    ranks: tuple[Rank, ...] = ()
    pi: float | None = None

    @property
    def title(self) -> str:
        """Shape, name and number of ranks, as tables show them."""
        where = f"{self.shape}/{self.name}" if self.shape else self.name
        return f"{where} ×{self.world}" if self.world > 1 else where


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step of the build or a job: the seconds that it ran and that it waited in the queue."""

    name: str
    kind: Literal["step", "job"] = "step"
    status: str = ""
    seconds: float = 0.0
    queued: float | None = None
    exit_code: int | None = None
    note: str = ""
    proves: bool = False  # it tests the image and does not build it
    fix: str = ""
    log: str = ""  # path below the plan folder
    tail: tuple[str, ...] = ()  # last lines of the log of a step that failed, masked


@dataclass(frozen=True, kw_only=True)
class ShapeVerdict:
    """The verdict over all workloads of one shape."""

    shape: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file of the build that was there when the results were read."""

    title: str
    path: str


@dataclass(frozen=True, kw_only=True)
class SbomPackage:
    """A package in the image, as its SBOM lists it; `kind` is that of its package URL: pypi, conda, deb, rpm."""

    name: str
    version: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Results:
    """All measurements of one image; sizes in bytes, times in seconds."""

    name: str
    source: str  # the path it was read from
    status: str
    image: str = ""
    image_bytes: int | None = None
    image_sha256: str = ""
    stages: tuple[Stage, ...] = ()
    workloads: tuple[WorkloadResult, ...] = ()
    shapes: tuple[ShapeVerdict, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # of the environment, in display order
    packages: Mapping[str, str] = field(default_factory=dict)  # asked -> became
    findings: tuple[str, ...] = ()  # of the build
    damaged: tuple[str, ...] = ()  # files that could not be read
    image_path: str = ""  # of the image next to the plan folder, "" where there is none
    image_now: str = ""  # what is wrong with the image as it is now, "" where nothing is known to be
    earlier_image: str = ""  # when it was built, where the last build did not come to an image (ISO 8601); else ""
    artifacts: tuple[Artifact, ...] = ()
    installed: tuple[SbomPackage, ...] = ()

    @property
    def is_built(self) -> bool:
        """Whether the build came to its end; its smoke test may have failed."""
        return self.status not in ("failed", "interrupted")

    @property
    def notes(self) -> tuple[str, ...]:
        return self.findings + self.damaged

    @property
    def build_seconds(self) -> float | None:
        """Seconds of the build steps without the smoke test; None if nothing was built."""
        found = [stage.seconds for stage in self.stages if not stage.proves and stage.kind == "step" and stage.seconds]
        return sum(found) if found else None


RANK_LIMIT = 4096
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|)")
_UNITS = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def read_workload_result(
    value: object, *, name: str, shape: str = "", checks: tuple[SmokeCheck, ...] | None = None
) -> WorkloadResult:
    """Read one result; `checks`, a later judgement, replace its own."""
    if not isinstance(value, dict):
        return WorkloadResult(name=name, shape=shape, error="it left no result", checks=checks or ())
    found = checks if checks is not None else read_checks(value.get("checks"))
    error = "" if value.get("error") is None else to_text(value["error"]) or "of an unknown kind"
    passed = value.get("verdict") == "pass" if checks is None else bool(checks) and all(check.ok for check in checks)
    ranks = _ranks(value.get("ranks"))
    return WorkloadResult(
        name=name,
        shape=shape,
        verdict="pass" if passed and not error else "FAIL",
        error=error,
        host=to_text(value.get("host"), limit=80),
        device=format_device(value.get("device")),
        backend=to_text(value.get("backend"), limit=40),
        world=_world(value, ranks),
        seconds=read_seconds(value),
        checks=found,
        training=_training(value, ranks=value.get("ranks")),
        sweep=tuple(sorted(_sweep(value.get("sweep")), key=lambda transfer: transfer.size)),
        floors=tuple(sorted({*_floors(to_dict(value.get("expected")).get("floors")), *_floors(value.get("floors"))})),
        ranks=ranks,
        pi=to_number(value.get("pi")),
    )


def read_checks(value: object) -> tuple[SmokeCheck, ...]:
    return tuple(
        SmokeCheck(
            name=to_text(item.get("name"), limit=80),
            ok=item.get("ok") is True,
            measured=to_text(item.get("measured")),
            expected=to_text(item.get("expected")),
        )
        for item in map(to_dict, to_list(value, limit=1000))
        if item
    )


def read_seconds(value: Mapping[str, Any]) -> dict[str, float]:
    """Read the times of a result by name; a bare number is the total."""
    found = value.get("seconds")
    times = found if isinstance(found, dict) else {"total": found}
    # imports are timed one by one; torch's is the slowest
    for item in map(to_dict, to_list(value.get("imports"), limit=100)):
        if item.get("name") == "torch":
            times = {"import": item.get("seconds"), **times}
    pairs = ((to_text(key, limit=40), to_number(item)) for key, item in times.items())
    return {key: item for key, item in pairs if key and item is not None and item >= 0}


def format_device(value: object) -> str:
    """Return the name of a device, with its architecture if known."""
    device = to_dict(value)
    name, architecture = to_text(device.get("name"), limit=80), to_text(device.get("architecture"), limit=40)
    return f"{name} ({architecture})" if name and architecture else name or to_text(device.get("type"), limit=40)


def _world(value: Mapping[str, Any], ranks: tuple[Rank, ...]) -> int:
    named = (to_integer(value.get("world")), to_integer(to_dict(value.get("expected")).get("ranks")), len(ranks))
    return next((count for count in named if count is not None and count > 0), 1)


def _ranks(value: object) -> tuple[Rank, ...]:
    entries = [
        item for item in map(to_dict, to_list(value, limit=RANK_LIMIT)) if to_integer(item.get("rank")) is not None
    ]
    return tuple(sorted(map(_rank, entries), key=lambda rank: rank.rank))


def _rank(item: Mapping[str, Any]) -> Rank:
    cores = [core for entry in to_list(item.get("affinity"), limit=4096) if (core := to_integer(entry)) is not None]
    checksum = to_text(item.get("checksum"), limit=80)
    ended = to_text(item.get("ended"), limit=80)
    if not ended and item.get("finished") is not None:
        ended = "finished" if item["finished"] is True else f"did not finish ({to_text(item.get('state'), limit=40)})"
    return Rank(
        rank=to_integer(item.get("rank")) or 0,
        local_rank=to_integer(item.get("local_rank")),
        host=to_text(item.get("host"), limit=80),
        device=format_device(item.get("device")),
        affinity=format_cores(sorted(set(cores)), most=len(cores)) or to_text(item.get("affinity"), limit=80),
        checksum=checksum[:12],
        seconds=read_seconds(item).get("total"),
        ended=ended,
        error=to_text(item.get("error")),
    )


def _training(value: Mapping[str, Any], *, ranks: object) -> Training:
    found = to_dict(value.get("training"))
    counts = [to_integer(to_dict(item).get("samples")) for item in to_list(ranks, limit=RANK_LIMIT)]
    known = [count for count in counts if count is not None]
    train, epochs = to_integer(to_dict(value.get("data")).get("train")), to_integer(found.get("epochs_run"))
    alone = train * epochs if train is not None and epochs is not None else None
    accuracies = found.get("accuracies", value.get("accuracies"))
    return Training(
        steps=to_integer(found.get("steps")),
        losses=to_numbers(found.get("losses")),
        first_loss=to_number(found.get("first_loss")),
        last_loss=to_number(found.get("last_loss")),
        accuracy=to_number(value.get("accuracy")),
        accuracies=to_numbers(accuracies),
        images=sum(known) if known else alone,
    )


def _sweep(value: object) -> Iterable[Transfer]:
    for item in map(to_dict, to_list(value, limit=200)):
        size = to_integer(item.get("bytes"))
        if size is not None and size > 0:
            correct = item.get("correct")
            yield Transfer(
                size=size,
                seconds=to_number(item.get("seconds")),
                algbw=to_number(item.get("algbw")),
                busbw=to_number(item.get("busbw")),
                correct=correct if isinstance(correct, bool) else None,
            )


def _floors(value: object) -> Iterable[tuple[int, float]]:
    """Read bandwidth floors by size: {"128MiB": 85.0} or {"134217728": 85.0}."""
    for key, item in list(to_dict(value).items())[:100]:
        found, floor = _SIZE.fullmatch(key), to_number(item)
        if found is not None and floor is not None and floor > 0 and len(found[1]) < 16:
            yield int(found[1]) * _UNITS[found[2]], floor
