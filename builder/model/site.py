"""A site: everything the compiler has to know of one machine, as its YAML file says it.

Every section names the sources its figures were read in; the top-level `sources` table says what each source is and
when it was checked. A fact that we do not have is written `unknown` and is None here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Vendor = Literal["amd", "nvidia", "intel", "cpu"]
BackendName = Literal["cotainr", "apptainer", "docker", "tykky", "layers"]
Launcher = Literal["srun", "srun-torchrun", "mpiexec", "plain"]
Purpose = Literal["gpu", "node", "nodes", "build", "convert"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where facts were read, and the date of that text (YYYY-MM-DD, or YYYY-MM where the day is not known)."""

    what: str
    checked: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One compute node; memory in GiB; `usable_cores` are those a job may bind to."""

    arch: Literal["x86_64", "aarch64"]
    cores: int | None
    usable_cores: int | None
    memory_gib: int | None
    source: tuple[str, ...]
    os: str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The GPUs of a node; a device is what one rank takes (a GCD, a GPU, a stack), memory in GiB per device."""

    vendor: Literal["amd", "nvidia", "intel"]
    model: str
    target: str  # gfx90a, sm_90, pvc
    devices: int  # per node, as ranks count them
    scheduled: int  # per node, as the scheduler counts them
    memory_gib: int | None
    driver: str | None
    driver_checked: str | None
    source: tuple[str, ...]
    rocm: tuple[str, ...] = ()  # user spaces (X.Y) that the kernel driver serves
    rocm_safe: str | None = None  # the highest of them without known trouble
    unsure: tuple[str, ...] = ()  # what of the above was seen second-hand or inferred
    cuda_native: str | None = None  # highest toolkit that the driver serves without minor-version compatibility
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Network:
    """What goes between nodes; `nodes_have` is the reach of compute nodes: yes, proxy or no."""

    fabric: str | None
    interfaces: tuple[str, ...]
    internet: Literal["yes", "proxy", "no", "unknown"]
    source: tuple[str, ...]
    login_internet: Literal["yes", "proxy", "no", "unknown"] = "unknown"
    proxy: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A shape of Slurm job; `options` are long sbatch options without their dashes, in the order they are written.

    `nodes` is the default count (more may be asked for where the purpose is `nodes`), `minutes` the time limit.
    """

    nodes: int
    tasks_per_node: int
    cpus_per_task: int | None
    minutes: int
    options: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0  # as the scheduler counts them, per node
    devices: int = 0  # as ranks count them, per node
    bind: bool = False  # whole nodes: the CPU masks hold


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """The batch system; `gpu_option` holds {gpus}, e.g. `gpus-per-node={gpus}`."""

    kind: Literal["slurm", "none"]
    source: tuple[str, ...]
    version: str | None = None
    account: Literal["required", "optional", "none"] = "none"
    account_form: str = ""
    gpu_option: str = ""
    jobs: Mapping[str, Job] = field(default_factory=dict)  # by Purpose
    submit: tuple[str, ...] = ()  # extra options of the sbatch call, e.g. --export=NONE
    whole_nodes: bool = False  # a job gets whole nodes, whatever it asks for
    several_whole: bool = False  # a job of several nodes must take all devices of each
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How an image is run: program, modules, GPU flag, binds. `optional_binds` are bound only where they exist."""

    command: Literal["singularity", "apptainer"]
    version: str | None
    source: tuple[str, ...]
    modules: tuple[str, ...] = ()  # "use PATH" or "load NAME" or "purge", in order
    run_modules: tuple[str, ...] = ()  # only for running; never while an image is built
    gpu_flag: str = ""
    binds: tuple[str, ...] = ()
    optional_binds: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    zstd: Literal["yes", "no", "unknown"] = "unknown"  # can the runtime mount zstd squashfs
    layers: Literal["yes", "no", "unknown"] = "unknown"  # does it mount the overlay partitions of a SIF
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class BaseImage:
    """An image to start from and what it brings; versions as the image's own package list writes them."""

    reference: str
    source: tuple[str, ...]
    python: str | None = None
    provides: Mapping[str, str] = field(default_factory=dict)  # distribution -> version, "unknown" where not known
    rocm: str | None = None
    cuda: str | None = None
    glibc: str | None = None
    unsure: tuple[str, ...] = ()  # what of the above was seen second-hand or inferred
    family: Literal["", "ngc-pytorch", "intel-ipex"] = ""  # a family has one row per tag in the GPU tables
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """How images are built for the site; `tmpdir` and `cachedir` may hold ${NAME}, expanded where the build runs."""

    backends: tuple[BackendName, ...]  # the first is the default
    source: tuple[str, ...]
    modules: tuple[str, ...] = ()
    tmpdir: str = ""
    cachedir: str = ""
    tmpdir_is: Literal["memory", "disk", "unknown"] = "unknown"  # what `tmpdir` lies on
    where: Literal["site", "workstation"] = "site"  # workstation: the site cannot reach registries
    login_heavy: Literal["yes", "no", "unknown"] = "unknown"  # are heavy builds welcome on login nodes
    version: str | None = None  # of the first backend's own program, where the site installs one
    backend_modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # after `modules`, by BackendName
    backend_versions: Mapping[str, str] = field(default_factory=dict)  # of the other backends' programs
    wrapper_path: str = ""  # tykky: where the environment lies inside its wrappers
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How ranks are started; values may hold ${NAME}, expanded by the job (or, in `rank_environment`, by each rank)."""

    launcher: Launcher
    source: tuple[str, ...]
    cpu_masks: tuple[str, ...] = ()  # one per local rank, for srun --cpu-bind=mask_cpu
    options: tuple[str, ...] = ()  # of the launcher
    one_gpu_options: tuple[str, ...] = ()  # in place of `options` for a single task
    environment: Mapping[str, str] = field(default_factory=dict)
    one_node_environment: Mapping[str, str] = field(default_factory=dict)
    multi_node_environment: Mapping[str, str] = field(default_factory=dict)
    rank_environment: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    node_local_dirs: tuple[str, ...] = ()  # made by each rank before the program starts
    master_addr: Literal["first-host", "hostname-ip"] = "first-host"
    master_port: str = "free"  # found when the job starts; `50000+job`: plus the job's number modulo 10000
    torchrun_refused: str = ""  # why torchrun must not be used, in words; empty where it may
    device_hierarchy: Literal["", "FLAT", "COMPOSITE"] = ""  # Intel: whether ranks take stacks or cards by default
    cache_not_under: tuple[str, ...] = ()  # shared file systems, where no rank may keep its kernel cache
    expect_network: tuple[str, ...] = ()  # one of these is in NCCL's log, or a library of it is loaded, over nodes
    bandwidth: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # nodes -> size -> bus bandwidth, GB/s
    bandwidth_tolerance: int = 5  # percent below it that still pass
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One machine or one partition of it: the unit a recipe is compiled for."""

    name: str
    title: str
    description: str
    sources: Mapping[str, Source]
    node: Node
    network: Network
    scheduler: Scheduler
    runtime: Runtime
    build: BuildSettings
    launch: Launch
    base_images: tuple[BaseImage, ...]  # the first is the default
    gpu: Gpu | None = None
    hostnames: tuple[str, ...] = ()  # shell patterns of its nodes
    storage: str = ""
    unknown: tuple[str, ...] = ()  # what was looked for and not found

    @property
    def vendor(self) -> Vendor:
        """The vendor that torch has to be built for."""
        return self.gpu.vendor if self.gpu else "cpu"
