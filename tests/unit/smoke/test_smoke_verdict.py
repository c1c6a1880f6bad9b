"""The verdict: every check passes on a good result, fails on its own fault, and survives any alteration."""

import copy
import json
import math
from typing import Any

import pytest
from support.results import MNIST
from support.rows import rows

from builder.smoke.check_probe import covers, format_cores, parse_mask
from builder.smoke.checks import Check, find_vendor
from builder.smoke.verdict import has_passed, judge


def rank(number: int, host: str = "a", count: int = 4) -> dict[str, Any]:
    return {
        "rank": number,
        "host": host,
        "finished": True,
        "state": "reporting",
        "device": {"type": "cuda", "count": count, "identity": f"{host} gpu {number}"},
        "samples": 4000,
        "last_loss": 0.3,
        "checksum": "after",
        "initial_checksum": f"before {number}",
        "orders": [f"rank {number} epoch {epoch}" for epoch in range(2)],
    }


DDP: dict[str, Any] = copy.deepcopy(MNIST) | {
    "workload": "ddp",
    "backend": "nccl",
    "ranks": [rank(0), rank(1), rank(2, "b"), rank(3, "b")],
}
DDP["expected"] = MNIST["expected"] | {"ranks": 4}
IMPORTS: dict[str, Any] = {
    "schema": 1,
    "workload": "imports",
    "error": None,
    "expected": {"modules": ["torch", "numpy"], "seconds": 600.0},
    "imports": [
        {"name": "torch", "error": None, "version": "2.6.0", "seconds": 1.2},
        {"name": "numpy", "error": None, "version": None, "seconds": 0.1},
    ],
    "seconds": {"total": 1.4},
}


def probed(number: int) -> dict[str, Any]:
    """What one rank of LUMI's would tell: the masks of its first two devices, whose cores are 49-55 and 57-63."""
    return {
        "rank": number,
        "local_rank": number,
        "host": "nid1",
        "finished": True,
        "state": "reporting",
        "device": {"type": "cuda", "count": 1, "identity": f"gcd {number}", "architecture": "gfx90a:sramecc+:xnack-"},
        "devices": [{"index": 0, "identity": f"gcd {number}", "architecture": "gfx90a:sramecc+:xnack-"}],
        "affinity": list(range(49 + 8 * number, 56 + 8 * number)),
        "variables": {"NCCL_NET_GDR_LEVEL": "3", "LOCAL_RANK": "0"},
        "network": {"used": "AWS Libfabric", "lines": ["NET/OFI Using aws-ofi-rccl 1.4.0"], "libraries": []},
        "caches": [{"name": "MIOPEN_USER_DB_PATH", "path": "/tmp/miopen", "filesystem": "tmpfs"}],
        "workers": {"fork": {"error": None, "seconds": 0.1}, "spawn": {"error": None, "seconds": 2.0}},
        "sum_right": True,
    }


PROBE: dict[str, Any] = {
    "schema": 1,
    "workload": "probe",
    "error": None,
    "expected": {
        "device": "cuda",
        "vendor": "amd",
        "torch": None,
        "seconds": 600.0,
        "ranks": 2,
        "masks": ["0xfe000000000000", "0xfe00000000000000"],
        "cores": 7,
        "devices": 2,
        "gfx": "gfx90a",
        "network": "aws-ofi|NET/OFI",
        "variables": {"NCCL_NET_GDR_LEVEL": "3"},
        "caches": ["/users"],
    },
    "torch": {"version": "2.6.0+rocm6.2.4", "cuda": None, "hip": "6.2", "architectures": ["gfx906", "gfx90a"]},
    "device": {"type": "cuda", "index": 0, "count": 1, "name": "AMD Instinct MI250X"},
    "backend": "nccl",
    "ranks": [probed(0), probed(1)],
    "seconds": {"total": 9.0},
}
PI: dict[str, Any] = {
    "schema": 1,
    "workload": "pi",
    "error": None,
    "expected": {"seconds": 600.0, "ranks": 2, "torch": None},
    "torch": {"version": "2.6.0"},
    "pi": math.pi + 1e-13,
    "steps": 20_000_001,
    "ranks": [
        {"rank": number, "finished": True, "pi": math.pi + 1e-13, "trapezoids": share, "seconds": {"part": 0.2}}
        for number, share in enumerate((10_000_001, 10_000_000))
    ],
    "seconds": {"total": 3.0},
}


