"""The text of a site file from what a machine says of itself; what was not found is `unknown`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from builder.execute.site_detection import MachineFacts, Partition
from builder.model.site import GPU_FLAGS
from builder.system.gpus import Device

# The scheduler's words for GPUs, as sites name them in gres.conf: vendor, model, target.
NAMES: Mapping[str, tuple[str, str, str]] = {
    "v100": ("nvidia", "NVIDIA V100", "sm_70"),
    "a100": ("nvidia", "NVIDIA A100", "sm_80"),
    "a40": ("nvidia", "NVIDIA A40", "sm_86"),
    "l40s": ("nvidia", "NVIDIA L40S", "sm_89"),
    "h100": ("nvidia", "NVIDIA H100", "sm_90"),
    "h200": ("nvidia", "NVIDIA H200", "sm_90"),
    "gh200": ("nvidia", "NVIDIA GH200", "sm_90"),
    "mi250": ("amd", "AMD Instinct MI250", "gfx90a"),
    "mi250x": ("amd", "AMD Instinct MI250X", "gfx90a"),
    "mi300a": ("amd", "AMD Instinct MI300A", "gfx942"),
    "mi300x": ("amd", "AMD Instinct MI300X", "gfx942"),
}
MINUTES = 30
BUILD_CORES = 16
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
RESERVED = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


@dataclass(frozen=True, kw_only=True)
class SiteDraft:
    """A site file, and in words what a person has to look up."""

    text: str
    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Gpus:
    vendor: str
    model: str
    target: str
    devices: int
    memory_gib: int | None = None
    driver: str | None = None
    note: str = ""


def make_draft(facts: MachineFacts | None, *, name: str, today: str) -> SiteDraft:
    """Make the file of a site; without facts all of it is for a person to fill in. `today` is YYYY-MM-DD."""
    if facts is None:
        head, source = "What is unknown is for you to look up, with its source.", "to be filled in"
        facts = MachineFacts(host="", partitions=(Partition(name="", nodes=2, cores=0, memory_gib=0),))
    else:
        head, source = "What is unknown was not found: look it up, with its source.", f"read on {facts.host}"
    gpu = _describe_gpus(facts)
    unknown = _list_unknown(facts, gpu)
    sections = [
        f"# Written by `recipe init site`, {today}. {head}",
        f"name: {name}",
        f"title: {_quote(facts.cluster or name)}",
        f"description: {_quote(_describe(facts, gpu))}",
        f"extends: {'cluster' if facts.partitions else 'local'}",
        "sources:",
        f"  machine: {{what: {_quote(source)}, checked: {_quote(today)}}}",
        *_write_node(facts, gpu),
        *_write_gpu(facts, gpu, name=name, today=today),
        *_write_network(facts),
        *_write_scheduler(facts, gpu),
        *_write_runtime(facts, gpu),
        *_write_build(facts),
        *_write_launch(facts),
        *([f"hostnames: [{_quote(re.sub(r'[0-9]+', '*', facts.host))}]"] if facts.host else []),
    ]
    sections += ["unknown:", *[f"  - {_quote(text)}" for text in unknown]] if unknown else ["unknown: []"]
    return SiteDraft(text="\n".join(sections) + "\n", unknown=tuple(unknown))


def _quote(text: str) -> str:
    """Write a text as one YAML value; JSON's strings are YAML's."""
    plain = PLAIN.fullmatch(text) and text.lower() not in RESERVED
    return text if plain else json.dumps(text, ensure_ascii=False)


def _number(value: int | None) -> str:
    return str(value) if value else "unknown"


def _describe(facts: MachineFacts, gpu: _Gpus | None) -> str:
    where = facts.cluster or facts.host or "our cluster"
    return f"{where}, {gpu.devices}x {gpu.model} a node" if gpu else where


def _select_partition(facts: MachineFacts, *, gpus: bool) -> Partition | None:
    """Select the partition with the most devices, else the default one or that with the most nodes."""
    if gpus:
        found = [one for one in facts.partitions if one.gpus]
        return max(found, key=lambda one: (one.gpus * one.nodes, one.default), default=None)
    return max(facts.partitions, key=lambda one: (not one.gpus, one.default, one.nodes), default=None)


def _describe_gpus(facts: MachineFacts) -> _Gpus | None:
    """Describe the GPUs of a node: this one's, else those that the scheduler names."""
    partition = _select_partition(facts, gpus=True)
    if facts.devices:
        found = _describe_devices([one for one in facts.devices if one.target == facts.devices[0].target])
        # A job sees the devices that it has, which may be some of the node's.
        return replace(found, devices=max(found.devices, partition.gpus)) if partition else found
    known = NAMES.get(partition.gpu.lower().partition(".")[0]) if partition else None
    if partition is None or known is None:
        return None
    return _Gpus(vendor=known[0], model=known[1], target=known[2], devices=partition.gpus)


