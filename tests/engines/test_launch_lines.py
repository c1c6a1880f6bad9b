"""The launch lines of every site, run for real on two nodes: what each rank sees is what the site prescribes.

Real are Slurm, Hydra (MPICH's and Intel's), Lmod, Apptainer and torchrun; stand-ins are the module files and the GPUs
(two device files).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import engine, needed
from recipe_program import Built, Room, run
from testbed import MODULES, SITES, TRAINING, WITNESS, Job, Kit, Rank, near_the_limit, saved

pytestmark = pytest.mark.engines

PLACEMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_NODEID")
OF_FOUR = [["0", "0", "4", "0"], ["1", "1", "4", "0"], ["2", "0", "4", "1"], ["3", "1", "4", "1"]]
Kits = Callable[[str], Kit]
BETWEEN_NODES = ("NCCL_SOCKET_IFNAME", "NCCL_NET_GDR_LEVEL")


@pytest.fixture
def kit(room: Room, base_sif: Path) -> Kits:
    """Kits of a site for the base image."""
    for name in ("sbatch", "srun", "mpiexec"):
        engine(name)
    assert Path("/usr/share/lmod/lmod/init/bash").exists(), "there is no Lmod: tests/testbed/engines.sh launch"
    return lambda site: Kit(room, site, base_sif)


def placements(job: Job) -> list[list[str | None]]:
    return [rank.values(*PLACEMENT) for rank in job.ranks]


def in_every_rank(job: Job, **expected: str | None) -> None:
    """Variables that all ranks share."""
    for rank in job.ranks:
        seen = dict(zip(expected, rank.values(*expected), strict=True))
        assert seen == expected, (seen, expected)
        assert rank.arguments == ["a b", "$HOME"]  # the user's words arrive as they were given
        assert rank.environment["PYTHONNOUSERSITE"] == "1"


def test_lumi_binds_each_rank_to_the_cores_of_its_gcd(kit: Kits) -> None:
    lumi = kit("lumi-test")
    job = lumi.witness("run/nodes.sbatch")
    assert placements(job) == OF_FOUR
    assert [rank.cores for rank in job.ranks] == [[1], [0], [1], [0]]  # the masks are 0x2 and 0x1, in this order
    assert [rank.values("ROCR_VISIBLE_DEVICES") for rank in job.ranks] == [["0,1"]] * 4  # LOCAL_RANK selects one
    cache = f"miopen-cache-{job.number}"
    in_every_rank(
        job,
        MASTER_ADDR="n1",
        MASTER_PORT=str(10000 + job.number % 10000),
        NCCL_SOCKET_IFNAME="hsn0,hsn1,hsn2,hsn3",
        NCCL_NET_GDR_LEVEL="PHB",
        CXI_FORK_SAFE="1",
    )
    for rank in job.ranks:
        paths = rank.values("MIOPEN_USER_DB_PATH", "MIOPEN_USER_DB", "MIOPEN_CUSTOM_CACHE_DIR")
        assert len(set(paths)) == 1
        assert rank.folders == paths[:1]  # it was made before the program started
        assert re.fullmatch(rf"/tmp/\S+-{cache}", rank.folders[0])
    one = lumi.witness("run/gpu.sbatch")
    assert [rank.values("RANK", "WORLD_SIZE", "ROCR_VISIBLE_DEVICES") for rank in one.ranks] == [["0", "1", "0"]]
    in_every_rank(one, **dict.fromkeys(BETWEEN_NODES))
    assert one.record["shape"] == "gpu"


def test_frontier_gives_each_rank_the_gpu_nearest_to_its_core(kit: Kits) -> None:
    """The job inherits next to nothing (--export), as the site's sbatch is called; the variables reach every rank."""
    frontier = kit("frontier-test")
    options = ("--export=PATH,USER,HOME,SLURM_CONF,RECIPE_IMAGE,MODULEPATH,SLURM_CPU_BIND",)
    job = frontier.witness("run/nodes.sbatch", options=options, SLURM_CPU_BIND="cores")
    assert [rank.values("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_NODEID") for rank in job.ranks] == [
        [str(number), "0", "4", str(number // 2)] for number in range(4)
    ]
    assert [rank.values("RECIPE_LOCAL_RANK") for rank in job.ranks] == [["0"], ["1"], ["0"], ["1"]]
    # One device each, which is device 0 for the rank: the rule for programs on this site.
    assert [rank.values("ROCR_VISIBLE_DEVICES") for rank in job.ranks] == [["0"], ["1"], ["0"], ["1"]]
    assert [rank.cores for rank in job.ranks] == [[0], [1], [0], [1]]
    in_every_rank(
        job,
        MASTER_PORT="3442",
        SLURM_EXPORT_ENV=None,
        NCCL_NET="OFI",
        NCCL_NET_PLUGIN=str(MODULES.parent / "plug-in-stand-in" / "librccl-net.so.0"),
        NCCL_SOCKET_IFNAME="hsn0,hsn1,hsn2,hsn3",
        NCCL_CROSS_NIC="1",
        HSA_FORCE_FINE_GRAIN_PCIE="1",
        FI_MR_CACHE_MONITOR="kdreg2",
        FI_CXI_RDZV_PROTO="alt_read",
        FI_CXI_RX_MATCH_MODE="hybrid",
        https_proxy="http://proxy.ccs.ornl.gov:3128/",
        all_proxy="socks://proxy.ccs.ornl.gov:3128/",
        MPICH_GPU_SUPPORT_ENABLED="1",
        GPU_STAND_IN="enabled",
        PYTHONPATH=None,
    )
    assert all(rank.mounted for rank in job.ranks)  # the binds of the module
    assert all(rank.plugin for rank in job.ranks)  # the file that the module rccl-net-plugin names
    assert {rank.environment["MASTER_ADDR"] for rank in job.ranks} == {job.ranks[0].environment["MASTER_ADDR"]}
    assert re.fullmatch(r"[0-9.]+|[0-9a-f:]+", job.ranks[0].environment["MASTER_ADDR"])
    assert "--network=disable_rdzv_get" in (frontier.folder / "run" / "nodes.sbatch").read_text()
    one = frontier.witness("run/gpu.sbatch", http_proxy="http://proxy.of.the.user/")
    assert not any(rank.plugin for rank in one.ranks)  # jobs of one node have no network
    in_every_rank(
        one,
        NCCL_NET="Socket",
        NCCL_NET_PLUGIN=None,
        http_proxy="http://proxy.of.the.user/",
        **dict.fromkeys(BETWEEN_NODES),
    )
    assert [rank.values("RANK", "WORLD_SIZE", "ROCR_VISIBLE_DEVICES") for rank in one.ranks] == [["0", "1", "0"]]


@pytest.mark.parametrize("hydra", ["mpich", "intel"])
@pytest.mark.parametrize(("hierarchy", "world"), [("FLAT", 8), ("COMPOSITE", 4)])
def test_dawn_counts_stacks_or_cards(kit: Kits, hydra: str, hierarchy: str, world: int) -> None:
    dawn = kit("dawn-test")
    given = {} if hierarchy == "FLAT" else {"ZE_FLAT_DEVICE_HIERARCHY": hierarchy}
    if hydra == "intel":
        given["PATH"] = f"{needed('RECIPE_TEST_IMPI')}:{os.environ['PATH']}"
    # Slurm is asked for the two cores there are; Hydra starts the ranks that the script counts.
    options = ("--ntasks-per-node=2",)
    job = dawn.witness("run/nodes.sbatch", options=options, SLURM_CPU_BIND="cores", **given)
    each = world // 2
    assert [rank.values("RANK", "LOCAL_RANK", "WORLD_SIZE") for rank in job.ranks] == [
        [str(number), str(number % each), str(world)] for number in range(world)
    ]
    # Nothing is pinned by us; Intel's Hydra gives each rank its share of the node, round and round.
    pinned = [[number % each % 2] for number in range(world)]
    assert [rank.cores for rank in job.ranks] == (pinned if hydra == "intel" else [[0, 1]] * world)
    in_every_rank(
        job,
        ZE_FLAT_DEVICE_HIERARCHY=hierarchy,
        ZE_AFFINITY_MASK=",".join(str(number) for number in range(each)),
        OMP_NUM_THREADS="1",
        MASTER_ADDR="n1",
        MASTER_PORT=str(50000 + job.number % 10000),
        CCL_ATL_TRANSPORT="ofi",
        CCL_ZE_IPC_EXCHANGE="sockets",
        CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK="0",
        CCL_PROCESS_LAUNCHER="hydra",
        CCL_ATL_SHM="0",
        CCL_MNIC="global",
        FI_PROVIDER="tcp",
        I_MPI_OFI_PROVIDER="tcp",
        SLURM_MEM_PER_NODE=None,
        SLURM_MEM_PER_CPU=None,
        PYTHONUNBUFFERED="1",
        CCL_ROOT="/stand-in/ccl/2021.15",
        PYTHONPATH=None,
    )
    for rank in job.ranks:
        assert rank.environment["LOADEDMODULES"] == "rhel9/default-dawn:intel-oneapi-ccl/2021.15.0"
        assert rank.environment["LD_LIBRARY_PATH"].startswith("/usr/lib64/libibverbs:/usr/lib64:")


def test_dawns_page_passes_the_rendezvous_to_the_program(kit: Kits) -> None:
    """The command of the page, word for word; the witness stands in for its program."""
    page = (Path(__file__).parents[2] / "docs" / "sites" / "dawn.md").read_text()
    (line,) = re.findall(r"run/nodes\.sbatch (bash -c '[^']*')", page)
    words = shlex.split(line)
    dawn = kit("dawn-test")
    (dawn.folder / "seen").mkdir()
    words[-1] = words[-1].replace("mnist_classify_ddp.py", "witness.py seen")
    job = dawn.job("run/nodes.sbatch", *words, options=("--ntasks-per-node=2",)).expect(0)
    seen = [json.loads(path.read_text())["arguments"] for path in sorted((dawn.folder / "seen").iterdir())]
    port = str(50000 + job.number % 10000)
    assert [arguments[-4:] for arguments in seen] == [["--dist-url", "n1", "--dist-port", port]] * 8


def test_a_program_under_hydra_saves_near_the_time_limit(kit: Kits) -> None:
    """Slurm's signal would reach the launcher, which would end its ranks: each rank's watcher tells the program."""
    dawn = kit("dawn-test")
    shutil.copy(TRAINING, dawn.folder)
    path = f"{needed('RECIPE_TEST_IMPI')}:{os.environ['PATH']}"
    number = dawn.submit(
        "run/nodes.sbatch", "python3", "training.py", "--well", options=("--ntasks-per-node=2",), PATH=path,
        ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE",
    )  # fmt: skip
    for rank in range(4):
        dawn.until_said(number, f"begun {rank}")
    near_the_limit(str(number), by_hand=True)
    record = dawn.ended(number)
    assert (record["reason"], record["ending"]) == ("time limit", False)
    assert saved(dawn.folder) == [[signal.SIGTERM, True]] * 4


def test_marenostrum_starts_torchrun_once_a_node(room: Room, digits: Built) -> None:
    mn5 = Kit(room, "mn5-test", digits.image)
    job = mn5.witness("run/nodes.sbatch", SLURM_CPU_BIND="cores")
    assert sorted(rank.values("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE") for rank in job.ranks) == [
        [str(number), str(number % 2), "4", "2"] for number in range(4)
    ]
    # Two ranks a node, whose number came from its own task: not all nodes are number 0.
    assert sorted(str(rank.environment["SLURM_PROCID"]) for rank in job.ranks) == ["0", "0", "1", "1"]
    assert {rank.environment["GROUP_RANK"] for rank in job.ranks} == {"0", "1"}
    # srun was told the cores again: with one core a task, as is its default, this would be [0].
    assert [rank.cores for rank in job.ranks] == [[0, 1]] * 4
    in_every_rank(
        job,
        CUDA_VISIBLE_DEVICES="0,1",
        MASTER_PORT=job.ranks[0].environment["MASTER_PORT"],  # torchrun's own, where its ranks meet
        NCCL_NET="IB",
        NCCL_SOCKET_IFNAME="ib0,ib1,ib2,ib3",
        NCCL_IB_HCA="mlx5_0,mlx5_1,mlx5_4,mlx5_5",
        HF_DATASETS_OFFLINE="1",
        WANDB_MODE="offline",
        RUNTIME_STAND_IN="singularity/3.11.5",
        TORCHELASTIC_RUN_ID=job.ranks[0].environment["PET_RDZV_ID"],
    )


def test_security_10_torchrun_meets_under_an_id_that_ps_and_squeue_do_not_show(room: Room, digits: Built) -> None:
    mn5 = Kit(room, "mn5-test", digits.image)
    jobs = [mn5.witness("run/nodes.sbatch"), mn5.witness("run/nodes.sbatch", RECIPE_MASTER_PORT="23456")]
    ids, ports = [], []
    for job in jobs:
        assert {rank.environment["WORLD_SIZE"] for rank in job.ranks} == {"4"}
        (one,) = {rank.environment["TORCHELASTIC_RUN_ID"] for rank in job.ranks}  # all ranks agree
        (endpoint,) = {rank.environment["PET_RDZV_ENDPOINT"] for rank in job.ranks}
        assert re.fullmatch("[0-9a-f]{32}", one)
        seen = [line for rank in job.ranks for line in rank.command_lines]
        assert any("torch.distributed.run" in line and "--rdzv_backend c10d" in line for line in seen)
        assert not [line for line in seen if one in line]
        assert one not in run(["scontrol", "show", "job", str(job.number)]).out
        assert not [path for path in mn5.folder.rglob("*.json") if "seen" not in path.parts and one in path.read_text()]
        ids.append(one)
        ports.append(int(endpoint.rpartition(":")[2]))
    assert ids[0] != ids[1]
    assert 10000 <= ports[0] < 30000
    assert ports[1] == 23456


# What each of the two ranks sees of its devices, and the cards that Slurm gives the job.
PARTS = {
    "lumi-part": ("ROCR_VISIBLE_DEVICES", ["0,1", "0,1"], "2"),
    "frontier-part": ("ROCR_VISIBLE_DEVICES", ["0", "1"], "2"),
    "dawn-test": ("ZE_AFFINITY_MASK", ["0,1", "0,1"], "1"),
    "mn5-part": ("CUDA_VISIBLE_DEVICES", ["0,1", "0,1"], "2"),
}


@pytest.mark.parametrize("site", PARTS)
def test_two_of_the_four_devices_of_a_node(
    rooms: Callable[[str], Room], base_sif: Path, request: pytest.FixtureRequest, site: str
) -> None:
    room = Room(rooms("parts").folder / site)
    room.site(site, SITES[site])
    image = request.getfixturevalue("digits").image if site == "mn5-part" else base_sif  # torchrun needs torch
    shutil.copy(WITNESS, room.folder)
    (room.folder / "seen").mkdir()
    variable, visible, cards = PARTS[site]
    path = f"{needed('RECIPE_TEST_IMPI')}:{os.environ['PATH']}"
    done = room.recipe(
        "run", site, image, "--submit", "--account", "a", "--gpus", "2", "-o", room.folder / "job",
        "--", "python3", "witness.py", "seen", "a b", "$HOME", MODULEPATH=str(MODULES), PATH=path,
    )  # fmt: skip
    done.expect(0)
    ranks = [Rank(**json.loads(path.read_text())) for path in sorted((room.folder / "seen").iterdir())]
    seen = [rank.values("RANK", "LOCAL_RANK", "WORLD_SIZE", variable) for rank in ranks]
    index = ["0", "0"] if site == "frontier-part" else ["0", "1"]  # that of a device which the rank sees
    assert seen == [[str(number), index[number], "2", visible[number]] for number in range(2)]
    assert {rank.environment["SLURM_GPUS_ON_NODE"] for rank in ranks} == {cards}
    assert all(rank.arguments == ["a b", "$HOME"] for rank in ranks)
    text = (room.folder / "job" / "1-run.sbatch").read_text()
    assert "mask_cpu" not in text  # masks hold where all cores are the job's
    (job,) = [path.stem for path in (room.folder / "job" / "jobs").glob("[0-9]*.json")]
    # Another job may be on the node, and must not meet at the same port; Frontier gives whole nodes alone.
    fixed = {"frontier-part": "3442", "dawn-test": str(50000 + int(job) % 10000)}
    if site != "mn5-part":  # there torchrun gives its ranks a port of its own
        expected = fixed.get(site, str(10000 + int(job) % 10000))
        assert {rank.environment["MASTER_PORT"] for rank in ranks} == {expected}


def test_here_ranks_are_plain_processes_or_torchruns(room: Room, base_sif: Path, digits: Built) -> None:
    kit = Kit(room, "local", base_sif)
    seen = kit.folder / "seen"
    for image, how in ((base_sif, "plain"), (digits.image, "torchrun")):
        seen.mkdir()
        words = ("run/ranks.sh", "2", "python3", "witness.py", "seen")
        kit.run(*words, RECIPE_IMAGE=str(image), RECIPE_PROCESSES=how).expect(0)
        ranks = [Rank(**json.loads(path.read_text())) for path in sorted(seen.iterdir())]
        assert [rank.values("RANK", "LOCAL_RANK", "WORLD_SIZE") for rank in ranks] == [["0", "0", "2"], ["1", "1", "2"]]
        assert ranks[0].values("MASTER_ADDR", "MASTER_PORT") == ranks[1].values("MASTER_ADDR", "MASTER_PORT")
        for path in seen.iterdir():
            path.unlink()
        seen.rmdir()
    done = kit.run("run/ranks.sh", "2", "sh", "-c", "exit $((RANK + 3))", RECIPE_PROCESSES="plain")
    assert done.code in (3, 4)
    assert kit.run("run/ranks.sh", "two", "true").expect(2).err == "recipe: error: 'two' is not a number\n"