def measured(size: int, seconds: float, world: int = 8) -> dict[str, Any]:
    algorithm = size / seconds / 1e9
    bus = algorithm * 2 * (world - 1) / world
    return {"bytes": size, "seconds": seconds, "algbw": algorithm, "busbw": bus, "correct": True, "iterations": 20}


ALLREDUCE: dict[str, Any] = {
    "schema": 1,
    "workload": "allreduce",
    "error": None,
    "expected": {
        "device": "auto", "vendor": "amd", "seconds": 600.0, "ranks": 2, "floors": {"134217728": 85.0},
    },
    "torch": PROBE["torch"],
    "device": PROBE["device"],
    "backend": "nccl",
    "world": 8,
    "sweep": [measured(32768, 20e-6), measured(134217728, 0.0025)],
    "ranks": [probed(0), probed(1)],
    "seconds": {"total": 40.0},
}  # fmt: skip
PHASES = {"exec_to_python": 0.4, "import_torch": 2.5, "first_device": 0.8, "first_step": 0.6, "exec_to_first_step": 4.3}
STARTUP: dict[str, Any] = {
    "schema": 1,
    "workload": "startup",
    "error": None,
    "expected": {"device": "auto", "vendor": "amd", "seconds": 600.0, "ranks": 2},
    "torch": PROBE["torch"],
    "device": PROBE["device"],
    "ranks": [{"rank": number, "finished": True, "seconds": dict(PHASES)} for number in range(2)],
    "seconds": {**PHASES, "total": 5.0},
}
MPI: dict[str, Any] = {
    "schema": 1,
    "workload": "mpi",
    "error": None,
    "expected": {"seconds": 600.0, "ranks": 2, "mpi": "host"},
    "ranks": [
        {
            "rank": number,
            "host": f"n{number}",
            "finished": True,
            "mpi": {
                "size": 2, "rank": number, "sum": 3, "left": 1 - number, "hosts": ["n0", "n1"],
                "version": "CRAY MPICH version 9.0.1", "library": "/opt/cray/libmpi.so.12", "from": "host",
            },
            "seconds": {},
        }
        for number in range(2)
    ],
    "seconds": {"total": 1.0},
}  # fmt: skip
GOOD = {
    "mnist": MNIST,
    "ddp": DDP,
    "imports": IMPORTS,
    "probe": PROBE,
    "pi": PI,
    "allreduce": ALLREDUCE,
    "startup": STARTUP,
    "mpi": MPI,
}