def _describe_devices(devices: Sequence[Device]) -> _Gpus:
    first = devices[0]
    cores = [f"{number}: {one.cores}" for number, one in enumerate(devices) if one.cores]
    return _Gpus(
        vendor=first.vendor,
        model=first.model,
        target=first.target,
        devices=len(devices),
        memory_gib=first.memory_gib,
        driver=first.driver,
        note=f"the cores next to each device: {'; '.join(cores)}" if cores else "",
    )


def _write_node(facts: MachineFacts, gpu: _Gpus | None) -> list[str]:
    partition = _select_partition(facts, gpus=gpu is not None)
    cores = partition.cores if partition else facts.cores
    memory = partition.memory_gib if partition else facts.memory_gib
    arch = facts.arch if facts.arch in ("x86_64", "aarch64") else "x86_64"
    system = f"\n  os: {_quote(facts.system)}" if facts.system else ""
    return [
        "node:",
        f"  arch: {arch}",
        f"  cores: {_number(cores)}",
        "  usable_cores: unknown",
        f"  memory_gib: {_number(memory)}{system}",
        "  source: [machine]",
    ]


def _write_gpu(facts: MachineFacts, gpu: _Gpus | None, *, name: str, today: str) -> list[str]:
    if gpu is None:
        partition = _select_partition(facts, gpus=True)
        if partition is None:
            return []
        line = f"srun --partition={partition.name} --gres=gpu:1 recipe init site {name} --detect --force"
        return [f"# gpu: {partition.gpus} a node, which Slurm does not name; to write this section: {line}"]
    return [
        "gpu:",
        f"  vendor: {gpu.vendor}",
        f"  model: {_quote(gpu.model)}",
        f"  target: {gpu.target}",
        f"  devices: {gpu.devices}",
        f"  scheduled: {gpu.devices}",
        f"  memory_gib: {_number(gpu.memory_gib)}",
        f"  driver: {_quote(gpu.driver) if gpu.driver else 'unknown'}",
        f"  driver_checked: {_quote(today) if gpu.driver else 'unknown'}",
        *([f"  note: {_quote(gpu.note)}"] if gpu.note else []),
        "  source: [machine]",
    ]


def _write_network(facts: MachineFacts) -> list[str]:
    names = ", ".join(map(_quote, facts.interfaces))
    return ["network:", "  fabric: unknown", f"  interfaces: [{names}]", "  internet: unknown", "  source: [machine]"]


def _write_scheduler(facts: MachineFacts, gpu: _Gpus | None) -> list[str]:
    partition = _select_partition(facts, gpus=gpu is not None)
    if partition is None:
        return ["scheduler: {kind: none, source: [machine]}"]
    lines = [
        "scheduler:",
        "  kind: slurm",
        f"  version: {_quote(facts.scheduler) if facts.scheduler else 'unknown'}",
        f"  account: {'required' if facts.account_required else 'optional'}",
        "  account_form: <account>",
        *(['  gpu_option: "gres=gpu:{gpus}"'] if gpu else []),
        "  source: [machine]",
        "  jobs:",
    ]
    most = gpu.devices if gpu else 0
    each = partition.cores // most if most and partition.cores else 0
    lines.append(_write_job("gpu", partition, tasks=1, cores=each, gpus=min(most, 1)))
    if most:
        lines.append(_write_job("node", partition, tasks=most, cores=each, gpus=most))
        if partition.nodes > 1:
            lines.append(_write_job("nodes", partition, tasks=most, cores=each, gpus=most, nodes=2))
    builds = _select_partition(facts, gpus=False) or partition
    lines.append(_write_job("build", builds, tasks=1, cores=min(builds.cores, BUILD_CORES), minutes=2 * MINUTES))
    return lines


