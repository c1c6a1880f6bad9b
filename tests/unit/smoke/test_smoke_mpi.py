"""What the workload mpi says where ranks have loaded the image's MPI and not the host's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.rows import rows

from builder.smoke import mpi_library, verdict


def made(own: str, offered: str, *, origin: str = "image", wanted: str | None = "host") -> dict[str, Any]:
    rank = {"rank": 0, "host": "n1", "mpi": {"library": own, "from": origin, "offered": offered}}
    return {"workload": "mpi", "expected": {"mpi": wanted, "ranks": 1}, "ranks": [rank]}


OWN, HOSTS = "/opt/env/lib/libmpi.so.12.5.2", "/opt/cray/lib-abi-mpich/libmpi.so.12"
CASES = (
    (OWN, "", "no folder of LD_LIBRARY_PATH in the image has an MPI of the host", "load the module that binds"),
    (
        "/usr/lib/libmpi.so.40.30.4",
        HOSTS,
        f"the host's {HOSTS} cannot take the place of libmpi.so.40",
        "libmpi.so.12 (pip",
    ),
    (
        "/usr/lib/libmpich.so.12.2.2",
        HOSTS,
        f"the host's {HOSTS} cannot take the place of libmpich.so.12",
        "(pip: mpich)",
    ),
    (OWN, HOSTS, f"the host's {HOSTS} has the right name and was not loaded", "unset MPI4PY_LIBMPI"),
)


@rows(("own", "offered", "said", "fix"), CASES)
def test_the_images_mpi_is_explained(own: str, offered: str, said: str, fix: str) -> None:
    what, where, action = verdict.explain(made(own, offered))
    assert what.startswith(f"error: {said}")
    assert where == f"at: rank 0 on n1, {own}"
    assert action.startswith("fix: ")
    assert fix in action


def test_the_right_mpi_is_not_explained() -> None:
    assert verdict.explain(made(HOSTS, "", origin="host")) == []
    assert verdict.explain(made(OWN, "", wanted="image")) == []
    assert verdict.explain(made(OWN, "", wanted=None)) == []
    assert verdict.explain({"workload": "mpi", "expected": {"mpi": "host"}, "ranks": "altered"}) == []
    assert verdict.explain(None) == []


def test_the_hosts_library_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "image/libmpi.so.12",
        "host/libmpi_gnu_123.so.12",
        "host/libmpi.so",
        "host/libmpich.so.12",
        "host/x.so.1",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.setattr(mpi_library, "find_origin", lambda path: Path(path).parent.name)
    folders = f"{tmp_path}/none::{tmp_path}/image:{tmp_path}/host"
    assert mpi_library.find_offered(folders, "/usr/lib/libmpich.so.12.2.2") == f"{tmp_path}/host/libmpich.so.12"
    assert mpi_library.find_offered(folders, "/usr/lib/libmpi.so.40") == f"{tmp_path}/host/libmpi_gnu_123.so.12"
    assert mpi_library.find_offered(f"{tmp_path}/image", "/usr/lib/libmpi.so.12") == ""
