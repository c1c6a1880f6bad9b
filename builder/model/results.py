"""Results: everything that was measured of one image, from its report, its shapes' results and its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.model.report import SmokeCheck

Verdict = Literal["pass", "FAIL"]
# The order in which workloads are told: first what the machine is, then what it does.
WORKLOADS = ("imports", "probe", "startup", "mnist", "ddp", "pi", "allreduce")
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
    ended: str = ""  # how, "" when nothing is known
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
    """What a training did; `losses` is a curve of evenly spaced steps, images count all ranks together."""

    steps: int | None = None
    losses: tuple[float, ...] = ()
    first_loss: float | None = None
    last_loss: float | None = None
    accuracy: float | None = None
    accuracies: tuple[float, ...] = ()  # one an epoch
    images: int | None = None


@dataclass(frozen=True, kw_only=True)
class WorkloadResult:
    """One workload of the smoke suite; `shape` is "" where it ran as a step of the build."""

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
        """Its name as it stands in tables: the shape it ran in, and over how many ranks."""
        where = f"{self.shape}/{self.name}" if self.shape else self.name
        return f"{where} ×{self.world}" if self.world > 1 else where


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step of the build or a job: seconds it ran, and those it waited in the queue."""

    name: str
    kind: Literal["step", "job"] = "step"
    status: str = ""
    seconds: float = 0.0
    queued: float | None = None
    exit_code: int | None = None
    note: str = ""
    proves: bool = False  # it tests the image, and is no part of building it


@dataclass(frozen=True, kw_only=True)
class ShapeVerdict:
    """The verdict over all workloads of one shape."""

    shape: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that was measured of one image; sizes in bytes, times in seconds."""

    name: str
    source: str  # the path it was read from
    status: str
    image: str = ""
    image_bytes: int | None = None
    image_sha256: str = ""
    stages: tuple[Stage, ...] = ()
    workloads: tuple[WorkloadResult, ...] = ()
    shapes: tuple[ShapeVerdict, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # of the environment, in the order of telling
    packages: Mapping[str, str] = field(default_factory=dict)  # asked -> became
    findings: tuple[str, ...] = ()  # of the build
    damaged: tuple[str, ...] = ()  # files that could not be read

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth a reader's eye."""
        return self.findings + self.damaged

    @property
    def build_seconds(self) -> float | None:
        """Seconds of the build's steps without the smoke test, None when nothing was built."""
        found = [stage.seconds for stage in self.stages if not stage.proves and stage.kind == "step" and stage.seconds]
        return sum(found) if found else None
