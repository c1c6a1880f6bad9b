"""Values computed from a workload's result: step time, throughput, parts of its time, bandwidth."""

from __future__ import annotations

from itertools import combinations

from builder.model.results import Rank, Results, Transfer, WorkloadResult
from builder.model.units import format_duration, format_number
from builder.smoke.amounts import format_size

# Names of the parts of a workload's time, in the order in which they are spent.
PARTS = {
    "exec_to_python": "exec to Python",
    "import_torch": "import torch",
    "import": "import torch",
    "first_device": "first device",
    "first_step": "first step",
    "data": "data",
    "train": "training",
    "test": "test",
}
OTHER = "other"
STARTUP = ("exec_to_python", "import_torch", "import", "first_device", "first_step")
FIRST_STEP = "exec_to_first_step"  # a sum of parts
KEY_SIZE = 128 << 20  # bytes: the size for which sites state the expected bandwidth
RANKS_COMPARED = 128  # of one workload: enough to see that cores are shared
CORES_COMPARED = 4096  # of one rank


def compute_step_seconds(workload: WorkloadResult) -> float | None:
    """Seconds of one optimizer step."""
    train, steps = workload.seconds.get("train"), workload.training.steps
    return train / steps if train is not None and steps else None


def compute_throughput(workload: WorkloadResult) -> float | None:
    """Images a second over all ranks."""
    train, images = workload.seconds.get("train"), workload.training.images
    return images / train if train and images is not None else None


def find_import_seconds(results: Results) -> float | None:
    """Seconds of `import torch`: the startup workload's, else the first that another one measured."""
    for keys in (("import_torch",), ("import",)):
        for workload in results.workloads:
            for key in keys:
                if key in workload.seconds:
                    return workload.seconds[key]
    return None


def split_time(workload: WorkloadResult) -> tuple[tuple[str, float], ...]:
    """The parts of a workload's time in the order they were spent, then the rest of the total."""
    known = [(PARTS[key], workload.seconds[key]) for key in PARTS if key in workload.seconds]
    rest = workload.seconds.get("total", 0.0) - sum(seconds for _, seconds in known)
    if rest < -0.05 * workload.seconds.get("total", 0.0):
        known = []  # they overlap
        rest = workload.seconds.get("total", 0.0)
    return tuple([*known, (OTHER, rest)] if rest > 0 else known)


def choose_key_transfer(workload: WorkloadResult) -> Transfer | None:
    """The transfer that represents a sweep: at 128 MiB, else the largest."""
    measured = [transfer for transfer in workload.sweep if transfer.busbw is not None]
    return next((one for one in measured if one.size == KEY_SIZE), measured[-1] if measured else None)


def summarize_workload(workload: WorkloadResult) -> str:
    """One workload's numbers in a line."""
    training, words = workload.training, list[str]()
    if workload.name == "probe" and workload.ranks:
        hosts = len({rank.host for rank in workload.ranks})
        words.append(f"{len(workload.ranks)} ranks on {hosts} {'host' if hosts == 1 else 'hosts'}")
    if training.accuracy is not None:
        words.append(f"accuracy {format_number(training.accuracy)}")
    if training.first_loss is not None and training.last_loss is not None:
        words.append(f"loss {format_number(training.first_loss)} to {format_number(training.last_loss)}")
    step = compute_step_seconds(workload)
    if step is not None:
        words.append(f"{format_duration(step)} a step")
    transfer = choose_key_transfer(workload)
    if transfer is not None:
        floor = dict(workload.floors).get(transfer.size)
        limit = f" (floor {format_number(floor)})" if floor is not None else ""
        words.append(f"busbw {format_number(transfer.busbw)} GB/s at {format_size(transfer.size)}{limit}")
    if workload.pi is not None:
        words.append(f"pi {workload.pi:.10f}")
    if training.accuracy is None:
        words += [
            f"{PARTS[key]} {format_duration(workload.seconds[key])}" for key in STARTUP if key in workload.seconds
        ]
    if FIRST_STEP in workload.seconds:
        words.append(f"first step after {format_duration(workload.seconds[FIRST_STEP])}")
    return ", ".join([*words, *filter(None, [workload.error])])


def find_shared_cores(workload: WorkloadResult) -> str:
    """Name the node on which CPU ranks of a workload used the same cores, "" where none did or it is unknown."""
    if workload.device and workload.device != "cpu":
        return ""
    for first, second in combinations([rank for rank in workload.ranks if rank.affinity][:RANKS_COMPARED], 2):
        if first.host == second.host and _is_cpu(first) and _is_cpu(second) and _cores(first) & _cores(second):
            return first.host or "one node"
    return ""


def _is_cpu(rank: Rank) -> bool:
    return rank.device in ("", "cpu")


def _cores(rank: Rank) -> frozenset[int]:
    """The cores of a rank from its ranges, e.g. "0-6,8"."""
    found: set[int] = set()
    for part in rank.affinity.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            low, high = int(first[:6]), int((last or first)[:6])
            found.update(range(low, min(high, low + CORES_COMPARED) + 1))
    return frozenset(found)
