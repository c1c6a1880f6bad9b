"""The command line of the smoke workload; needs the standard library only, so that --help works without torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

VENDORS = ("nvidia", "amd", "intel", "cpu")
DEVICES = ("auto", "cpu", "cuda", "xpu")


@dataclass(frozen=True)
class Options:
    """What one run was asked for; seconds for ``timeout``, None where the workload decides."""

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
    modules: Tuple[str, ...] = ()
    file: str = ""


def parse(arguments: List[str]) -> Options:
    """Parse the command line; a misuse ends the program with status 2."""
    found = vars(_parser().parse_args(arguments))
    found["modules"] = tuple(found.get("modules") or ())
    return Options(**found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="smoke",
        description="Try an image: train on digits, on one device or on many, and judge the numbers.",
        epilog="Exit status: 0 verdict pass, 1 verdict FAIL, 2 the command line is wrong, 128 + N ended by signal N.",
    )
    workloads = parser.add_subparsers(dest="workload", required=True, metavar="WORKLOAD")
    for name, (summary, arguments) in _WORKLOADS.items():
        arguments(workloads.add_parser(name, help=summary, description=summary))
    return parser


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--result", metavar="FILE", help="write the result there, as JSON")
    parser.add_argument(
        "--timeout", type=_seconds, default=600.0, metavar="SECONDS", help="end the run there (default 600)"
    )


def _training_arguments(parser: argparse.ArgumentParser) -> None:
    _run_arguments(parser)
    parser.add_argument("--data", metavar="DIR", help="a folder with MNIST's IDX files (default: drawn digits)")
    parser.add_argument(
        "--samples", type=_count, metavar="N", help="training images at most (default 8000 of files, 4000 drawn)"
    )
    parser.add_argument(
        "--epochs", type=_count, metavar="N", help="default: enough for 240 steps on files, 180 on drawn digits"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--device", choices=DEVICES, default="auto")
    parser.add_argument("--expect-vendor", choices=VENDORS, help="fail unless the run was on this vendor's device")
    parser.add_argument("--expect-torch", metavar="VERSION", help="fail unless torch has this version")


def _ddp_arguments(parser: argparse.ArgumentParser) -> None:
    _training_arguments(parser)
    parser.add_argument("--ranks", type=_count, metavar="N", help="start N ranks here instead of using a launcher's")
    parser.add_argument("--expect-ranks", type=_count, metavar="N", help="fail unless the launcher started N ranks")
    parser.add_argument("--snapshot", metavar="FILE", help="save after every epoch; resume when the file exists")
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)  # how --ranks tells its ranks where to meet


def _imports_arguments(parser: argparse.ArgumentParser) -> None:
    _run_arguments(parser)
    parser.add_argument("modules", nargs="+", metavar="MODULE")


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def _judge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="RESULT", help="a result file of an earlier run")


_WORKLOADS: Dict[str, Tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "mnist": ("train a small network on digits, on one device", _training_arguments),
    "ddp": ("the same training over many ranks", _ddp_arguments),
    "imports": ("import modules, one after the other", _imports_arguments),
    "devices": ("print how many GPUs torch sees", _no_arguments),
    "judge": ("judge an earlier result again", _judge_arguments),
}


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number from 1')
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds over 0')
    return seconds
