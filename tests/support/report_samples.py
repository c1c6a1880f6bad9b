"""Hand-made results of every workload, for tests of the report; figures of real runs are in docs/report.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MIB = 1 << 20


def check(name: str, ok: bool, measured: object, expected: object) -> dict[str, Any]:
    """One judgement as a workload writes it."""
    return {"name": name, "ok": ok, "measured": measured, "expected": expected}


def result(workload: str, **fields: Any) -> dict[str, Any]:
    """What every result has."""
    return {
        "schema": 1,
        "workload": workload,
        "verdict": "pass",
        "error": None,
        "host": "n1",
        "python": "3.12.1",
        "machine": "x86_64",
        "torch": {"version": "2.8.0+rocm6.4", "hip": "6.4.1", "cuda": None, "architectures": ["gfx90a", "gfx942"]},
        "device": {"type": "cuda", "name": "AMD Instinct MI250X", "architecture": "gfx90a"},
        "seconds": {"total": 21.5},
        "checks": [check("error", True, "none", "none")],
        **fields,
    }


def ranks(world: int) -> list[dict[str, Any]]:
    """A record a rank, four to a node."""
    return [
        {
            "rank": rank,
            "local_rank": rank % 4,
            "host": f"n{rank // 4 + 1}",
            "affinity": list(range(rank % 4 * 8 + 1, rank % 4 * 8 + 8)),
            "device": {"name": "AMD Instinct MI250X", "architecture": "gfx90a"},
            "checksum": "618b859b4ae5312bbca10dca02ff0c561f5b103ffb665697f258950c7b34f914",
            "samples": 1500,
            "seconds": {"total": 15.5 + rank / 100},
            "finished": True,
            "ended": "exit status 0",
        }
        for rank in range(world)
    ]


def training(*, world: int, speed: float = 1.0) -> dict[str, Any]:
    """Fields of a training over so many ranks."""
    losses = [2.3 * 0.985**step + 0.1 + 0.15 * ((step * 7919) % 13 - 6) / 6 * 0.99**step for step in range(180)]
    seconds = 40.0 / world**0.9 / speed
    return {
        "data": {"source": "drawn", "train": 4000, "test": 1000},
        "training": {
            "steps": 180, "epochs": 3, "epochs_run": 3, "first_loss": 2.2, "last_loss": 0.19, "losses": losses,
            "non_finite": 0,
        },
        "accuracy": 0.981,
        "accuracies": [0.91, 0.967, 0.981],
        "seconds": {"import": 1.4, "data": 0.3, "train": seconds, "total": seconds + 3.1},
        "checks": [check("error", True, "none", "none"), check("accuracy", True, 0.981, ">= 0.9")],
    }  # fmt: skip


def sweep(world: int, *, peak: float) -> list[dict[str, Any]]:
    """A sweep from 32 KiB to 1 GiB whose bandwidth rises to a peak."""
    rows = []
    for power in range(15, 31):
        size = 1 << power
        bus = peak * size / (size + 4 * MIB)
        algorithm = bus / (2 * (world - 1) / world)
        rows.append(
            {"bytes": size, "seconds": size / algorithm / 1e9, "algbw": algorithm, "busbw": bus, "correct": True}
        )
    return rows


def suite(world: int, *, peak: float = 92.0) -> dict[str, dict[str, Any]]:
    """Every workload of a shape over nodes."""
    bus = next(row["busbw"] for row in sweep(world, peak=peak) if row["bytes"] == 128 * MIB)
    floor = check("busbw at 128 MiB", bus >= 85, f"{bus:.1f} GB/s", ">= 85 GB/s")
    return {
        "probe": result("probe", ranks=ranks(world), backend="nccl"),
        "ddp": result("ddp", **training(world=world), ranks=ranks(world), backend="nccl"),
        "pi": result("pi", pi=3.141592653589793, steps=10**8, world=world, backend="gloo"),
        "allreduce": result(
            "allreduce",
            sweep=sweep(world, peak=peak),
            floors={"128MiB": 85.0},
            world=world,
            backend="nccl",
            checks=[floor],
            verdict="pass" if floor["ok"] else "FAIL",
        ),
        "startup": result(
            "startup",
            seconds={
                "exec_to_python": 0.8, "import_torch": 3.2, "first_device": 1.1, "first_step": 0.6,
                "exec_to_first_step": 5.7, "total": 5.9,
            },
        ),
    }  # fmt: skip


def report(*, status: str = "passed", speed: float = 1.0) -> dict[str, Any]:
    """A report.json of a build."""
    mnist = result("mnist", **training(world=1, speed=speed))
    return {
        "schema": 1,
        "target": "digits.lumi-g.apptainer",
        "status": status,
        "image": "/scratch/digits.sif",
        "image_bytes": 4_352_919_552,
        "image_sha256": "729d24847aacc6cf8e18eaa2618e5e8a9b33f9ab8dfd281e75b9e1ae7a627af3",
        "seconds": 400.0,
        "steps": [
            {"name": "build-image", "status": "ok", "seconds": 260.0 / speed, "exit_code": 0, "finding": None},
            {"name": "convert", "status": "ok", "seconds": 40.0, "exit_code": 0, "finding": None},
            {"name": "smoke", "status": "ok", "seconds": 62.8, "exit_code": 0, "finding": None},
        ],
        "checks": [{**one, "name": f"mnist: {one['name']}"} for one in mnist["checks"]],
        "smoke": {"mnist": mnist},
        "proof": {"torch": "2.8.0+rocm6.4", "hip": "6.4.1", "python": "3.12.1", "architectures": ["gfx90a"]},
        "versions": {"apptainer": "apptainer version 1.4.5"},
        "findings": [],
    }


def plan() -> dict[str, Any]:
    """What a report reads of a plan.json."""
    return {
        "schema": 1,
        "target": "digits.lumi-g.apptainer",
        "recipe": "digits",
        "site": "lumi-g",
        "backend": "apptainer",
        "vendor": "amd",
        "base": "/appl/local/containers/rocm-6.4.sif",
        "tool": "recipe 0.1.0",
        "steps": [{"name": "build-image", "kind": "build"}, {"name": "smoke", "kind": "smoke"}],
        "packages": [{"asked": "torch==2.8.0", "became": "torch==2.8.0+rocm6.4", "why": "the site's GPUs"}],
    }


def kit(folder: Path, *, worlds: dict[str, int] | None = None, peak: float = 92.0, speed: float = 1.0) -> Path:
    """Write a plan folder in which a build and jobs of several shapes have run."""
    put(folder / "report.json", report(speed=speed))
    put(folder / "plan.json", plan())
    for shape, world in (worlds or {"node": 4, "nodes": 8}).items():
        found = suite(world, peak=peak)
        for name, content in found.items():
            put(folder / "results" / shape / f"{name}.json", content)
            put(folder / "results" / shape / f"{name}.json.rank0.json", {"rank": 0})
        failed = [name for name, content in found.items() if content["verdict"] == "FAIL"]
        verdict = {
            "schema": 1,
            "verdict": "FAIL" if failed else "pass",
            "reason": f"{failed[0]} failed" if failed else None,
            "workloads": {
                name: {"verdict": content["verdict"], "seconds": content["seconds"]["total"], "error": None,
                       "checks": content["checks"]}
                for name, content in found.items()
            },
        }  # fmt: skip
        put(folder / "results" / shape / "verdict.json", verdict)
    job = {"schema": 1, "job": "123", "name": "digits-nodes", "purpose": "smoke", "exit_code": 0, "reason": "",
           "started": 1000.0, "ended": 1180.0, "nodes": "n[1-2]", "shape": "nodes"}  # fmt: skip
    put(folder / "jobs" / "123.json", job)
    put(folder / "jobs" / "submitted.json", {"schema": 1, "jobs": [{"job": "123", "submitted": 940.0}]})
    return folder


def put(path: Path, content: object) -> Path:
    """Write JSON, with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
