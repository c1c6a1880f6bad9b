"""The command line of the workloads, its values and the errors that end a run; standard library only, for --help."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_count(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or not 1 <= int(text) < 10**15:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number from 1')
    return int(text)


def parse_seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e7:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds over 0')
    return found


def parse_time(text: str) -> float:
    """Parse a time in seconds since 1970."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e11:
        raise argparse.ArgumentTypeError(f'"{text}" is not a time in seconds since 1970')
    return found


def parse_size(text: str) -> int:
    """Parse a number of bytes: 32KiB, 128MiB, 4GB (10^9), or without unit."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([KMG]i?B|B|)", text, re.IGNORECASE)
    if found is None or not 4096 <= int(found[1]) * _UNITS[found[2].upper()] < 1 << 50:
        raise argparse.ArgumentTypeError(f'"{text}" is not a size from 4096 bytes, such as 32KiB or 4GB')
    return int(found[1]) * _UNITS[found[2].upper()]


def parse_floor(text: str) -> Tuple[int, float]:
    """Parse a size and the expected bandwidth in GB/s."""
    where, _, bandwidth = text.partition("=")
    try:
        found = float(bandwidth)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise argparse.ArgumentTypeError(f'"{text}" is not SIZE=GBPS, such as 128MiB=85')
    return parse_size(where), found


def parse_masks(text: str) -> Tuple[int, ...]:
    """Parse masks of CPU cores, in hexadecimal with or without 0x."""
    parts = text.split(",")
    if not all(re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,512}", part) and int(part, 16) for part in parts):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of CPU masks in hexadecimal, such as 0xfe,0xfe00')
    return tuple(int(part, 16) for part in parts)


def parse_variable(text: str) -> Tuple[str, str]:
    """Parse a variable's name and value."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise argparse.ArgumentTypeError(f'"{text}" is not NAME=VALUE')
    return name, value


def parse_names(text: str) -> Tuple[str, ...]:
    found = tuple(part for part in text.split(",") if part)
    if not all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in found):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of workloads, such as mnist,ddp')
    return found


