"""The smoke workload as a plan's folder holds it, run by a Python with torch and told to be ranks as launchers do."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from victim import STOPPER

import builder.smoke

FOLDER = Path(builder.smoke.__file__).parent
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "PMI_", "OMPI_", "SLURM_", "TORCHELASTIC_", "GLOO_", "OMP_")
LONG = ["--samples", "512", "--epochs", "5000"]  # an hour: to be broken in the midst of it
LIMIT = 300.0  # seconds in which ranks start and end on a busy machine


class Smoke:
    """The workload outside of the repository, its results in a folder of their own."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python = python
        self.program = folder / "plan" / "smoke"
        shutil.copytree(FOLDER, self.program, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        self.folder = folder / "results"
        self.folder.mkdir()
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, before: tuple[str, ...] = (), **environment: str) -> subprocess.Popen[str]:
        """Start it, `before` being words that come before the Python: `prlimit`, `taskset`."""
        clean = {name: text for name, text in os.environ.items() if not name.startswith(LAUNCHERS)}
        clean.pop("PYTHONPATH", None)
        process = subprocess.Popen(
            [*before, self.python, "-B", str(self.program), *arguments],
            cwd=self.folder,
            env=clean | {"GLOO_SOCKET_IFNAME": "lo"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, before: tuple[str, ...] = (), **environment: str) -> tuple[int, str]:
        """Run it to its end: the exit status and what it said."""
        process = self.start(*arguments, before=before, **environment)
        output = process.communicate(timeout=LIMIT)[0]
        return process.returncode, output

    def result(self, name: str = "result.json") -> dict[str, Any]:
        """A result file."""
        return dict(json.loads((self.folder / name).read_text()))

    def failed(self, name: str = "result.json") -> dict[str, str]:
        """The checks that failed, with what was measured."""
        return {check["name"]: check["measured"] for check in self.result(name)["checks"] if not check["ok"]}

    def wait_for_ranks(
        self, count: int, ready: Callable[[dict[str, Any]], bool], name: str = "result.json"
    ) -> list[int]:
        """The process numbers of the ranks, once every rank's record is as wanted."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            found = [self.folder / f"{name}.rank{rank}.json" for rank in range(count)]
            records = [json.loads(path.read_text()) for path in found if path.exists()]
            if len(records) == count and all(ready(record) for record in records):
                return [record["pid"] for record in records]
            time.sleep(0.1)
        raise AssertionError("the ranks did not come so far")

    def launch(
        self,
        ranks: list[int],
        world: int,
        *arguments: str,
        workload: str = "ddp",
        result: str = "result.json",
        **environment: str,
    ) -> list[subprocess.Popen[str]]:
        """What srun does: each rank a process, told by Slurm's variables who it is."""
        port = free_port()
        return [
            self.start(
                workload, "--result", result, *arguments,
                SLURM_PROCID=str(rank), SLURM_NTASKS=str(world), SLURM_LOCALID=str(rank),
                MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1", **environment,
            )
            for rank in ranks
        ]  # fmt: skip

    @property
    def stands(self) -> Path:
        """The file that is there while a training stands."""
        return self.folder.parent / "stands"

    def to_stand(self) -> dict[str, str]:
        """The variables by which rank 0, and every rank with it, stands after each epoch, before its snapshot."""
        self.stands.unlink(missing_ok=True)
        place = r"open [^ /]*\.pt\.\d+\.tmp "
        return {"STOP_AT": place, "STOP_FILE": str(self.stands), "PYTHONPATH": str(STOPPER)}

    def let_go(self, process: subprocess.Popen[str], *, pause: float) -> None:
        """Let a training go on to its end, which stands for so many seconds after each epoch."""
        end = time.monotonic() + LIMIT
        while process.poll() is None:
            assert time.monotonic() < end
            if self.stands.exists():
                time.sleep(pause)
                self.stands.unlink()
            time.sleep(0.01)

    def end(self) -> None:
        """End what still runs."""
        for process in self.started:
            process.kill()
            process.communicate()


def write_easy_digits(folder: Path, *, train: int = 320) -> Path:
    """Files of MNIST's format with a bright field for each digit: a handful of steps learn them."""
    folder.mkdir(parents=True)
    for name, count in (("train", train), ("t10k", 50)):
        labels = bytes(number % 10 for number in range(count))
        images = b"".join(_field(label) for label in labels)
        for kind, magic, sizes, content in (
            ("images-idx3", 0x803, (count, 28, 28), images),
            ("labels-idx1", 0x801, (count,), labels),
        ):
            head = b"".join(number.to_bytes(4, "big") for number in (magic, *sizes))
            (folder / f"{name}-{kind}-ubyte").write_bytes(head + content)
    return folder


def _field(label: int) -> bytes:
    image = bytearray(28 * 28)
    for row in range(1 + 14 * (label // 5), 13 + 14 * (label // 5)):
        left = 28 * row + 1 + 5 * (label % 5)
        image[left : left + 5] = b"\xff" * 5
    return bytes(image)


def until_heard(process: int, number: signal.Signals) -> None:
    """Wait until a process has taken a signal that was sent to it."""
    end = time.monotonic() + LIMIT
    while int(Path(f"/proc/{process}/status").read_text().partition("ShdPnd:")[2].split()[0], 16) >> number - 1 & 1:
        assert time.monotonic() < end
        time.sleep(0.01)


def training(record: dict[str, Any]) -> bool:
    """Whether a rank has an epoch behind it."""
    return bool(record.get("training"))


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def all_gone(pids: list[int]) -> bool:
    """Whether all end within two minutes, which is not at the end of a training."""
    until = time.monotonic() + 120
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.1)
    return not any(alive(pid) for pid in pids)


def free_port() -> str:
    """A port that no program has; the ranks listen there seconds later, and the kernel gives those below to no one."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return str(port)
