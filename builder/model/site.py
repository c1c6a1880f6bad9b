"""A site: the facts about one machine that the compiler needs, as the site's YAML file states them.

Every section lists the sources of its values; the top-level `sources` table describes each source and the date it was
checked. An unknown fact is written `unknown` and read as None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Vendor = Literal["amd", "nvidia", "intel", "cpu"]
BackendName = Literal["cotainr", "apptainer", "docker", "tykky", "layers"]
Launcher = Literal["srun", "srun-torchrun", "mpiexec", "plain"]
LAUNCHER_NAMES: Mapping[str, Launcher] = {"srun": "srun", "torchrun": "srun-torchrun"}  # those a user may choose
GpuVisibility = Literal["node", "rank"]
Purpose = Literal["gpu", "node", "nodes", "build", "convert"]
THIS_MACHINE = "local"  # the site of any machine, with the GPU that it has
GPU_FLAGS: Mapping[str, str] = {"nvidia": "--nv", "amd": "--rocm"}  # of Apptainer and SingularityCE
SUBDIRS: Mapping[str, str] = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}  # conda's names of processors


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source of facts and its date (YYYY-MM-DD, or YYYY-MM if the day is unknown)."""

    what: str
    checked: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One compute node; memory in GiB; `usable_cores` are the cores that a job may bind to.

    `level` is the x86-64 level of the processor (x86-64 psABI).
    """

    arch: Literal["x86_64", "aarch64"]
    cores: int | None
    usable_cores: int | None
    memory_gib: int | None
    source: tuple[str, ...]
    os: str | None = None
    level: Literal["v2", "v3", "v4"] | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The GPUs of a node. A device is the unit that one rank uses (a GCD, a GPU, a stack); memory in GiB per device."""

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
    rocm_disputed: tuple[str, ...] = ()  # those that one source says it serves, and another not
    other_driver: str | None = None  # what another source read; a build should run on both
    other_driver_checked: str | None = None
    rocm_safe: str | None = None  # the highest of them without known trouble
    unsure: tuple[str, ...] = ()  # which of the above are second-hand or inferred
    cuda_native: str | None = None  # highest toolkit that the driver serves without minor-version compatibility
    cuda_compat: Literal["yes", "no", "unknown"] = "unknown"  # does an image's cuda-compat replace the host's libcuda
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network between nodes; `internet` is the access of compute nodes: yes, proxy or no."""

    fabric: str | None
    interfaces: tuple[str, ...]
    internet: Literal["yes", "proxy", "no", "unknown"]
    source: tuple[str, ...]
    login_internet: Literal["yes", "proxy", "no", "unknown"] = "unknown"
    proxy: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A shape of Slurm job; `options` are long sbatch options without dashes, in the order they are written.

    `nodes` is the default count (`--nodes` may request more if the purpose is `nodes`); `minutes` is the time limit.
    """

    nodes: int
    tasks_per_node: int
    cpus_per_task: int | None
    minutes: int
    options: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0  # as the scheduler counts them, per node
    devices: int = 0  # as ranks count them, per node
    bind: bool = False  # whole nodes: the CPU masks apply
    ranks: int = 0  # that torchrun starts on each node; 0: one for each device


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
    whole_nodes: bool = False  # every job gets whole nodes
    several_whole: bool = False  # a job of several nodes must take all devices of each
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How an image is run: program, modules, GPU flag, binds. `optional_binds` are bound only if they exist."""

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
    """A base image and what it provides; versions as the package list of the image writes them."""

    reference: str
    source: tuple[str, ...]
    python: str | None = None
    provides: Mapping[str, str] = field(default_factory=dict)  # distribution -> version or "unknown"
    rocm: str | None = None
    cuda: str | None = None
    glibc: str | None = None
    network_plugin: Literal["yes", "no", "unknown"] = "unknown"  # NCCL's or RCCL's, for the site's network
    mpi: str | None = None  # the MPI that it has with its `mpicc`, e.g. mpich-4.3; `none`: it has none
    unsure: tuple[str, ...] = ()  # which of the above are second-hand or inferred
    family: Literal["", "ngc-pytorch", "intel-ipex"] = ""  # a family has one row per tag in the GPU tables
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """How images are built for the site; `tmpdir` and `cachedir` may contain ${NAME}, expanded during the build."""

    backends: tuple[BackendName, ...]  # the first is the default
    source: tuple[str, ...]
    modules: tuple[str, ...] = ()
    tmpdir: str = ""
    cachedir: str = ""
    tmpdir_is: Literal["memory", "disk", "unknown"] = "unknown"  # the storage of `tmpdir`
    where: Literal["site", "workstation"] = "site"  # workstation: the site cannot reach registries
    login_heavy: Literal["yes", "no", "unknown"] = "unknown"  # are heavy builds welcome on login nodes
    user_namespaces: Literal["yes", "no", "unknown"] = "unknown"  # may a user make them
    fakeroot: Literal["yes", "no", "unknown"] = "unknown"  # does `--fakeroot` of the runtime work for a user
    proot: Literal["yes", "no", "unknown"] = "unknown"  # does a definition file build in PRoot
    version: str | None = None  # of the first backend's program, if the site installs one
    backend_modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # after `modules`, by BackendName
    backend_versions: Mapping[str, str] = field(default_factory=dict)  # of the other backends' programs
    wrapper_path: str = ""  # tykky: the path of the environment inside its wrappers
    note: str = ""

    @property
    def needs_proot(self) -> bool:
        """Whether definition files are built in PRoot: nothing else gives a user the rights of %post."""
        return self.proot == "yes" and self.fakeroot == "no" and self.user_namespaces == "no"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How ranks are started; values may contain ${NAME}, expanded by the job (in `rank_environment`: by each rank)."""

    launcher: Launcher
    source: tuple[str, ...]
    cpu_masks: tuple[str, ...] = ()  # one per local rank, for srun --cpu-bind=mask_cpu
    options: tuple[str, ...] = ()  # of the launcher
    one_gpu_options: tuple[str, ...] = ()  # in place of `options` for a single task
    gpu_visibility: GpuVisibility = "node"  # a rank sees the devices of its node, or one of its own
    node_options: tuple[str, ...] = ()  # more options if ranks see the node's devices; may contain {gpus}
    rank_options: tuple[str, ...] = ()  # more options if a rank sees one; they select its device
    gpu_order: tuple[int, ...] = ()  # whole nodes: the device next to each local rank
    environment: Mapping[str, str] = field(default_factory=dict)
    one_node_environment: Mapping[str, str] = field(default_factory=dict)
    multi_node_environment: Mapping[str, str] = field(default_factory=dict)
    rank_environment: Mapping[str, str] = field(default_factory=dict)
    plugin_modules: tuple[str, ...] = ()  # of jobs of several nodes; they set NCCL_NET_PLUGIN, whose folder is bound
    unset: tuple[str, ...] = ()
    node_local_dirs: tuple[str, ...] = ()  # made by each rank; removed after the job if its number is in their name
    master_addr: Literal["first-host", "hostname-ip"] = "first-host"
    master_suffix: str = ""  # of the first host's name: what makes it that of the fast network, e.g. `i`
    master_port: str = "free"  # chosen when the job starts; `50000+job`: plus the job's number modulo 10000
    mpi: Literal["host", "image", "unknown"] = "unknown"  # whose MPI library the ranks of an image load
    torchrun_refused: str = ""  # why torchrun must not be used; empty if it may
    device_hierarchy: Literal["", "FLAT", "COMPOSITE"] = ""  # Intel: whether ranks take stacks or cards by default
    cache_not_under: tuple[str, ...] = ()  # shared file systems that must not hold kernel caches
    expect_network: tuple[str, ...] = ()  # over nodes, one of these is in NCCL's log or is a loaded library
    bandwidth: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # nodes -> size -> bus bandwidth, GB/s
    bandwidth_tolerance: int = 5  # percent below the expected bandwidth that still pass
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
    unknown: tuple[str, ...] = ()  # facts that could not be found

    @property
    def brings_mpi(self) -> bool:
        """Whether its jobs bind the MPI of its mpiexec and name the library, which mpi4py's wheel then loads."""
        return self.launch.mpi == "host" and self.launch.launcher == "mpiexec"

    @property
    def vendor(self) -> Vendor:
        """The vendor that torch must be built for."""
        return self.gpu.vendor if self.gpu else "cpu"