def format_size(number: int) -> str:
    """Format a number of bytes: 128 MiB, 4 GB, 5000 B."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("GB", 10**9), ("MB", 10**6)):
        if number >= factor and number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number} B"


VENDORS = ("nvidia", "amd", "intel", "cpu")
DEVICES = ("auto", "cpu", "cuda", "xpu")
DISTRIBUTED = ("probe", "ddp", "pi", "allreduce", "startup", "mpi")  # startup only with --expect-ranks


@dataclass(frozen=True)
class WorkloadOptions:
    """The options of one run; ``timeout`` in seconds, None if the workload decides."""

    workload: str
    result: Optional[str] = None
    timeout: float = 600.0
    data: Optional[str] = None
    samples: Optional[int] = None
    epochs: Optional[int] = None
    seed: int = 1
    device: str = "auto"
    expect_vendor: Optional[str] = None
    expect_torch: Optional[str] = None
    ranks: Optional[int] = None
    expect_ranks: Optional[int] = None
    snapshot: Optional[str] = None
    rendezvous: Optional[str] = None
    expect_masks: Tuple[int, ...] = ()
    expect_cores: Optional[int] = None
    expect_devices: Optional[int] = None
    expect_gfx: Optional[str] = None
    expect_network: Optional[str] = None
    expect_variable: Tuple[Tuple[str, str], ...] = ()
    cache_not_under: Tuple[str, ...] = ()
    expect_mpi: Optional[str] = None
    alone: bool = False
    steps: Optional[int] = None
    smallest: int = 32 * 1024
    largest: Optional[int] = None
    floor: Tuple[Tuple[int, float], ...] = ()
    iterations: int = 20
    started: Optional[float] = None
    modules: Tuple[str, ...] = ()
    file: str = ""
    folder: str = ""
    expect: Tuple[str, ...] = ()
    reason: Optional[str] = None
    words: Tuple[str, ...] = ()  # the command line itself, to start our own ranks with


def parse(arguments: List[str]) -> WorkloadOptions:
    """Parse the command line; a usage error exits with status 2."""
    found = vars(_parser().parse_args(arguments))
    plain: Dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    plain["words"] = tuple(arguments)
    return WorkloadOptions(**plain)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="smoke",
        description="Try an image: train on digits, on one device or on many, measure, and judge the numbers.",
        epilog="Exit status: 0 verdict pass, 1 verdict FAIL, 2 the command line is wrong, 128 + N ended by signal N.",
    )
    workloads = parser.add_subparsers(dest="workload", required=True, metavar="WORKLOAD")
    for name, (summary, groups) in _WORKLOADS.items():
        inner = workloads.add_parser(name, help=summary, description=summary)
        for group in groups:
            group(inner)
    return parser


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--result", metavar="FILE", help="write the result there, as JSON")
    parser.add_argument(
        "--timeout",
        type=parse_seconds,
        default=600.0,
        metavar="SECONDS",
        help="end the run there (default 600)",
    )


def _device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=DEVICES, default="auto")
    parser.add_argument("--expect-vendor", choices=VENDORS, help="fail unless the run was on this vendor's device")
    parser.add_argument("--expect-torch", metavar="VERSION", help="fail unless torch has this version")


def _training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="a folder with MNIST's IDX files (default: drawn digits)")
    parser.add_argument(
        "--samples",
        type=parse_count,
        metavar="N",
        help="training images at most (default 8000 of files, 4000 drawn)",
    )
    parser.add_argument(
        "--epochs",
        type=parse_count,
        metavar="N",
        help="default: enough for 240 steps on files, 125 on drawn digits",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N")


def _ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks", type=parse_count, metavar="N", help="start N ranks here instead of using a launcher's"
    )
    _launched(parser)
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)  # how --ranks passes the rendezvous to its ranks


def _launched(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--expect-ranks", type=parse_count, metavar="N", help="fail unless the launcher started N ranks"
    )


def _snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--snapshot", metavar="FILE", help="save after every epoch, and after the step at which SIGTERM came; resume it"
    )


def _probe(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--expect-masks", type=parse_masks, default=(), metavar="HEX,...", help="a mask of cores per local rank")
    add("--expect-cores", type=parse_count, metavar="N", help="every rank may run on N cores at least")
    add("--expect-devices", type=parse_count, metavar="N", help="the ranks of a host see N devices together")
    add("--expect-gfx", metavar="NAME", help="the devices' architecture (gfx90a, sm_90), and torch has kernels for it")
    add("--expect-network", metavar="TEXT|TEXT", help="one of the texts is in NCCL's log or a loaded library's name")
    add(
        "--expect-variable", type=parse_variable, action="append", default=[], metavar="NAME=VALUE",
        help="every rank has this variable; may be repeated",
    )  # fmt: skip
    add(
        "--cache-not-under", action="append", default=[], metavar="PATH",
        help="no cache of compiled kernels is under it; may be repeated",
    )  # fmt: skip


def _pi(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=parse_count, metavar="N", help="trapezoids (default 20000000)")


def _allreduce(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="smallest", type=parse_size, default=32 * 1024, metavar="SIZE", help="default 32KiB")
    add(
        "--to",
        dest="largest",
        type=parse_size,
        metavar="SIZE",
        help="default 4GiB on devices, 16MiB on the CPU",
    )
    add("--iterations", type=parse_count, default=20, metavar="N", help="timed operations a size (default 20)")
    add(
        "--floor", type=parse_floor, action="append", default=[], metavar="SIZE=GBPS",
        help="fail below this bus bandwidth in GB/s at this size; may be repeated",
    )  # fmt: skip


def _startup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--started",
        type=parse_time,
        metavar="EPOCH",
        help="when the launcher was called, as date +%%s.%%N says it",
    )


def _mpi(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--expect-mpi",
        choices=("host", "image"),
        help="fail unless the loaded MPI library is a file of the host or of the image",
    )
    parser.add_argument("--alone", action="store_true", help="without a launcher, as a world of this process")


def _imports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("modules", nargs="+", metavar="MODULE")


def _judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="RESULT", help="a result file of an earlier run")


def _conclude(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="where the results of a job are, as WORKLOAD.json")
    parser.add_argument(
        "--expect", type=parse_names, default=(), metavar="W,...", help="workloads whose result must be there"
    )
    parser.add_argument("--reason", metavar="TEXT", help="why the job ended; the verdict is then FAIL")


_Group = Callable[[argparse.ArgumentParser], None]
_WORKLOADS: Dict[str, Tuple[str, Tuple[_Group, ...]]] = {
    "probe": ("look at what every rank has: devices, cores, network, caches", (_run, _device, _ranks, _probe)),
    "mnist": ("train a small network on digits, on one device", (_run, _training, _device)),
    "ddp": ("the same training over many ranks", (_run, _training, _device, _ranks, _snapshot)),
    "pi": ("integrate over all ranks, on their CPUs", (_run, _device, _ranks, _pi)),
    "allreduce": ("measure the bandwidth of all-reduce over its size", (_run, _device, _ranks, _allreduce)),
    "startup": ("measure the time from the launch to the first step", (_run, _device, _ranks, _startup)),
    "mpi": ("exchange values by MPI, over the ranks of a launcher; needs mpi4py", (_run, _launched, _mpi)),
    "imports": ("import modules, one after the other", (_run, _imports)),
    "devices": ("print how many GPUs torch sees", ()),
    "judge": ("judge an earlier result again", (_judge,)),
    "conclude": ("put the results of a job into one verdict", (_conclude,)),
}


class RunError(Exception):
    """Something that the workload needs is missing or failed; the text is one sentence for the result."""


class StoppedError(RunError):
    """A signal ended the work in good order; ``status`` is the exit status of the program."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class UsageError(Exception):
    """The command line or the environment asks for something that cannot be started at all."""
