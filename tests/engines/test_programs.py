"""Programs as they are on every site: the device that each rank of a real job selects, and how a job ends.

Real are Slurm on two nodes, Hydra, torchrun and Apptainer; the devices of torch are counted by a stand-in.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest
from conftest import needed
from recipe_program import Built, Room, run
from testbed import MODULES, Kit

pytestmark = pytest.mark.engines

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("local_rank", "slurm_localid", "device_zero", "rank_modulo")
OWN = ["0", "1", "0", "1"]  # two ranks of two nodes, each with a device of its own
SHARED = ["0", "0", "0", "0"]
TURNED = ["1", "0", "1", "0"]  # each with its own: the one next to its cores
# What the programs select where ranks see the devices of their node, and where each sees one. A program for device 0
# needs the second; one that goes by SLURM_LOCALID, the first.
NODE = {"local_rank": OWN, "slurm_localid": OWN, "device_zero": SHARED, "rank_modulo": OWN}
RANK = {"local_rank": OWN, "device_zero": OWN, "rank_modulo": OWN}
CASES = {
    "lumi-test": ("ROCR_VISIBLE_DEVICES", "node", NODE),
    "frontier-test": ("ROCR_VISIBLE_DEVICES", "rank", RANK),
    "dawn-test": ("ZE_AFFINITY_MASK", "node", NODE),
    "mn5-test": ("CUDA_VISIBLE_DEVICES", "node", NODE),
}
TURNED_NODE = {"local_rank": TURNED, "slurm_localid": TURNED, "device_zero": ["1"] * 4, "rank_modulo": TURNED}
LONG = ["python3", "-c", "import os, time; print('began', os.environ['RANK'], flush=True); time.sleep(600)"]

# One rank fails when the others have begun: what srun ends before may have an exit code of the runtime's.
FAILING = """
import os, pathlib, sys, time
rank = os.environ["RANK"]
pathlib.Path("began." + rank).touch()
while rank != "2" or not all(os.path.exists("began.%d" % other) for other in range(4)):
    time.sleep(0.1)
sys.exit(7)
"""


def devices_of(kit: Kit, variable: str, **environment: str) -> dict[str, list[str]]:
    """Run the programs as one job over two nodes: the device of each rank, or what it failed of."""
    seen = kit.folder / "seen"
    shutil.rmtree(seen, ignore_errors=True)
    seen.mkdir()
    shutil.copytree(PROGRAMS, kit.folder / "programs", dirs_exist_ok=True)
    words = [f"programs/{name}.py" for name in NAMES]
    options: tuple[str, ...] = ()
    if kit.folder.name == "kit-dawn-test":
        options = ("--ntasks-per-node=2",)
        environment |= {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
        environment["PATH"] = f"{needed('RECIPE_TEST_IMPI')}:{os.environ['PATH']}"
    job = kit.job(
        "run/nodes.sbatch", "python3", "programs/device_count_stand_in.py", variable, "seen", *words,
        options=options, SLURM_CPU_BIND="cores", **environment,
    )  # fmt: skip
    job.expect(0)
    found: dict[str, list[str]] = {}
    for name in NAMES:
        ranks = [json.loads((seen / f"{name}-{rank}.json").read_text()) for rank in range(4)]
        found[name] = [rank.get("device") or rank["error"] for rank in ranks]
    return found


def image_of(site: str, base_sif: Path, request: pytest.FixtureRequest) -> Path:
    """An image with torch where torchrun starts the ranks."""
    return Path(request.getfixturevalue("digits").image) if site == "mn5-test" else base_sif


@pytest.mark.parametrize("site", CASES)
def test_programs_run_unmodified_with_the_sites_default(
    room: Room, base_sif: Path, request: pytest.FixtureRequest, site: str
) -> None:
    variable, default, expected = CASES[site]
    kit = Kit(room, site, image_of(site, base_sif, request))
    found = devices_of(kit, variable)
    if site == "mn5-test":  # torchrun's task is the one that Slurm knows: `--launcher srun` is for SLURM_LOCALID
        expected = expected | {"slurm_localid": SHARED}
    assert {name: found[name] for name in expected} == expected
    if site == "frontier-test":
        assert found["slurm_localid"] == ["0", "invalid device ordinal 1 of 1"] * 2
        assert devices_of(kit, variable, RECIPE_GPU_VISIBILITY="node") == TURNED_NODE
        return
    assert default == "node"
    own = devices_of(kit, variable, RECIPE_GPU_VISIBILITY="rank")
    assert {name: own[name] for name in RANK} == RANK


def test_the_program_of_dawn_meets_at_the_jobs_address(room: Room, digits: Built) -> None:
    """As its page has the line, over two nodes; the program's own default is 127.0.0.1, which here is both."""
    kit = Kit(room, "dawn-test", digits.image)
    shutil.copy(PROGRAMS / "mnist_classify_ddp.py", kit.folder)
    page = (Path(__file__).parents[2] / "docs" / "sites" / "dawn.md").read_text()
    (line,) = re.findall(r"`sbatch [^`]*(run/nodes.sbatch [^`]*--dist-url[^`]*)`", page)
    job = kit.job(
        *shlex.split(line), options=("--ntasks-per-node=2",), ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE",
        PATH=f"{needed('RECIPE_TEST_IMPI')}:{os.environ['PATH']}",
    ).expect(0)  # fmt: skip
    assert f"4 ranks met at tcp://n1:{50000 + job.number % 10000}: 6" in job.log


