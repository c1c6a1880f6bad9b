"""Pins, groups, staging and compiling: what is decided and changed without an engine."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.rows import rows

from builder.layers.base_facts import BaseFacts
from builder.layers.bytecode import is_imported, load, save
from builder.layers.uv import INDEXES, SETTINGS, make_uv_environment, make_uv_settings
from builder.layers.wheel_files import PREFIX, list_sources, normalize_installation, write_environment
from builder.layers.wheels import Pin, Resolver, list_uv_options, name_platform, parse_pins, resolve
from builder.model import secrets
from builder.sif.errors import LayeringError
from builder.sif.pack import Piece, expand_pieces, move_below

LOCK = """\
numpy==2.4.6 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
nvidia-cublas-cu12==12.6.4.1 --hash=sha256:{a}
Torch==2.8.0+cu126 \\
    --hash=sha256:{b}
# a comment
jaxlib==0.6.2 --hash=sha256:{a}
""".format(a="a" * 64, b="b" * 64)


class Fixed(Resolver):
    """A resolver that knows the answer."""

    def __init__(self, work: Path, answer: str) -> None:
        super().__init__(uv="uv", minor="3.11", platform="x86_64-manylinux_2_36", work=work, environment={})
        self.answer = answer
        self.calls: list[tuple[list[str], bool]] = []

    def compile(self, files: Sequence[Path], *options: str, own_index: bool = False) -> tuple[Pin, ...]:
        assert all(isinstance(option, str) for option in options)
        self.calls.append(([file.name for file in files], own_index))
        return parse_pins(self.answer)


def test_pins_are_read_with_their_hashes() -> None:
    pins = parse_pins(LOCK)
    assert [(pin.name, pin.version, len(pin.hashes)) for pin in pins] == [
        ("numpy", "2.4.6", 2),
        ("nvidia-cublas-cu12", "12.6.4.1", 1),
        ("torch", "2.8.0+cu126", 1),
        ("jaxlib", "0.6.2", 1),
    ]


def test_heavy_packages_have_layers_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "requirements-torch.txt").write_text("torch==2.8.0\n")
    (tmp_path / "requirements.txt").write_text("numpy\njaxlib\n")
    groups, inside = resolve(tmp_path, Fixed(tmp_path, LOCK))
    assert not inside
    assert [(group.title, [pin.name for pin in group.pins]) for group in groups] == [
        ("torch", ["nvidia-cublas-cu12", "torch"]), ("jaxlib", ["jaxlib"]), ("packages", ["numpy"]),
    ]  # fmt: skip


def test_torch_from_its_own_index_is_resolved_apart(tmp_path: Path) -> None:
    (tmp_path / "requirements-torch.txt").write_text("--index-url https://example.org/cu126\ntorch==2.8.0\n")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    resolver = Fixed(tmp_path, LOCK)
    groups, _ = resolve(tmp_path, resolver)
    assert resolver.calls[0] == (["requirements-torch.txt"], True)
    torch = next(group for group in groups if group.title == "torch")
    assert (torch.own_index, torch.options) == (True, ("--index-url", "https://example.org/cu126"))


def test_a_lock_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "requirements-torch.txt").write_text(f"--index-url https://example.org/cu126\n--require-hashes\n{LOCK}")
    (tmp_path / "requirements.txt").write_text("--require-hashes\nsix==1.16.0 --hash=sha256:" + "a" * 64 + "\n")
    resolver = Fixed(tmp_path, "")
    groups, _ = resolve(tmp_path, resolver)
    assert resolver.calls == []
    assert [group.title for group in groups] == ["torch", "jaxlib", "packages", "packages"]
    assert sum(len(group.pins) for group in groups) == 5


@pytest.mark.parametrize("name", ["requirements-commits.txt", "compiled.txt"])
def test_what_is_compiled_is_compiled_inside(name: str, tmp_path: Path) -> None:
    (tmp_path / "requirements-torch.txt").write_text("torch==2.8.0\n")
    (tmp_path / "requirements.txt").write_text("flash-attn\n")
    (tmp_path / name).write_text("x\n")
    groups, inside = resolve(tmp_path, Fixed(tmp_path, LOCK))
    assert inside
    assert "torch" in [group.title for group in groups]


@rows(
    "line",
    ["git+https://example.org/x", "x @ git+https://example.org/x@1", "-e ./x", "./x", "x @ https://e.org/x-1.tar.gz"],
)
def test_sources_are_built_inside(line: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    resolver = Resolver(uv="none", minor="3.11", platform="p", work=tmp_path, environment={})
    assert resolve(tmp_path, resolver) == ((), True)


@rows(
    ("machine", "glibc", "platform"),
    [
        ("x86_64", "2.36", "x86_64-manylinux_2_36"),
        ("x86_64", "2.28", "x86_64-manylinux_2_28"),
        ("x86_64", "2.30", "x86_64-manylinux_2_28"),
        ("aarch64", "2.41", "aarch64-manylinux_2_40"),
    ],
)
def test_the_platform_is_what_the_images_glibc_serves(machine: str, glibc: str, platform: str) -> None:
    assert name_platform(machine, glibc) == platform


@pytest.mark.parametrize(("machine", "glibc"), [("x86_64", ""), ("x86_64", "2.5"), ("riscv64", "2.36")])
def test_an_image_without_wheels_is_refused(machine: str, glibc: str) -> None:
    with pytest.raises(LayeringError, match="the base image has"):
        name_platform(machine, glibc)


def test_settings_of_the_users_own_projects_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build in a container gets none of them: a lock and a build of layers would be of other packages."""
    own = {"UV_CONSTRAINT": "/c.txt", "UV_OVERRIDE": "/o.txt", "UV_TORCH_BACKEND": "cpu", "UV_RESOLUTION": "lowest"}
    ways = {"UV_HTTP_RETRIES": "0", "UV_INDEX_TORCH_PASSWORD": "word", "UV_CONCURRENT_DOWNLOADS": "4"}
    for name, value in {**own, **ways}.items():
        monkeypatch.setenv(name, value)
    found = make_uv_environment(make_uv_settings({**own, **ways}, cache=tmp_path))
    assert not own.keys() & found.keys()
    assert {name: found[name] for name in ways} == ways
    assert found["UV_NO_CONFIG"] == "1"


