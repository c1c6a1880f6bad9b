"""recipe diff: images, locks, an image and its lock."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.layers.conda_solver import CondaPackage
from builder.model.contents import (
    Contents,
    InstalledPackage,
    compare_packages,
    list_locked_packages,
    select_own_packages,
)
from builder.model.lock import BaseLock, Lock, LockRequest, PipFile

OWN = "/opt/env/lib/python3.12/site-packages"


def lock(place: str = "conda") -> Lock:
    return Lock(
        site="local", recipe="", tool="", base=BaseLock(reference="x"),
        asked=LockRequest(place=place, arch="x86_64", base="x"),  # type: ignore[arg-type]
        conda=(CondaPackage(name="python", version="3.12.1", build="h_0", subdir="linux-64", url="u", sha256="a"),),
        pip=(
            PipFile(name="typing-extensions", version="4.16.0", kind="wheel", url="u"),
            PipFile(name="mine", version="", kind="vcs", url="git+https://x/y@1"),
        ),
    )  # fmt: skip


def image() -> list[InstalledPackage]:
    return [
        InstalledPackage(kind="conda", name="python", version="3.12.1", build="h_0", place="/opt/env"),
        InstalledPackage(kind="pip", name="typing_extensions", version="4.16", place=OWN),
        InstalledPackage(kind="pip", name="mine", version="0.3.dev0", place=OWN),
        InstalledPackage(kind="pip", name="pip", version="23", place="/usr/lib/python3/dist-packages"),
        InstalledPackage(kind="deb", name="libc6", version="2"),
    ]


def contents(packages: list[InstalledPackage]) -> Contents:
    return Contents(image="x", kind="sif", size=1, packages=tuple(packages))


def test_an_image_of_its_lock_is_the_same() -> None:
    packages = [
        *image()[:1],
        InstalledPackage(kind="pip", name="typing_extensions", version="4.16.0", place=OWN),
        *image()[2:],
    ]
    assert compare_packages(list_locked_packages(lock()), select_own_packages(contents(packages), lock())) == ()


def test_an_image_that_is_not_of_its_lock() -> None:
    packages = [
        InstalledPackage(kind="conda", name="python", version="3.12.1", build="h_1", place="/opt/env"),
        InstalledPackage(kind="pip", name="mine", version="1", place=OWN),
        InstalledPackage(kind="pip", name="six", version="1.16.0", place=OWN),
    ]
    found = [(change.what, change.name, change.before, change.after) for change in compare_packages(
        list_locked_packages(lock()), select_own_packages(contents(packages), lock())
    )]  # fmt: skip
    assert found == [
        ("changed", "python", ("3.12.1 h_0",), ("3.12.1 h_1",)),
        ("added", "six", (), ("1.16.0",)),
        ("removed", "typing-extensions", ("4.16.0",), ()),
    ]


def test_the_base_image_is_left_out_unless_the_lock_names_it() -> None:
    packages = [
        InstalledPackage(kind="pip", name="mine", version="1", place="/usr/lib/python3/dist-packages"),
        *image()[3:],
    ]
    assert [item.name for item in select_own_packages(contents(packages), lock("base"))] == ["mine"]
    assert select_own_packages(contents(packages), lock("venv")) == ()


def archive(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w") as file:
        for name in names:
            text = b""
            member = tarfile.TarInfo(f"opt/env/lib/python3.12/site-packages/{name}.dist-info/METADATA")
            member.size = len(text)
            file.addfile(member, io.BytesIO(text))
    return path


def test_two_images_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = archive(tmp_path / "a.tar", "six-1.16.0", "old-1", "Same_Name-1.0")
    two = archive(tmp_path / "b.tar", "six-1.17.0", "new-2", "same.name-1.0")
    assert run(["diff", str(one), str(one)]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "no difference\n")
    assert run(["diff", str(one), str(two)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "+  pip  new  2", "-  pip  old  1", "~  pip  six  1.16.0 -> 1.17.0",
    ]  # fmt: skip
    assert run(["diff", str(one), str(two), "--json"]) == 1
    tree = json.loads(capsys.readouterr().out)
    assert (tree["same"], [change["what"] for change in tree["changes"]]) == (False, ["added", "removed", "changed"])


def test_a_lock_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = archive(tmp_path / "a.tar", "six-1.16.0")
    (tmp_path / "environment.yml").write_text("name: x\n")
    assert run(["diff", str(tmp_path / "environment.yml"), str(one)]) == 2
    assert "there is no lock" in capsys.readouterr().err