def test_ranks_of_srun_in_place_of_torchruns(room: Room, base_sif: Path) -> None:
    kit = Kit(room, "mn5-test", base_sif, launcher="srun")
    assert devices_of(kit, "CUDA_VISIBLE_DEVICES") == NODE


def test_torchrun_in_place_of_the_ranks_of_srun(room: Room, digits: Built) -> None:
    kit = Kit(room, "lumi-test", digits.image, launcher="torchrun")
    found = devices_of(kit, "ROCR_VISIBLE_DEVICES")
    assert found == NODE | {"slurm_localid": SHARED}
    seen = [json.loads(path.read_text()) for path in (kit.folder / "seen").glob("local_rank-*.json")]
    assert [rank["threads"] for rank in seen] == ["1"] * 4  # two cores, two ranks
    # The program's own torchrun takes the place of the job's.
    shutil.rmtree(kit.folder / "seen")
    (kit.folder / "seen").mkdir()
    job = kit.job(
        "run/node.sbatch", "torchrun", "--standalone", "--nnodes=1", "--nproc_per_node=2",
        "programs/device_count_stand_in.py", "ROCR_VISIBLE_DEVICES", "seen", "programs/local_rank.py",
        OMP_NUM_THREADS="3",
    ).expect(0)  # fmt: skip
    seen = [json.loads(path.read_text()) for path in sorted((kit.folder / "seen").iterdir())]
    assert [(rank["device"], rank["threads"]) for rank in seen] == [("0", "3"), ("1", "3")], job.log


def test_a_job_without_the_users_shell_takes_run_site_env(room: Room, base_sif: Path) -> None:
    """As Frontier's jobs are submitted: nothing is inherited. The image sees the user's values and folder."""
    kit = Kit(room, "frontier-test", base_sif)
    folder = room.folder / "bound"
    folder.mkdir()
    (folder / "file").write_text("")
    (kit.folder / "run" / "site.env").write_text(
        f"NCCL_SOCKET_IFNAME=hsn0\nRECIPE_BINDS={folder}:/mnt\nRECIPE_GPU_VISIBILITY=node\nOWN=$(touch CANARY) a b\n"
        "http_proxy=http://other:1/\n"
    )
    options = ("--export=PATH,USER,HOME,SLURM_CONF,RECIPE_IMAGE,MODULEPATH",)
    job = kit.witness("run/nodes.sbatch", options=options)
    for rank in job.ranks:
        assert rank.values("NCCL_SOCKET_IFNAME", "OWN", "http_proxy", "NCCL_CROSS_NIC", "PYTHONUNBUFFERED") == [
            "hsn0", "$(touch CANARY) a b", "http://other:1/", "1", "1",
        ]  # fmt: skip
        assert rank.mounted
    assert [rank.values("LOCAL_RANK", "ROCR_VISIBLE_DEVICES") for rank in job.ranks] == [["0", "1,0"], ["1", "1,0"]] * 2
    assert not (kit.folder / "CANARY").exists()


def test_the_first_of_1024_nodes_is_found_200_times(room: Room, base_sif: Path) -> None:
    """scontrol writes blocks of 4096 bytes: a reader that stops after a line ended one job of three."""
    kit = Kit(room, "lumi-test", base_sif)
    script = """
        for turn in {1..200}; do
            bash -c 'set -eo pipefail; . run/job.sh; echo "$MASTER_ADDR"' || { echo "$turn: $?"; exit 1; }
        done | sort | uniq -c
    """
    done = run(
        ["bash", "-c", f"set -o pipefail; {script}"], cwd=kit.folder,
        env=kit.environment | {"SLURM_JOB_NODELIST": "nid[000001-001024]", "SLURM_JOB_ID": "7", "USER": "somebody"},
    ).expect(0)  # fmt: skip
    assert done.out.split() == ["200", "nid000001"], done.err


def until_begun(kit: Kit, number: int) -> str:
    """Wait until all ranks work: the folder that they have made on their nodes."""
    for rank in range(4):
        kit.until_said(number, f"began {rank}")
    (folder,) = Path("/tmp").glob(f"*-miopen-cache-{number}")
    return str(folder)