def test_one_index_of_a_request_is_the_only_one(tmp_path: Path) -> None:
    settings = make_uv_settings({"UV_INDEX_URL": "https://a", "UV_EXTRA_INDEX_URL": "https://b"}, cache=tmp_path)
    assert {settings[name] for name in INDEXES} == {"https://a", "https://b"}
    assert not make_uv_environment(settings, own_index=True).keys() & {*INDEXES, *SETTINGS["UV_INDEX"]}


def test_no_request_is_sent_offline(tmp_path: Path) -> None:
    assert "UV_OFFLINE" not in make_uv_settings({}, cache=tmp_path)
    for found in (
        make_uv_settings({}, cache=tmp_path, offline=True),
        make_uv_settings({"RECIPE_OFFLINE": "yes"}, cache=tmp_path),
    ):
        assert found["UV_OFFLINE"] == "1"


def test_logins_are_looked_for_in_every_index() -> None:
    rows = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
    assert {*rows, *(name for row in rows for name in SETTINGS[row])} == {*secrets.INDEXES}


def test_pips_settings_are_uvs_where_uv_has_none(tmp_path: Path) -> None:
    found = make_uv_settings(
        {"PIP_INDEX_URL": "https://a", "PIP_FIND_LINKS": "/a /b", "UV_INDEX": "https://u"}, cache=tmp_path
    )
    assert (found["UV_DEFAULT_INDEX"], found["UV_FIND_LINKS"], found["UV_INDEX"]) == ("https://a", "/a,/b", "https://u")
    assert found["UV_CACHE_DIR"] == str(tmp_path / "uv")
    (tmp_path / "r.txt").write_text("--pre\n--trusted-host h\n--extra-index-url https://x\nsix\n")
    assert list_uv_options(tmp_path / "r.txt") == [
        "--prerelease", "allow", "--allow-insecure-host", "h", "--extra-index-url", "https://x",
    ]  # fmt: skip


# --- the base ---------------------------------------------------------------------------------------------------------


def test_links_of_the_base_are_followed() -> None:
    links = {
        "/lib": "usr/lib",
        "/usr/bin/python3": "python3.11",
        "/a": "/lib/../b",
        "/loop": "loop",
        "/usr/sbin": "./bin",
    }
    facts = BaseFacts(sha256="", machine="x86_64", links=links)
    assert facts.resolve_path("/lib/x") == "/usr/lib/x"
    assert facts.resolve_path("/usr/sbin/python3") == "/usr/bin/python3.11"
    assert facts.resolve_path("/a/c") == "/usr/b/c"
    assert facts.resolve_path("/new/folder") == "/new/folder"
    assert facts.resolve_path("/loop/x").startswith("/")
    above = facts.apply_layer({"/lib": 0o755}, {"/opt": "/srv"}, set())
    assert (above.resolve_path("/lib/x"), above.resolve_path("/opt/x")) == ("/lib/x", "/srv/x")


# --- staging ----------------------------------------------------------------------------------------------------------


