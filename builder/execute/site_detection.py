"""What a machine says of itself for a site file: Slurm, GPUs, engines, modules, file systems. Nothing is changed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from builder.execute.doctor import examine_kernel, find_installed, query_version_lines
from builder.model.text import sanitize
from builder.system.gpus import Device, read_gpus
from builder.system.process import capture, find_program

SECONDS = 20.0  # for an answer of Slurm's controller
SINFO = ("sinfo", "--noheader", "--format=%P|%D|%c|%m|%G|%l")
CONFIG = ("scontrol", "show", "config")
ENGINES = ("apptainer", "singularity", "docker", "cotainr", "conda-containerize")
SHARED = ("lustre", "gpfs", "beegfs", "nfs", "nfs4", "ceph", "panfs", "wekafs", "pvfs2")
FAST = re.compile(r"(hsn|ib|ibp|ibs|opa|roce)[0-9a-z]*")  # names of interfaces of a fast network
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
PLACE = re.compile(r"(?:/[A-Za-z0-9_.+-]+)+")
_GPU = re.compile(r"gpu(?::([A-Za-z][A-Za-z0-9_.-]*))?(?::(\d+))?")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
# https://slurm.schedmd.com/sinfo.html: days-hours:minutes:seconds
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):\d+")

Ask = Callable[[Sequence[str]], str]  # what a program prints, "" where it is missing or fails


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Equal nodes of a partition; `minutes` is the time limit, None without one, `gpu` what Slurm calls one."""

    name: str
    nodes: int
    cores: int
    memory_gib: int
    gpus: int = 0
    gpu: str = ""
    minutes: int | None = None
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """What was read; empty where the machine does not say."""

    host: str
    arch: str = ""
    cores: int = 0
    memory_gib: int = 0
    system: str = ""
    devices: tuple[Device, ...] = ()
    cluster: str = ""
    scheduler: str = ""  # Slurm's version
    account_required: bool = False
    partitions: tuple[Partition, ...] = ()
    engines: Mapping[str, str] = field(default_factory=dict)  # with their versions
    engine_modules: tuple[str, ...] = ()
    user_namespaces: bool = False
    subuid: bool = False
    proot: bool = False
    shared: tuple[str, ...] = ()  # file systems that other nodes mount, too
    interfaces: tuple[str, ...] = ()


def detect_machine(*, environment: Mapping[str, str], root: Path = Path("/"), ask: Ask | None = None) -> MachineFacts:
    """Read everything; `root` is where the system's files are."""
    said = ask or (lambda argv: _ask(argv, environment=environment))
    with ThreadPoolExecutor(4) as pool:  # each waits for a program
        sinfo, config = pool.submit(said, SINFO), pool.submit(said, CONFIG)
        devices = pool.submit(lambda: read_gpus(root=root, answer=ask))
        engines = pool.submit(lambda: _read_engines(environment))
        slurm = dict(_read_config(config.result()))
        partitions = tuple(_read_partitions(sinfo.result()))
    kernel = {reading.name: reading.state == "ok" for reading in examine_kernel(root, user=environment.get("USER", ""))}
    return MachineFacts(
        host=os.uname().nodename.partition(".")[0],
        arch=os.uname().machine,
        cores=_count_cores(root),
        memory_gib=_read_memory(root),
        system=_read_system(root),
        devices=devices.result(),
        cluster=slurm.get("ClusterName", ""),
        scheduler=_find_version(slurm.get("SLURM_VERSION", "")) if partitions else "",
        account_required="associations" in slurm.get("AccountingStorageEnforce", "").lower(),
        partitions=partitions,
        engines=engines.result(),
        engine_modules=tuple(_find_engine_modules(environment)),
        user_namespaces=kernel.get("user namespaces", False),
        subuid=kernel.get("sub-ids", False),
        proot=find_program("proot", env=environment) is not None,
        shared=tuple(_read_shared(root)),
        interfaces=tuple(_read_interfaces(root)),
    )


def _ask(argv: Sequence[str], *, environment: Mapping[str, str]) -> str:
    if find_program(argv[0], env=environment) is None:
        return ""
    found = capture(list(argv), env=environment, timeout=SECONDS)
    return found.text if found.exit_code == 0 else ""


def _read_config(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            yield name.strip(), value.strip()


def _read_partitions(text: str) -> Iterator[Partition]:
    """Read sinfo's lines: gpu*|2|64|512000|gpu:a100:4(S:0-1)|1-00:00:00. A name that is no plain word is left out."""
    for line in text.splitlines():
        words = line.strip().split("|")
        name = words[0].rstrip("*")
        if len(words) != 6 or not WORD.fullmatch(name) or not words[1].isdecimal():
            continue
        gpu = next((found for item in words[4].split(",") if (found := _GPU.match(item))), None)
        yield Partition(
            name=name,
            nodes=int(words[1]),
            cores=_count(words[2]),
            memory_gib=_count(words[3]) // 1024,
            gpus=int(gpu[2] or 1) if gpu else 0,
            gpu=(gpu[1] or "") if gpu else "",
            minutes=_read_minutes(words[5]),
            default=words[0].endswith("*"),
        )


def _count(word: str) -> int:
    """Of nodes that are not equal sinfo prints the least and a plus."""
    number = word.rstrip("+")
    return int(number) if number.isdecimal() else 0


def _read_minutes(word: str) -> int | None:
    found = _TIME.fullmatch(word)
    if found is None:
        return None
    return (int(found["days"] or 0) * 24 + int(found["hours"] or 0)) * 60 + int(found["minutes"])


def _find_version(text: str) -> str:
    found = _VERSION.search(text)
    return found[0] if found else ""


def _read_engines(environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: path for name, path in find_installed(environment).items() if name in ENGINES}
    return {name: _find_version(said) for name, said in query_version_lines(found, environment=environment).items()}


def _find_engine_modules(environment: Mapping[str, str]) -> Iterator[str]:
    """Find modules of a container runtime by their files, without the module command."""
    seen = set()
    for folder in environment.get("MODULEPATH", "").split(os.pathsep):
        for name in ("apptainer", "singularity", "Apptainer", "Singularity", "SINGULARITY"):
            here = bool(folder) and ((Path(folder) / name).exists() or (Path(folder) / f"{name}.lua").exists())
            if here and name not in seen:
                seen.add(name)
                yield name


def _count_cores(root: Path) -> int:
    """Count the cores, without the second threads of each."""
    found, threads = set(), 0
    for cpu in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        threads += 1
        found.add(_read_text(cpu / "topology/thread_siblings_list") or cpu.name)
    return len(found) or threads


def _read_memory(root: Path) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", _read_text(root / "proc/meminfo"), re.MULTILINE)
    return round(int(found[1]) / 1024**2) if found else 0


def _read_system(root: Path) -> str:
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', _read_text(root / "etc/os-release"), re.MULTILINE)
    return sanitize(found[1], limit=60) if found else ""


def _read_shared(root: Path) -> Iterator[str]:
    """Read the mount points of file systems of a network; a path with blanks is left out."""
    for line in _read_text(root / "proc/mounts").splitlines():
        words = line.split()
        if len(words) > 2 and words[2] in SHARED and PLACE.fullmatch(words[1]):
            yield words[1]


def _read_interfaces(root: Path) -> Iterator[str]:
    for path in sorted((root / "sys/class/net").glob("*")):
        if FAST.fullmatch(path.name) and _read_text(path / "operstate") != "down":
            yield path.name


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