def wait_for_end_of(folder: str) -> None:
    end = time.monotonic() + 240
    while Path(folder).exists():
        assert time.monotonic() < end, f"{folder} is still there"
        time.sleep(0.1)


@pytest.mark.parametrize("how", ["failed", "cancelled", "killed"])
def test_folders_on_nodes_are_removed_with_the_job(room: Room, base_sif: Path, how: str) -> None:
    """Of a job whose script is killed they are removed by the tasks on the nodes, as on all nodes but the first."""
    kit = Kit(room, "lumi-test", base_sif)
    if how == "failed":
        # A rank that ends with an error ends the others, which would wait for ever.
        job = kit.job("run/nodes.sbatch", "python3", "-c", FAILING)
        assert "task 2: Exited with exit code 7" in job.log
        assert (job.code, job.record["reason"]) == (7, ""), job.log  # not that of the others, which srun ended
        kit.ended(job.number)
        folder = f"/tmp/{os.environ.get('USER', '')}-miopen-cache-{job.number}"
    else:
        number = kit.submit("run/nodes.sbatch", *LONG)
        folder = until_begun(kit, number)
        words = ["scancel", str(number)] if how == "cancelled" else ["scancel", "--signal=KILL", "--batch", str(number)]
        run(words).expect(0)
        if how == "cancelled":
            assert kit.ended(number)["reason"] == "cancelled"
    wait_for_end_of(folder)
    assert not list(Path("/tmp").glob(f"*-miopen-cache-{folder.rpartition('-')[2]}"))


# Writes what it finds in the place of the image's answer.
WITNESS = """
import json, os, pathlib, sys
found = {"environment": dict(os.environ), "folders": [], "cores": sorted(os.sched_getaffinity(0))}
found["folders"] = [path for path in os.environ.get("MIOPEN_USER_DB_PATH", "").split() if pathlib.Path(path).is_dir()]
json.dump(found, open(sys.argv[2], "w"))
"""


@pytest.mark.parametrize("site", CASES)
def test_the_job_that_judges_has_the_environment_of_run(room: Room, base_sif: Path, site: str) -> None:
    kit = Kit(room, site, base_sif, workloads=())
    (kit.folder / "verify.py").write_text(WITNESS)
    judging = kit.job("1-smoke.sbatch").expect(0)
    kit.ended(judging.number)  # the next job has its core and its device
    found = json.loads((kit.folder / "verify.json").read_text())
    site_variables = [
        line.split()[1] for line in (kit.folder / "run" / "job.sh").read_text().splitlines() if "site_variable " in line
    ]
    if site == "mn5-test":
        job = kit.job("run/gpu.sbatch", "true", RECIPE_ONE_PROCESS="yes").expect(0)
        expected = {"CUDA_VISIBLE_DEVICES": "0", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "offline"}
    else:
        job = kit.witness("run/gpu.sbatch", PATH=f"{needed('RECIPE_TEST_IMPI')}:{os.environ['PATH']}")
        (rank,) = job.ranks
        names = [*site_variables, CASES[site][0], "PYTHONUNBUFFERED", "PYTHONNOUSERSITE", "ZE_FLAT_DEVICE_HIERARCHY"]
        number = str(job.number)
        values = {name: rank.environment.get(name) for name in names}
        expected = {name: value and value.replace(number, str(judging.number)) for name, value in values.items()}
        assert found["folders"] == [path.replace(number, str(judging.number)) for path in rank.folders]
        assert found["cores"] == rank.cores
    seen = {name: found["environment"].get(name) for name in expected}
    assert {name: value for name, value in seen.items() if not name.startswith(("SLURM_", "APPTAINERENV_"))} == {
        name: value for name, value in expected.items() if not name.startswith(("SLURM_", "APPTAINERENV_"))
    }
    assert len(seen) >= 3


def test_whatever_fails_first_leaves_its_records(room: Room, base_sif: Path) -> None:
    kit = Kit(room, "frontier-test", base_sif)
    records = ("verify.json", "smoke-mnist.json", "smoke-ddp.json")

    def left() -> list[str]:
        found = {name: json.loads((kit.folder / name).read_text()) for name in records}
        return [found["verify.json"]["faults"][0], *(found[name]["error"] for name in records[1:])]

    # An image without torch: the question of how many devices it sees fails before any training.
    kit.job("1-smoke.sbatch").expect(1)
    assert all("torch cannot be imported" in text or "no launcher" in text for text in left()), left()
    # A node without the site's modules: nothing is run at all.
    kit.job("1-smoke.sbatch", MODULEPATH="/none").expect(1)
    assert left() == ["the smoke test ended with exit code 1 before this was tested"] * 3
    # An image that does not start.
    broken = room.write("no.sif", "this is no image\n")
    kit.job("1-smoke.sbatch", RECIPE_IMAGE=str(broken)).expect(1)
    assert left() == ["the smoke test ended with exit code 1 before this was tested"] * 3
    assert MODULES.is_dir()