def altered(result: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one field set, or taken away when the value is KeyError."""
    copied = copy.deepcopy(result)
    *outer, last = path.split(".")
    place: Any = copied
    for key in outer:
        place = place[int(key) if isinstance(place, list) else key]
    last = int(last) if isinstance(place, list) else last  # type: ignore[assignment]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return copied


def failed(result: object) -> list[str]:
    return [check.name for check in judge(result) if not check.ok]


@rows("workload", GOOD)
def test_a_good_result_passes(workload: str) -> None:
    assert failed(GOOD[workload]) == []
    assert has_passed(judge(GOOD[workload]))


FAULTS: list[tuple[dict[str, Any], str, object, list[str]]] = [
    (MNIST, "schema", 2, ["schema"]),
    (MNIST, "schema", True, ["schema"]),
    (MNIST, "workload", "rm", ["workload"]),
    (MNIST, "error", "torch cannot be imported", ["error"]),
    (MNIST, "error", KeyError, ["error"]),
    (MNIST, "accuracy", 0.9499, ["accuracy"]),
    (MNIST, "accuracy", 1.01, ["accuracy"]),
    (MNIST, "accuracy", math.nan, ["accuracy"]),
    (MNIST, "accuracy", "nan", ["accuracy"]),
    (MNIST, "accuracy", "0.97", ["accuracy"]),
    (MNIST, "accuracy", True, ["accuracy"]),
    (MNIST, "data.source", "cifar", ["accuracy"]),
    (MNIST, "training.last_loss", 1.2, ["loss falls"]),
    (MNIST, "training.last_loss", math.inf, ["loss falls"]),
    (MNIST, "training.first_loss", "inf", ["loss falls"]),
    (MNIST, "training.first_loss", 10**400, ["loss falls"]),
    (MNIST, "training.non_finite", 1, ["losses finite"]),
    (MNIST, "training", KeyError, ["loss falls", "losses finite"]),
    (MNIST, "device.type", "cpu", ["vendor"]),
    (MNIST, "torch.hip", "6.2", ["vendor"]),
    (MNIST, "torch.cuda", None, ["vendor"]),
    (MNIST, "device.type", "xpu", ["vendor"]),
    (MNIST, "expected.device", "xpu", ["device"]),
    (MNIST, "device", KeyError, ["device", "vendor"]),
    (MNIST, "torch.version", "2.5.0+cu124", ["torch"]),
    (MNIST, "expected.torch", "2.6.0+cu126", ["torch"]),
    (MNIST, "seconds.total", 601, ["seconds"]),
    (MNIST, "seconds.total", -1, ["seconds"]),
    (MNIST, "expected.seconds", KeyError, ["seconds"]),
    (DDP, "ranks.1", KeyError, ["ranks", "parameters agree", "samples"]),
    (DDP, "ranks.1.finished", False, ["ranks"]),
    (DDP, "ranks.1.ended", "killed by SIGKILL", ["ranks"]),
    (DDP, "ranks.1.rank", 0, ["ranks"]),
    (DDP, "ranks.1.rank", 4, ["ranks"]),
    (DDP, "ranks.1.orders", ["rank 1 epoch 0", "rank 1 epoch 0"], ["reshuffled"]),
    (DDP, "ranks.1.orders", ["rank 0 epoch 0", "rank 1 epoch 1"], ["reshuffled"]),
    (DDP, "ranks.1.orders", ["rank 1 epoch 0"], ["reshuffled"]),
    (DDP, "ranks.1.orders", KeyError, ["reshuffled"]),
    (DDP, "ranks.1.checksum", "other", ["parameters agree"]),
    (DDP, "ranks.1.checksum", "", ["parameters agree"]),
    (DDP, "ranks.1.initial_checksum", "after", ["parameters agree"]),
    (DDP, "ranks.1.samples", 0, ["samples"]),
    (DDP, "ranks.1.last_loss", "nan", ["rank losses finite"]),
    (DDP, "ranks.1.device.identity", "a gpu 0", ["gpus"]),
    (DDP, "ranks.1.device.type", "cpu", ["one kind of device"]),
    (DDP, "backend", "gloo", ["backend"]),
    (DDP, "expected.ranks", 8, ["ranks", "parameters agree", "samples"]),
    (DDP, "expected.ranks", None, ["ranks", "parameters agree", "samples"]),
    (DDP, "data.train", 16000, ["samples"]),
    (MPI, "ranks.1.mpi.size", 1, ["mpi world"]),
    (MPI, "ranks.1.mpi.rank", 0, ["mpi world"]),
    (MPI, "ranks.1.mpi.sum", 2, ["mpi sum"]),
    (MPI, "ranks.1.mpi.left", 1, ["mpi neighbours"]),
    (MPI, "ranks.1.mpi.hosts", ["n1"], ["mpi hosts"]),
    (MPI, "ranks.1.mpi.from", "image", ["mpi library"]),
    (MPI, "ranks.1.mpi.library", "/usr/lib/libmpi.so.12", ["mpi library"]),
    (MPI, "ranks.1.mpi", KeyError, ["mpi world", "mpi sum", "mpi neighbours", "mpi hosts", "mpi library"]),
    (MPI, "expected.ranks", 4, ["ranks", "mpi world", "mpi sum", "mpi neighbours"]),
    (MPI, "expected.ranks", None, ["ranks", "mpi world", "mpi sum", "mpi neighbours"]),
    (PROBE, "ranks.1.affinity", [56, 57], ["affinity", "cores"]),
    (PROBE, "ranks.1.affinity", list(range(49, 56)), ["affinity"]),
    (PROBE, "ranks.1.affinity", list(range(64)), ["affinity"]),
    (PROBE, "ranks.1.affinity", [57], ["cores"]),
    (PROBE, "ranks.1.affinity", [], ["affinity", "cores"]),
    (PROBE, "ranks.1.local_rank", 2, ["affinity"]),
    (PROBE, "ranks.1.devices", [], ["devices"]),
    (PROBE, "ranks.1.devices.0.identity", "gcd 0", ["devices"]),
    (PROBE, "ranks.1.variables.LOCAL_RANK", "1", ["LOCAL_RANK"]),  # of torchrun's kind, where one device is visible
    (PROBE, "ranks.1.device.identity", "gcd 0", ["gpus"]),
    (PROBE, "ranks.1.device.architecture", "gfx942", ["architecture"]),
    (PROBE, "torch.architectures", ["gfx942"], ["kernels"]),
    (PROBE, "torch.architectures", KeyError, ["kernels"]),
    (PROBE, "ranks.1.network.lines", ["Using network Socket"], ["network"]),
    (PROBE, "ranks.1.variables", {"NCCL_NET_GDR_LEVEL": "PHB"}, ["variable NCCL_NET_GDR_LEVEL"]),
    (PROBE, "ranks.1.variables", KeyError, ["variable NCCL_NET_GDR_LEVEL"]),
    (PROBE, "ranks.1.caches.0.filesystem", "lustre", ["caches"]),
    (PROBE, "ranks.1.caches.0.path", "/users/a/.cache", ["caches"]),
    (PROBE, "ranks.1.workers.fork.error", "hung for 30 s", ["workers by fork"]),
    (PROBE, "ranks.1.workers", KeyError, ["workers by fork"]),
    (PROBE, "ranks.0.workers.spawn.error", "failed: No module named torch", ["workers by spawn"]),
    (PROBE, "ranks.1.sum_right", False, ["first sum"]),
    (PROBE, "ranks.1.finished", False, ["ranks"]),
    (PI, "pi", 3.14159, ["pi", "ranks agree"]),
    (PI, "steps", 20_000_000, ["shares"]),
    (PI, "ranks.1.pi", 3.0, ["ranks agree"]),
    (PI, "ranks.1.trapezoids", 0, ["shares"]),
    (PI, "ranks.1.seconds", {}, ["times"]),
    (ALLREDUCE, "sweep.1.correct", False, ["sums"]),
    (ALLREDUCE, "sweep.1.seconds", 0.005, ["figures"]),
    (ALLREDUCE, "sweep.1", measured(134217728, 0.0028), ["busbw at 128 MiB"]),
    (ALLREDUCE, "sweep.1", KeyError, ["busbw at 128 MiB"]),
    (ALLREDUCE, "sweep", [], ["sums", "figures", "busbw at 128 MiB"]),
    (ALLREDUCE, "world", 4, ["figures"]),
    (ALLREDUCE, "expected.floors", {"134217728": "much"}, ["busbw at 128 MiB"]),
    (STARTUP, "ranks.1.seconds.first_step", KeyError, ["phases"]),
    (STARTUP, "ranks.1.seconds.exec_to_python", -5.0, ["phases"]),
    (STARTUP, "seconds.exec_to_first_step", None, ["phases"]),
    (IMPORTS, "imports.1.error", "ImportError: libx.so", ["import numpy"]),
    (IMPORTS, "imports.1", KeyError, ["import numpy"]),
    (IMPORTS, "expected.modules", [], ["imports"]),
]


@rows(
    ("result", "path", "value", "names"),
    FAULTS,
    ids=[f"{r['workload']}-{path}-{str(v)[:9]}" for r, path, v, _ in FAULTS],
)
def test_a_fault_fails_its_own_check(result: dict[str, Any], path: str, value: object, names: list[str]) -> None:
    assert failed(altered(result, path, value)) == names


def test_one_rank_of_mpi_says_what_it_does_not_show() -> None:
    alone = altered(altered(MPI, "expected.ranks", 1), "ranks", copy.deepcopy(MPI["ranks"][:1]))
    alone["ranks"][0]["mpi"] |= {"size": 1, "sum": 1, "left": 0, "hosts": ["n0"]}
    measured = next(check.measured for check in judge(alone) if check.name == "mpi world")
    assert "one rank shows that an MPI loads, not that ranks meet" in str(measured)
    assert not any("one rank shows" in str(check.measured) for check in judge(MPI))


def test_a_share_is_less_what_was_trained_before() -> None:
    resumed = altered(altered(DDP, "training.resumed_step", 10), "training.batch", 16)
    assert failed(resumed) == ["samples"]
    for entry in resumed["ranks"]:
        entry["samples"] -= 160
    assert failed(resumed) == []


WRONG: list[object] = [None, True, -1, 1e308, math.nan, "x" * 1000, "\x1b[31m", [], {}, [[1]], {"a": None}, 10**5000]


def paths(value: object, before: str = "") -> list[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, inner in items:
        found += [f"{before}{key}", *paths(inner, f"{before}{key}.")]
    return found


@pytest.mark.property
@pytest.mark.parametrize("workload", GOOD)
def test_no_alteration_raises_or_prints_unprintable(workload: str) -> None:
    tried = 0
    for path in paths(GOOD[workload]):
        for value in [*WRONG, KeyError]:
            checks = judge(altered(GOOD[workload], path, value))
            assert checks
            for check in checks:
                assert str(check.measured).isprintable()
                assert len(str(check.measured)) < 1000
            json.dumps([vars(check) for check in checks], allow_nan=False)
            tried += 1
    assert tried > 100


@rows("result", [None, [], "pass", 1, {}, {"schema": 1}, {"verdict": "pass"}])
def test_what_is_no_result_fails(result: object) -> None:
    assert not has_passed(judge(result))


def test_no_checks_is_no_pass() -> None:
    assert not has_passed([])
    assert not has_passed([Check("a", True, 1, 1), Check("b", False, 1, 2)])


def test_the_callers_expectation_replaces_the_results_own() -> None:
    checks = judge(MNIST, {"vendor": "amd", "seconds": 600})
    assert [check.name for check in checks if not check.ok] == ["vendor"]
    assert next(check for check in checks if check.name == "vendor").measured == "nvidia (torch 2.6.0+cu124)"


def test_gpus_may_be_shared_only_where_there_are_too_few() -> None:
    crowded = copy.deepcopy(DDP)
    crowded["ranks"] = [rank(number, count=2) for number in range(4)]
    for number, entry in enumerate(crowded["ranks"]):
        entry["device"]["identity"] = f"gpu {number % 2}"
    assert failed(crowded) == []
    for entry in crowded["ranks"]:
        entry["device"]["count"] = 4  # now each could have had its own
    assert failed(crowded) == ["gpus"]
    for entry in crowded["ranks"]:
        entry["device"]["count"] = 1  # a launcher that binds GPUs gave two ranks the same one
    assert failed(crowded) == ["gpus"]


def test_ranks_that_share_a_gpu_by_mistake_are_named() -> None:
    """Each sees the devices of its node, and all take device 0."""
    result = copy.deepcopy(PROBE)
    for number, entry in enumerate(result["ranks"]):
        entry["device"].update(count=2, identity="gcd 0")
        entry["variables"]["LOCAL_RANK"] = str(number)
    (check,) = [check for check in judge(result) if not check.ok]
    assert (check.name, check.measured) == ("gpus", "1 GPUs on 1 hosts: ranks 0, 1 of nid1 use one")


def test_a_rank_that_disagrees_is_named() -> None:
    checks = {check.name: check for check in judge(altered(DDP, "ranks.2.checksum", "other"))}
    assert checks["parameters agree"].measured == "2 among 4 ranks: rank 2 differs from rank 0"


def test_an_unknown_floor_is_reported_as_unknown() -> None:
    result = altered(ALLREDUCE, "expected.floors", {})
    assert failed(result) == []
    assert next(check for check in judge(result) if check.name == "busbw").expected == "unknown: no floor is given"


@rows(
    ("kernels", "wanted", "covered"),
    [
        (["sm_80", "sm_90"], "sm_90", True),
        (["sm_80", "sm_86"], "sm_89", True),
        (["sm_80", "compute_80"], "sm_90", False),
        (["sm_90"], "sm_80", False),
        (["gfx906"], "gfx90a", False),
    ],
)
def test_kernels(kernels: list[str], wanted: str, covered: bool) -> None:
    assert covers(kernels, wanted) is covered


def test_cores_of_the_masks_of_lumi() -> None:
    assert parse_mask("0xfe000000000000") == set(range(49, 56))
    assert format_cores(sorted(parse_mask("0xfe") | {9})) == "1-7,9"


def test_a_finished_run_that_resumes_may_keep_its_parameters() -> None:
    idle = altered(DDP, "training.epochs_run", 0)
    for entry in idle["ranks"]:
        entry.update(samples=0, initial_checksum="after", orders=[])
    assert failed(idle) == []


@rows(
    ("torch", "kind", "vendor"),
    [
        ({"cuda": "12.4"}, "cuda", "nvidia"),
        ({"hip": "6.2", "cuda": None}, "cuda", "amd"),
        ({"xpu": "20250101"}, "xpu", "intel"),
        ({"cuda": "12.4"}, "cpu", "cpu"),
        ({}, "cuda", "unknown"),
        (None, None, "unknown"),
    ],
)
def test_vendor(torch: object, kind: object, vendor: str) -> None:
    assert find_vendor(torch, kind) == vendor