def staged(folder: Path) -> Path:
    """What uv leaves for one wheel, unpacked by the Python that runs this."""
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    info = site / "x-1.dist-info"
    info.mkdir(parents=True)
    (site / "x.py").write_text("A = 1\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "x").write_text(f"#!{sys.executable}\nprint(1)\n")
    (folder / "bin" / "long").write_text(f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n' '''\nprint(2)\n")
    (folder / "bin" / "sh").write_text("#!/bin/sh\necho 3\n")
    (info / "direct_url.json").write_text('{"url": "file:///home/me/x.whl"}')
    names = ["x.py", "../../../bin/x", "../../../bin/long", "../../../bin/sh", "x-1.dist-info/direct_url.json"]
    (info / "RECORD").write_text("".join(f"{name},sha256=abc,1\n" for name in [*names, "x-1.dist-info/RECORD"]))
    (folder / ".lock").touch()
    return folder


@pytest.mark.parametrize("minor", [f"{sys.version_info[0]}.{sys.version_info[1]}", "3.99"])
def test_nothing_of_this_machine_stays_in_an_installation(minor: str, tmp_path: Path) -> None:
    site = normalize_installation(staged(tmp_path / "tree"), minor=minor)
    assert site == tmp_path / "tree" / "lib" / f"python{minor}" / "site-packages"
    text = "".join(path.read_text() for path in sorted((tmp_path / "tree").rglob("*")) if path.is_file())
    assert sys.executable not in text
    assert "/home/me" not in text
    assert (tmp_path / "tree/bin/x").read_text() == f"#!{PREFIX}/bin/python\nprint(1)\n"
    assert (tmp_path / "tree/bin/long").read_text() == f"#!{PREFIX}/bin/python\nprint(2)\n"
    assert (tmp_path / "tree/bin/sh").read_text() == "#!/bin/sh\necho 3\n"
    rows = {row[0]: row[1:] for row in csv.reader((site / "x-1.dist-info" / "RECORD").read_text().splitlines())}
    assert "x-1.dist-info/direct_url.json" not in rows
    assert rows["../../../bin/sh"] == ["sha256=abc", "1"]
    assert rows["../../../bin/x"][1] == str(len((tmp_path / "tree/bin/x").read_bytes()))
    assert list_sources(site, tmp_path / "tree") == {"x": [f"lib/python{minor}/site-packages/x.py"]}


def test_a_script_is_replaced_not_written_through_a_link(tmp_path: Path) -> None:
    tree = staged(tmp_path / "tree")
    (tmp_path / "cached").hardlink_to(tree / "bin" / "x")
    normalize_installation(tree, minor="3.11")
    assert (tmp_path / "cached").read_text().startswith(f"#!{sys.executable}\n")


def test_the_environment_is_one_for_its_python(tmp_path: Path) -> None:
    write_environment(tmp_path, python="/usr/bin/python3.11", minor="3.11")
    assert (tmp_path / "bin" / "python3").readlink() == Path("/usr/bin/python3.11")
    assert (tmp_path / "pyvenv.cfg").read_text().splitlines()[:2] == [
        "home = /usr/bin", "include-system-site-packages = false",
    ]  # fmt: skip


# --- compiling --------------------------------------------------------------------------------------------------------


def test_kept_files_come_back(tmp_path: Path) -> None:
    (tmp_path / "0.data").write_bytes(b"onetwothree")
    rows = [("d/x.pyc", 0, 3), ("d/e/y.pyc", 6, 5), ("empty.pyc", 0, 0)]
    pieces = [Piece(path=path, source=tmp_path / "0.data", offset=at, size=size) for path, at, size in rows]
    save(pieces, tmp_path / "kept.pycs")
    (tmp_path / "b").mkdir()
    expand_pieces(move_below("/opt/env", load(tmp_path / "kept.pycs")), tmp_path / "b")
    found = {str(path.relative_to(tmp_path / "b")): path.read_bytes() for path in (tmp_path / "b").rglob("*.pyc")}
    assert found == {"opt/env/d/x.pyc": b"one", "opt/env/d/e/y.pyc": b"three", "opt/env/empty.pyc": b""}


@rows(
    ("path", "answer"),
    [
        ("lib/python3.11/site-packages/numpy/__init__.py", True),
        ("lib/python3.11/site-packages/numpy/testing/__init__.py", True),
        ("lib/python3.11/site-packages/torch/testing/__init__.py", True),
        ("lib/python3.11/site-packages/torch/testing/_internal/logging_tensor.py", True),
        ("lib/python3.11/site-packages/torch/testing/_internal/distributed/fake_pg.py", True),
        ("lib/python3.11/site-packages/torch/_dynamo/test_case.py", True),
        ("lib/python3.11/site-packages/other/sound_test.py", True),
        ("lib/python3.11/site-packages/tests.py", True),
        ("lib/python3.11/site-packages/numpy/tests/", False),
        ("lib/python3.11/site-packages/numpy/tests/test_a.py", False),
        ("lib/python3.11/site-packages/sympy/polys/benchmarks/bench_a.py", False),
        ("lib/python3.11/site-packages/torch/testing/_internal/distributed/rpc/rpc_test.py", False),
        ("lib/python3.11/site-packages/torch/testing/_internal/common_nn.py", False),
        ("lib/python3.11/site-packages/torch/testing/_internal/generated/", False),
    ],
)
def test_test_suites_are_not_compiled(path: str, answer: bool) -> None:
    assert is_imported(path) is answer
