"""The audit as it travels in a plan folder: what it says of the file of an image, and what name it leaves it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.bombs import squashfs
from support.made_elf import elf, fatbin
from support.rows import rows

from builder.audit import distribution
from builder.audit.installed import read_folder
from builder.audit.planned import read_installed
from builder.execute.plan_folder import BUNDLED, PACKAGE
from builder.layers.cache import Store, compute_key
from builder.layers.image_file import Layer
from builder.layers.package_audit import PackageAudit
from builder.layers.wheels import Pin
from builder.parse.site import load_site
from builder.resolve.driver import make_machine

SITE = "opt/env/lib/python3.12/site-packages"
VOLTA = elf(needed=["libcudart.so.12"], sections={".nv_fatbin": fatbin(("cubin", 70, "", ""))})
HOPPER = elf(needed=["libcudart.so.12"], sections={".nv_fatbin": fatbin(("cubin", 90, "", ""))})
BLACKWELL = elf(needed=["libcudart.so.13"], sections={".nv_fatbin": fatbin(("cubin", 100, "", ""))})
PLAIN = elf(needed=["libc.so.6"])


def package(name: str, content: bytes, site: str = SITE) -> dict[str, bytes]:
    """A package of pip with one library."""
    return {f"{site}/{name}/a.so": content, f"{site}/{name}-1.0.dist-info/RECORD": f"{name}/a.so,,\n".encode()}


def question(
    folder: Path, *, folders: tuple[str, ...] = ("opt/env",), cpu: bool = False, ignored: bool = False
) -> None:
    machine = make_machine(load_site("mn5"))
    words = {
        name: getattr(machine, name) for name in ("vendor", "targets", "majors", "cuda", "arch", "glibc", "python")
    }
    document = {"schema": 1, "site": "mn5", "machine": words, "folders": folders, "cpu": cpu, "ignored": ignored}
    (folder / "audit.json").write_text(json.dumps(document))


def travelling(folder: Path) -> Path:
    """The program as it is in a plan folder."""
    for name, below in BUNDLED["layering"].items():
        shutil.copytree(PACKAGE / name, folder / f"layering{below}", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "layering"


def audit(folder: Path, part: str = "x.sif.part") -> subprocess.CompletedProcess[str]:
    """The line of the scripts, by a Python that knows nothing of ours."""
    program = folder / "layering" if (folder / "layering").exists() else travelling(folder)
    argv = [sys.executable, "-I", "-S", "-B", str(program), "audit", "audit.json", part]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def test_a_wrong_package_keeps_the_image_from_its_name(tmp_path: Path) -> None:
    question(tmp_path)
    squashfs(tmp_path / "x.sif.part", {**package("kernels", VOLTA), **package("other", HOPPER)})
    done = audit(tmp_path)
    assert (done.returncode, (tmp_path / "x.sif.failed").exists(), (tmp_path / "x.sif.part").exists()) == (
        6,
        True,
        False,
    )
    said = "'kernels' 1.0 is wrong for 'mn5': it has code for sm_70, this GPU is sm_90 (opt/env/lib/python3.12/"
    assert f"recipe: error: {said}" in done.stderr
    assert "--ignore gpu-audit" in done.stderr
    found = json.loads((tmp_path / "gpu-audit.json").read_text())
    assert (found["ok"], found["packages"], [one["wrong"] for one in found["verdicts"]]) == (False, 2, [True, False])


NATIVE = "usr/lib/python3/dist-packages"


ROWS = {
    "what fits": (package("a", HOPPER), {}, 0),
    "another major": (package("a", BLACKWELL), {}, 6),
    "a framework for CPUs": (package("torch", PLAIN), {}, 6),
    "a framework for CPUs that is wanted": (package("torch", PLAIN), {"cpu": True}, 0),
    "what needs no GPU": (package("a", PLAIN), {}, 0),
    "what is ignored": (package("a", VOLTA), {"ignored": True}, 0),
    "what the base image has elsewhere": (package("a", VOLTA, NATIVE), {}, 0),
    "what joins the base image's Python": (package("a", VOLTA, NATIVE), {"folders": ()}, 6),
    "what the base image listed before": (
        {**package("a_b", VOLTA, NATIVE), "opt/recipe/base-packages.txt": b"A.b==1.0\n"}, {"folders": ()}, 0,
    ),
    "another version than was there before": (
        {**package("a_b", VOLTA, NATIVE), "opt/recipe/base-packages.txt": b"a-b==0.9\n"}, {"folders": ()}, 6,
    ),
}  # fmt: skip


@rows(("files", "asked", "code"), ROWS.values(), ids=ROWS)
def test_what_stops_a_build(files: dict[str, bytes], asked: dict[str, bool], code: int, tmp_path: Path) -> None:
    question(tmp_path, **asked)  # type: ignore[arg-type]
    squashfs(tmp_path / "x.sif.part", files)
    done = audit(tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert (tmp_path / "x.sif.part").exists() == (code == 0)


def test_a_folder_of_tykky_is_kept_whole(tmp_path: Path) -> None:
    question(tmp_path, folders=("",))
    (tmp_path / "env.part").mkdir()
    squashfs(
        tmp_path / "env.part" / "img.sqfs",
        package("kernels", VOLTA, "miniforge/envs/env1/lib/python3.12/site-packages"),
    )
    assert audit(tmp_path, "env.part").returncode == 6
    assert (tmp_path / "env.failed" / "img.sqfs").exists()


@pytest.mark.parametrize("content", [b"", b"hsqs", b"#!/usr/bin/env run-singularity\n"])
def test_what_cannot_be_read_stops_nothing(content: bytes, tmp_path: Path) -> None:
    question(tmp_path)
    (tmp_path / "x.sif.part").write_bytes(content)
    done = audit(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "note: the packages of 'x.sif.part' are not audited: " in done.stdout
    assert (tmp_path / "x.sif.part").read_bytes() == content


def test_a_second_audit_replaces_the_first_answer(tmp_path: Path) -> None:
    question(tmp_path)
    squashfs(tmp_path / "x.sif.part", package("kernels", VOLTA))
    assert audit(tmp_path).returncode == 6
    squashfs(tmp_path / "x.sif.part", package("kernels", HOPPER))
    assert audit(tmp_path).returncode == 0
    assert not (tmp_path / "x.sif.failed").exists()
    assert json.loads((tmp_path / "gpu-audit.json").read_text())["ok"]


def test_a_folder_says_what_its_squashfs_file_says(tmp_path: Path) -> None:
    files, tree = {**package("a_b", HOPPER), **package("c", PLAIN)}, tmp_path / "tree"
    squashfs(tmp_path / "x.sqfs", files)
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    here, there = read_folder(tree).distributions, read_installed(tmp_path / "x.sqfs", ("",)).distributions
    assert [distribution.describe_distribution(one) for one in here] == [
        distribution.describe_distribution(one) for one in there
    ]
    assert {one.name for one in here} == {"a-b", "c"}


def test_layers_are_read_once(tmp_path: Path) -> None:
    """Of wheels what was read is kept with the wheel, of other packages with the layer, and is removed with it."""
    question(tmp_path)
    store = Store(tmp_path / "cache")

    def layer(title: str, files: dict[str, bytes]) -> Layer:
        entry, _ = store.get(
            "layers", compute_key(title), title=title, make=lambda path: squashfs(path, files) and None
        )
        return Layer(entry=entry)

    conda = {
        "opt/env/lib/k.so": VOLTA,
        "opt/env/conda-meta/k.json": b'{"name": "k", "version": "2", "files": ["lib/k.so"]}',
    }
    wheels, others = layer("packages", {**package("a_b", HOPPER), **package("c", PLAIN)}), layer("conda", conda)
    pins = [Pin(name=name, version="1.0", text=f"{name}==1.0", hashes=()) for name in ("a-b", "c", "without-files")]

    def judged(*chosen: Pin) -> dict[str, str]:
        audit = PackageAudit(tmp_path, store)
        audit.note_wheels(wheels.entry.key, chosen, place=["3.12"])
        audit.judge([wheels, others])
        return {one.name: f"{one.says}{' (wrong)' if one.wrong else ''}" for one in audit.verdicts}

    said = {"a-b": "uses this GPU", "c": "CPU only", "k": "no code for this GPU (wrong)"}
    assert judged(*pins) == said
    kept = {path: path.read_bytes() for path in store.folder.rglob("audit-*.json")}
    assert len(kept) == 4
    for path in (wheels.entry.path, others.entry.path):
        path.write_bytes(b"")  # whoever reads it now has nothing
    assert judged(*pins) == said
    assert store.drop(others.entry)
    assert len([*store.folder.rglob("audit-*.json")]) == 3
