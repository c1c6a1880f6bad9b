"""What the audit reads of a layer while it is packed, and what it keeps of that."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from support.made_elf import bundle, elf, fatbin

from builder.audit.gpu_verdict import Machine
from builder.layers.cache import CacheEntry, Store
from builder.layers.image_file import Layer
from builder.layers.package_audit import PackageAudit
from builder.layers.wheels import Pin

MACHINE = Machine(vendor="nvidia", targets=("sm_90",), majors=(11, 12), cuda="12.2")
SITE = "opt/env/lib/python3.11/site-packages"
NEWER = elf(needed=["libcudart.so.13"], sections={".nv_fatbin": fatbin(("cubin", 90, "", ""))})
HIP = elf(needed=["libamdhip64.so.6"], sections={".hip_fatbin": bundle("gfx90a")})


def install(tree: Path, name: str, content: bytes) -> None:
    site = tree / SITE
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / name).mkdir()
    (site / name / "kernels.so").write_bytes(content)
    (info / "RECORD").write_text(f"{name}/kernels.so,,\n{name}-1.0.dist-info/RECORD,,\n", encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    install(tree, "one", NEWER)
    install(tree, "two", HIP)
    return tree


def audit(folder: Path) -> PackageAudit:
    plan = {"schema": 1, "site": "made", "machine": asdict(MACHINE), "folders": [], "cpu": False, "ignored": False}
    (folder / "audit.json").write_text(json.dumps(plan), encoding="utf-8")
    return PackageAudit(folder, Store(folder / "cache"))


def pins(*names: str) -> tuple[Pin, ...]:
    return tuple(Pin(name=name, version="1.0", text=f"{name}==1.0", hashes=("sha256:" + "0" * 64,)) for name in names)


def layer(path: Path, key: str) -> Layer:
    entry = CacheEntry(kind="layers", key=key, path=path, title="packages", sha256="0" * 64, size=1)
    return Layer(entry=entry, fresh=True)


def wrong(found: PackageAudit) -> dict[str, str]:
    return {one.name: one.says for one in found.verdicts if one.wrong}


EXPECTED = {"one": "wrong runtime major", "two": "other vendor"}


def test_a_layer_is_read_in_its_folder_while_it_is_packed(tmp_path: Path, tree: Path) -> None:
    first = audit(tmp_path)
    first.note_wheels("key", pins("one", "two"), place=["3.11"])
    with first.read_beside("key", tree, title="packages"):
        pass
    shutil.rmtree(tree)
    first.judge([layer(tmp_path / "missing.sqfs", "key")])
    assert wrong(first) == EXPECTED

    second = audit(tmp_path)  # the facts are kept with the wheels, whichever layer they are in
    second.note_wheels("other", pins("two"), place=["3.11"])
    with second.read_beside("other", tmp_path / "missing", title="packages"):
        pass
    second.judge([layer(tmp_path / "missing.sqfs", "other")])
    assert wrong(second) == {"two": "other vendor"}


def test_facts_of_another_python_are_not_used(tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = audit(tmp_path)
    first.note_wheels("key", pins("one", "two"), place=["3.11"])
    with first.read_beside("key", tree, title="packages"):
        pass
    first.judge([layer(tmp_path / "missing.sqfs", "key")])
    second = audit(tmp_path)
    second.note_wheels("key", pins("one", "two"), place=["3.12"])
    second.judge([layer(tmp_path / "missing.sqfs", "key")])
    assert (wrong(second), "is not audited" in capsys.readouterr().out) == ({}, True)


def test_fetched_wheels_are_judged_without_a_layer(tmp_path: Path, tree: Path) -> None:
    found = audit(tmp_path)
    found.note_wheels("key", pins("one", "two"), place=["3.11"])
    found.note_wheels("earlier", pins("gone"), place=["3.11"])  # started from the cache, and not resolved in the end
    with found.read_beside("key", tree, title="packages"):
        pass
    message, fix = found.judge_fetched([], ["one==1.0", "two==1.0"])
    assert "'one' 1.0 is wrong for 'made'" in message
    assert "'two' 1.0 is wrong for 'made'" in message
    assert "--ignore gpu-audit" in fix