def _write_job(
    purpose: str, partition: Partition, *, tasks: int, cores: int, gpus: int = 0, nodes: int = 1, minutes: int = MINUTES
) -> str:
    limit = min(minutes, partition.minutes or minutes)
    shape = f"nodes: {nodes}, tasks_per_node: {tasks}, cpus_per_task: {_number(cores)}"
    devices = f", gpus: {gpus}, devices: {gpus}" if gpus else ""
    options = f", options: {{partition: {_quote(partition.name)}}}" if partition.name else ""
    return f"    {purpose}: {{{shape}{devices}, minutes: {limit}{options}}}"


def _find_runtime(facts: MachineFacts) -> str:
    return next((name for name in ("apptainer", "singularity") if name in facts.engines), "")


def _write_runtime(facts: MachineFacts, gpu: _Gpus | None) -> list[str]:
    command = _find_runtime(facts)
    version = facts.engines.get(command, "")
    loaded = [] if command else list(facts.engine_modules[:1])
    name = command or ("singularity" if loaded and loaded[0].lower() == "singularity" else "apptainer")
    shared = ", ".join(map(_quote, facts.shared))
    return [
        "runtime:",
        f"  command: {name}",
        f"  version: {_quote(version) if version else 'unknown'}",
        *([f"  modules: [{_quote(f'load {loaded[0]}')}]"] if loaded else []),
        *([f"  gpu_flag: {GPU_FLAGS[gpu.vendor]}"] if gpu and gpu.vendor in GPU_FLAGS else []),
        *([f"  optional_binds: [{shared}]"] if shared else []),
        *(["  zstd: unknown", "  layers: unknown"] if facts.partitions else []),
        "  source: [machine]",
    ]


def _write_build(facts: MachineFacts) -> list[str]:
    backends = ["apptainer", "layers"]
    backends += [name for name, program in (("docker", "docker"), ("cotainr", "cotainr")) if program in facts.engines]
    fakeroot = "yes" if facts.user_namespaces and facts.subuid else "unknown"
    seen = facts.host != ""
    spaces = ("yes" if facts.user_namespaces else "no") if seen else "unknown"
    return [
        "build:",
        f"  backends: [{', '.join(backends)}]",
        f"  user_namespaces: {_quote(spaces)}",
        f"  fakeroot: {_quote(fakeroot)}",
        f"  proot: {_quote('yes' if facts.proot else 'unknown')}",
        "  login_heavy: unknown",
        "  source: [machine]",
    ]


def _write_launch(facts: MachineFacts) -> list[str]:
    shared = ", ".join(map(_quote, facts.shared))
    return [
        "launch:",
        f"  launcher: {'srun' if facts.partitions else 'plain'}",
        *([f"  cache_not_under: [{shared}]"] if shared else []),
        "  source: [machine]",
    ]


def _list_unknown(facts: MachineFacts, gpu: _Gpus | None) -> list[str]:
    if not facts.host:
        return ["everything in this file"]
    found = []
    if facts.partitions:
        found += ["whether compute nodes and login nodes reach the internet", "usable cores, and the memory of a job"]
        found += ["variables and binds for the network between nodes"]
    partition = _select_partition(facts, gpus=True)
    if gpu is None and partition is not None:
        found.append(f"the GPUs of the partition {partition.name}: run recipe init site on one of its nodes")
    if gpu is not None and gpu.driver is None:
        found.append("the driver of the GPUs: run recipe init site, or recipe doctor, on a node that has them")
    if gpu is not None and gpu.devices > 1 and not gpu.note:
        found.append("which cores are next to which GPU")
    if not _find_runtime(facts):
        found.append("the container runtime: neither apptainer nor singularity is on PATH")
    return [*found, *(["whether the container runtime mounts zstd squashfs"] if facts.partitions else [])]
