"""The command line of the smoke workload; standard library only, so that --help works without torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import amounts

VENDORS = ("nvidia", "amd", "intel", "cpu")
DEVICES = ("auto", "cpu", "cuda", "xpu")
DISTRIBUTED = ("probe", "ddp", "pi", "allreduce", "startup")  # startup only with --expect-ranks


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
        type=amounts.parse_seconds,
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
        type=amounts.parse_count,
        metavar="N",
        help="training images at most (default 8000 of files, 4000 drawn)",
    )
    parser.add_argument(
        "--epochs",
        type=amounts.parse_count,
        metavar="N",
        help="default: enough for 240 steps on files, 125 on drawn digits",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N")


def _ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks", type=amounts.parse_count, metavar="N", help="start N ranks here instead of using a launcher's"
    )
    parser.add_argument(
        "--expect-ranks", type=amounts.parse_count, metavar="N", help="fail unless the launcher started N ranks"
    )
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)  # how --ranks passes the rendezvous to its ranks


def _snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--snapshot", metavar="FILE", help="save after every epoch, and after the step at which SIGTERM came; resume it"
    )


def _probe(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--expect-masks", type=amounts.parse_masks, default=(), metavar="HEX,...", help="a mask of cores per local rank"
    )
    add("--expect-cores", type=amounts.parse_count, metavar="N", help="every rank may run on N cores at least")
    add("--expect-devices", type=amounts.parse_count, metavar="N", help="the ranks of a host see N devices together")
    add("--expect-gfx", metavar="NAME", help="the devices' architecture (gfx90a, sm_90), and torch has kernels for it")
    add("--expect-network", metavar="TEXT|TEXT", help="one of the texts is in NCCL's log or a loaded library's name")
    add(
        "--expect-variable", type=amounts.parse_variable, action="append", default=[], metavar="NAME=VALUE",
        help="every rank has this variable; may be repeated",
    )  # fmt: skip
    add(
        "--cache-not-under", action="append", default=[], metavar="PATH",
        help="no cache of compiled kernels is under it; may be repeated",
    )  # fmt: skip


def _pi(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=amounts.parse_count, metavar="N", help="trapezoids (default 20000000)")


def _allreduce(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="smallest", type=amounts.parse_size, default=32 * 1024, metavar="SIZE", help="default 32KiB")
    add(
        "--to",
        dest="largest",
        type=amounts.parse_size,
        metavar="SIZE",
        help="default 4GiB on devices, 16MiB on the CPU",
    )
    add("--iterations", type=amounts.parse_count, default=20, metavar="N", help="timed operations a size (default 20)")
    add(
        "--floor", type=amounts.parse_floor, action="append", default=[], metavar="SIZE=GBPS",
        help="fail below this bus bandwidth in GB/s at this size; may be repeated",
    )  # fmt: skip


def _startup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--started",
        type=amounts.parse_time,
        metavar="EPOCH",
        help="when the launcher was called, as date +%%s.%%N says it",
    )


def _imports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("modules", nargs="+", metavar="MODULE")


def _judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="RESULT", help="a result file of an earlier run")


def _conclude(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="where the results of a job are, as WORKLOAD.json")
    parser.add_argument(
        "--expect", type=amounts.parse_names, default=(), metavar="W,...", help="workloads whose result must be there"
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
    "imports": ("import modules, one after the other", (_run, _imports)),
    "devices": ("print how many GPUs torch sees", ()),
    "judge": ("judge an earlier result again", (_judge,)),
    "conclude": ("put the results of a job into one verdict", (_conclude,)),
}
