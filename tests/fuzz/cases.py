"""Cases of foreign files, made from sound ones, and what is asked of the program that reads them."""

from __future__ import annotations

import bz2
import copy
import functools
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from support import bombs, made_elf
from support.hostile import CANARY, PAYLOADS
from support.matrix import EXAMPLES, OWN, target_plan

from builder.audit.gpu_verdict import Machine, judge
from builder.cli import inspect_gpu
from builder.cli.inspect import format_contents
from builder.cli.inspect_gpu import read_inventory
from builder.cli.output import format_finding
from builder.cli.terminal import summarize_build
from builder.compile.compile import compile_plan
from builder.execute.report_file import read_report
from builder.inspect.image import read_contents
from builder.inspect.integrity import check_claims
from builder.model.finding import BuilderError, ConfigError
from builder.model.plan import from_json, to_json
from builder.model.target import Context
from builder.parse.lock_files import PIXI, PYLOCK, read_lock
from builder.parse.recipe import load_recipe
from builder.parse.site import BUNDLED, load_site
from builder.parse.yaml import parse_yaml
from builder.report.records import read_results
from builder.resolve.resolve import resolve
from builder.sif.bounded import parse_json
from builder.sif.errors import LayeringError
from builder.sif.merge import merge
from builder.sif.normalise import find_newest_base_time, make_labels_json
from builder.sif.reader import Reader
from builder.sif.squashfs import Squashfs, SquashfsError
from builder.slurm.ledger import read_ledger, read_record

REFUSALS = (BuilderError, LayeringError, SquashfsError)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
SITES = ("local", "lumi-g", "frontier", "dawn", "mn5")
WORDS: tuple[Any, ...] = (
    *PAYLOADS, None, True, -1, 0, 10**400, 1e308, float("inf"), float("nan"), "9" * 5000, "2.x", "abc", "1.2.3.4.5",
    "\x1b]0;pwned\x07", "a\nfix: b", "\ud800", "\u202e", "\x00", "..", "../../x", "/etc/passwd", "x" * 5000, [], {},
    [[[[]]]], {"a": {"b": {}}}, [None], "sha256:" + "0" * 64, "https://user:pw@h/x", "file:///a%0Ab/linux-64/x-1-0.conda",
    "1" * 20, "²", "-", "=", "unknown", "docker://x", b"\xff\xfe".decode("latin-1"),
)  # fmt: skip
BYTES = (
    b"\0", b"\xff", b"\n", b"\t", b": ", b"- ", b"{", b"}", b"[", b"]" * 3, b'"', b"'", b"&a ", b"*a", b"!!x ", b"%TAG",
    b"---\n", b"9" * 400, b"1e999", b"NaN", b"Infinity", b"-", b"\\ud800", b"[" * 2000, b"\x1b[2J", b"../",
    b"$(touch x)",
    b"\xff\xff\xff\xff", b"\0" * 512, b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80" + bytes(11), b"77777777777\0",
)  # fmt: skip


def broken(content: bytes, draw: random.Random) -> bytes:
    """The bytes with a few of them changed, lost, doubled or replaced."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        at, length = draw.randrange(len(data) + 1), draw.choice((1, 2, 8, 64, 512))
        what = draw.randrange(5)
        if what == 0:
            data[at : at + length] = draw.choice(BYTES)
        elif what == 1:
            data[at:at] = draw.choice(BYTES)
        elif what == 2:
            data[at : at + length] = data[at : at + length] * 2
        elif what == 3:
            del data[at : at + length if draw.random() < 0.8 else None]
        elif data:
            data[min(at, len(data) - 1)] = draw.randrange(256)
    return bytes(data)


def altered(tree: Any, draw: random.Random) -> Any:
    """Plain data with one to three of its values replaced, removed or added."""
    tree = json.loads(json.dumps(tree, default=str))
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = [place for place in _places(tree) if place[0]] or [([], None)]
        holder, key = draw.choice(places)
        what = draw.randrange(6)
        if isinstance(holder, dict) and what == 0 and key is not None:
            holder[str(_word(draw))] = holder.pop(key)
        elif what == 1 and key is not None:
            del holder[key]
        elif what == 2 and isinstance(holder, list):
            holder.append(_word(draw))
        elif key is not None:
            holder[key] = _word(draw)
    return tree


def _word(draw: random.Random) -> Any:
    """A word of its own: what is altered a second time must not change the words of later cases."""
    return copy.deepcopy(draw.choice(WORDS))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(entries):
        yield tree, key
        yield from _places(value)


def as_yaml(tree: Any) -> bytes:
    """YAML; what PyYAML cannot write is JSON, which is YAML too."""
    try:
        return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False).encode()
    except (UnicodeEncodeError, yaml.YAMLError, ValueError):
        return json.dumps(tree).encode()


def as_json(tree: Any) -> bytes:
    """JSON, also with numbers that JSON does not have; a number of any length."""
    return json.dumps(tree).replace(str(10**400), "1" + "0" * 400).encode()


@functools.cache
def _trees(*folders: Path) -> tuple[tuple[bytes, Any], ...]:
    files = [path for folder in folders for path in sorted(folder.glob("*.y*ml"))]
    return tuple((path.read_bytes(), yaml.safe_load(path.read_bytes())) for path in files)


def _drawn(draw: random.Random, *folders: Path) -> bytes:
    raw, tree = draw.choice(_trees(*folders))
    return broken(raw, draw) if draw.random() < 0.5 else as_yaml(altered(tree, draw))


def check_findings(error: BuilderError) -> None:
    """What is printed is plain text."""
    for finding in error.findings:
        for line in format_finding(finding):
            assert not CONTROL.search(line), line


def check_files(plan: Any) -> None:
    """No generated file holds a control character, and a plan reads back as it was written."""
    for file in plan.files:
        found = CONTROL.search(file.text)
        assert found is None, (file.path, found)
    assert from_json(to_json(plan)) == plan


def recipe(draw: random.Random, folder: Path) -> None:
    """A recipe, planned for a site where it is read."""
    path = folder / "env.yml"
    path.write_bytes(_drawn(draw, EXAMPLES, OWN))
    found, site = load_recipe(path, shown="env.yml"), load_site(draw.choice(SITES))
    check_files(target_plan(found, site=site.name, backend=draw.choice(site.build.backends)))


FOREIGN = {
    "pylock.toml": """lock-version = "1.0"
requires-python = ">=3.10"
environments = ["sys_platform == 'linux'"]
extras = ["plots"]
[[packages]]
name = "six"
version = "1.16.0"
marker = "python_version > '3.8' and 'plots' not in extras"
index = "https://index.example/simple"
sdist = { url = "https://h.example/six-1.16.0.tar.gz", hashes = { sha256 = "%(sha)s" } }
wheels = [{ url = "https://h.example/six-1.16.0-py2.py3-none-any.whl", hashes = { sha256 = "%(sha)s" } }]
[[packages]]
name = "torch"
version = "2.8.0+cu126"
wheels = [{ url = "https://h.example/torch-2.8.0-cp312-cp312-linux_x86_64.whl", hashes = { sha256 = "%(sha)s" } }]
""",
    "conda-lock.yml": """version: 1
package:
- {name: python, version: 3.12.4, manager: conda, platform: linux-64, category: main,
   url: 'https://c.example/forge/linux-64/python-3.12.4-h0_cpython.conda', hash: {md5: %(md5)s, sha256: %(sha)s}}
- {name: six, version: 1.16.0, manager: pip, platform: linux-64, category: main,
   url: 'https://h.example/six-1.16.0-py2.py3-none-any.whl', hash: {sha256: %(sha)s}}
""",
    "pixi.lock": """version: 6
environments:
  default:
    packages:
      linux-64:
      - conda: https://c.example/forge/linux-64/python-3.12.4-h0_cpython.conda
packages:
- conda: https://c.example/forge/linux-64/python-3.12.4-h0_cpython.conda
  sha256: %(sha)s
""",
    "explicit.txt": """# platform: linux-64
@EXPLICIT
https://c.example/forge/linux-64/python-3.12.4-h0_cpython.conda#%(md5)s
https://c.example/forge/noarch/tzdata-2026a-h0.conda#sha256:%(sha)s
""",
}


def foreign_lock(draw: random.Random, folder: Path) -> None:
    """The lock of another tool, planned for a site where it is read."""
    name = draw.choice(tuple(FOREIGN))
    text = FOREIGN[name] % {"sha": "4" * 64, "md5": "5" * 32}
    content = broken(text.encode(), draw)
    if draw.random() < 0.5:
        word = draw.choice([str(word) for word in PAYLOADS])
        old = draw.choice(re.findall(r"[\w.+-]{3,}", text))
        content = text.replace(old, word).encode(errors="replace")
    (folder / name).write_bytes(content)
    found, site = load_recipe(folder / name, shown=name), load_site(draw.choice(SITES))
    check_files(target_plan(found, site=site.name, backend=draw.choice(site.build.backends)))


def site(draw: random.Random, folder: Path) -> None:
    """A site file, planned for where it is read."""
    path = folder / "own.yaml"
    path.write_bytes(re.sub(rb"(?m)^name: .*$", b"name: own", _drawn(draw, BUNDLED)))
    found = load_site(str(path))
    whole = load_recipe(EXAMPLES / draw.choice(("mnist.yml", "finetune.txt")))
    check_files(compile_plan(resolve(whole, found, context=Context(tool="recipe 0"))))


CONDA = {
    "conda": "https://h/c/linux-64/numpy-1.0-0.conda",
    "sha256": "0" * 64,
    "size": 12,
    "depends": ["a"],
    "license": "B",
}
ASKED = {"place": "venv", "arch": "x86_64", "base": "docker://debian:12", "pip": ["six"]}
PIP = (
    '[[packages]]\nname = "six"\nversion = "1.0"\nwheels = [{ url = "https://h/six-1.0-py3-none-any.whl", size = 5, '
    'hashes = { sha256 = "%s" } }]\n[[packages]]\nname = "x"\nvcs = { type = "git", url = "https://h/x", '
    'commit-id = "abc", subdirectory = "s" }\n' % ("0" * 64)
)


def lock(draw: random.Random, folder: Path) -> None:
    """A lock whose digests are right."""
    below = folder / "env.lock" / "local"
    below.mkdir(parents=True, exist_ok=True)
    pixi: bytes = as_yaml({"version": 6, "packages": [CONDA, {**CONDA, "name": "b"}]})
    pip = b'lock-version = "1.0"\n' + PIP.encode()
    which = draw.randrange(4)
    if which == 0:
        tree = altered({"packages": [CONDA, CONDA]}, draw)
        pixi = as_yaml(tree) if draw.random() < 0.6 else broken(pixi, draw)
    elif which == 1:
        word = json.dumps(draw.choice(WORDS))
        pip = (
            broken(pip, draw)
            if draw.random() < 0.5
            else re.sub(rb'"[^"]*"|5', lambda _: word.encode(), pip, count=draw.randrange(1, 9))
        )
    digests = []
    for name, content in ((PIXI, pixi), (PYLOCK, pip)):
        (below / name).write_bytes(content)
        digests.append(hashlib.sha256(content.decode(errors="replace").replace("\r\n", "\n").encode()).hexdigest())
    entry = {"recipe": "r", "digest": "d", "asked": ASKED, "base": {"reference": "docker://debian:12", "size": 3}}
    index: Any = {"lock": "1", "tool": "t", "sites": {"local": {**entry, "conda": digests[0], "pip": digests[1]}}}
    index = altered(index, draw) if which == 2 else index
    raw = as_yaml(index)
    (folder / "env.lock.yml").write_bytes(broken(raw, draw) if which == 3 else raw)
    try:
        read_lock(folder / "env.lock.yml", "local")
    except ConfigError as error:
        # The digest of the whole is made last: up to there the files were read.
        if [finding.code for finding in error.findings] != ["lock-altered"]:
            raise


RESULT = {
    "workload": "mnist", "verdict": "pass", "accuracy": 0.9, "seconds": {"total": 3.0}, "device": {"name": "x"},
    "training": {"losses": [1.0, 0.5], "first_loss": 1.0, "last_loss": 0.5}, "ranks": [{"rank": 0, "affinity": [0, 1]}],
    "imports": [{"name": "torch", "version": "2"}], "checks": [{"name": "a", "ok": True, "measured": 1, "expected": 2}],
    "sweep": [{"bytes": 8, "busbw": 1.0}], "expected": {"floors": {"1MiB": 3.0}},
}  # fmt: skip
STEP = {"name": "smoke", "status": "ok", "seconds": 1.0, "exit_code": 0, "log": "l", "finding": None}
REPORT = {
    "schema": 1, "target": "a.local", "status": "passed", "image": "/x.sif", "image_bytes": 5, "image_sha256": "0" * 64,
    "seconds": 2.0, "steps": [STEP], "checks": RESULT["checks"],
    "findings": [{"code": "a", "message": "b", "fix": "c", "at": None, "level": "note"}],
    "smoke": {"mnist": RESULT}, "versions": {}, "verified": {"same": False, "count": 3},
}  # fmt: skip
LEDGER = {
    "schema": 1, "site": "local", "kind": "build", "output": "/tmp/x.sif", "finished": 0.0, "lead": {"results": [STEP]},
    "jobs": [{"job": "12", "step": "smoke", "script": "s", "log": "l", "after": ["11"], "submitted": 1.0}],
}  # fmt: skip
RECORD = {
    "schema": 1,
    "job": "12",
    "exit_code": 0,
    "reason": "",
    "started": 1.0,
    "ended": 2.0,
    "nodes": "n",
    "log": "l",
}


@functools.cache
def _plan() -> Any:
    found = target_plan(load_recipe(EXAMPLES / "mnist.yml", shown="mnist.yml"), site="local", backend="apptainer")
    return json.loads(to_json(found))


def records(draw: random.Random, folder: Path) -> None:
    """A plan folder's JSON files, one of them hostile."""
    parts = {
        "report.json": REPORT, "jobs/submitted.json": LEDGER, "jobs/12.json": RECORD,
        "results/one/mnist.json": RESULT, "smoke-mnist.json": RESULT, "plan.json": _plan(),
    }  # fmt: skip
    chosen = draw.choice(list(parts))
    content = as_json(altered(parts[chosen], draw))
    content = broken(content, draw) if draw.random() < 0.4 else content
    for name, tree in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if name == chosen else as_json(tree))
    with suppress(ValueError):
        parse_json(content)
    refused = None
    for read in (
        lambda: read_results(folder), lambda: read_ledger(folder), lambda: read_record(folder, "12"),
        lambda: from_json((folder / "plan.json").read_text(encoding="utf-8", errors="replace")),
        lambda: (found := read_report(folder)) and _plain(summarize_build(found)),
    ):  # fmt: skip
        try:
            read()
        except BuilderError as error:
            check_findings(error)
            refused = error
    if refused is not None:
        raise refused


def _plain(text: str) -> None:
    assert not CONTROL.search(text), text


def archive(draw: random.Random, folder: Path) -> None:
    """A docker-archive, hostile outside or in a layer."""
    status = b"Package: a\nStatus: install ok installed\nVersion: 1\n\n" * 3
    files = {
        "var/lib/dpkg/status": status, "opt/env/conda-meta/a-1-0.json": b'{"name": "a", "version": "1"}',
        "etc/os-release": b"ID=debian\n", ".singularity.d/labels.json": b'{"a": "b"}', "x" * 150 + "/é": b"1",
        "usr/lib/python3/site-packages/torch/version.py": b"__version__ = '2'\n", "a/.wh.b": b"",
    }  # fmt: skip
    if draw.random() < 0.4:
        name = draw.choice(list(files))
        files[name] = broken(files[name], draw)
    layer = bombs.archive(files)
    layer = broken(layer, draw) if draw.random() < 0.5 else layer
    layer = draw.choice((bytes, _fast_gzip, lzma.compress))(layer) if draw.random() < 0.3 else layer
    config = as_json(
        altered(
            {"architecture": "amd64", "config": {"Labels": {"a": "b"}}, "history": [{"created_by": "USER 0"}]}, draw
        )
    )
    manifest = (
        as_json(altered([{"Config": "c.json", "Layers": ["l.tar", "l.tar"]}], draw))
        if draw.random() < 0.3
        else b'[{"Config": "c.json", "Layers": ["l.tar"]}]'
    )
    whole = bombs.archive({"l.tar": layer, "c.json": config, "manifest.json": manifest})
    whole = broken(whole, draw) if draw.random() < 0.4 else whole
    packed = draw.choice((None, None, _fast_gzip, lzma.compress))
    whole = packed(whole) if packed else whole
    whole = broken(whole, draw) if packed and draw.random() < 0.5 else whole
    path = folder / "image.tar"
    path.write_bytes(whole)
    find_newest_base_time(path)
    with suppress(LayeringError):
        make_labels_json(path, time=1_700_000_000)
    _plain(format_contents(read_contents(path), True).replace("\n", ""))
    read_inventory(path)


def _fast_gzip(content: bytes) -> bytes:
    return gzip.compress(content, 1)


@functools.cache
def _squashfs() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        files = {f"d{row % 3}/f{row}": b"x" * row for row in range(30)}
        return bombs.squashfs(Path(name, "a.sqfs"), files, "-no-xattrs", "-noI", "-noD").read_bytes()


def image(draw: random.Random, folder: Path) -> None:
    """A SIF or a squashfs."""
    if draw.random() < 0.5:
        raw = broken(_squashfs(), draw)
        reader = Reader(io.BytesIO(raw))
        for found in reader.list_files():
            reader.read_attributes(found)
            if found.size < 1 << 20:
                reader.read(found, limit=1 << 20)
        merge(Squashfs(io.BytesIO(raw)), [(Squashfs(io.BytesIO(_squashfs())), 1 << 20)], end=1 << 21, time=1)
        merge(None, [(Squashfs(io.BytesIO(raw)), 1 << 20)], end=1 << 21, time=1)
        return
    path = folder / "image.sif"
    told = as_json(altered({"partition": 1, "layers": [{"title": "a", "offset": 0, "size": 9}]}, draw))
    inspect = as_json(altered({"data": {"attributes": {"labels": {"recipe.layers": "a=0"}}}}, draw))
    bombs.sif(
        path,
        [
            (0x4006, "recipe-layers.json", told, 0),
            (0x4006, "inspect-metadata.json", inspect, 0),
            (bombs.SBOM, "b", b"{}", 0),
        ],
    )
    with path.open("r+b") as file:
        head = file.read(4096 + 585 * 6)
        file.seek(0)
        if draw.random() < 0.7:
            file.write(broken(head, draw)[: len(head)])
    for suffix, tree in ((".provenance.json", {"subject": [{"digest": {"sha256": "0" * 64}}]}), (".cdx.json", {})):
        Path(f"{path}{suffix}").write_bytes(as_json(altered(tree, draw)))
    for claim in check_claims(path, environment={"PATH": "/nonexistent"}):
        _plain(claim.what)
    read_contents(path)


def text(draw: random.Random, folder: Path) -> None:
    """YAML of any bytes."""
    del folder
    parse_yaml(broken(draw.choice(_trees(EXAMPLES, OWN, BUNDLED))[0], draw).decode(errors="replace"), file="x.yml")


SECTIONS = {
    ".nv_fatbin": made_elf.fatbin(("cubin", 90, "a", ""), ("ptx", 90, "", "8.4"), ("cubin", 100, "f", "")) * 3,
    ".hip_fatbin": made_elf.bundle("gfx90a", "gfx942") + bytes(64)
    + made_elf.packed(made_elf.bundle("gfx90a:xnack-"), version=2, zstd=True) + bytes(32)
    + made_elf.packed(made_elf.bundle("gfx950"), version=3, zstd=False),
    "__CLANG_OFFLOAD_BUNDLE__sycl-spir64_gen": made_elf.compressed(b"!<arch>\n64.12.60.7/     " + b"0 " * 22),
    ".rodata": b"\0libcuda.so.1\0libamdhip64.so.6\0",
}  # fmt: skip
H100 = Machine(vendor="nvidia", targets=("sm_90",), majors=(12,), cuda="12.2", glibc="2.35", python="3.12")


def compiled(draw: random.Random, folder: Path) -> None:
    """An ELF file with device code, by itself, in a wheel, a conda package, a folder or a squashfs."""
    needed = draw.choice(((), ("libcudart.so.12", "libm.so.6"), ("libamdhip64.so.6",)))
    whole = made_elf.elf(
        needed=needed, soname="liba.so", glibc=("GLIBC_2.17", "GLIBC_2.34"), sections=SECTIONS,
        machine=draw.choice((62, 62, 62, 183, 190, 224)), headers=draw.random() < 0.8,
    )  # fmt: skip
    content = broken(whole, draw) if draw.random() < 0.8 else whole
    which = draw.choice(("wheel", "wheel", "conda", "bz2", "folder", "image"))
    files = {"pkg/a.cpython-312-x86_64-linux-gnu.so": content, "pkg/b.so": whole}
    if which == "wheel":
        path = made_elf.wheel(folder / "a-1-x.whl", files)
    elif which in ("conda", "bz2"):
        packed = bombs.archive({"info/index.json": as_json(altered({"name": "a", "version": "1"}, draw)), **files})
        packed = broken(packed, draw) if draw.random() < 0.3 else packed
        path = folder / ("a.conda" if which == "conda" else "a.tar.bz2")
        if which == "conda":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("pkg-a.tar.zst", made_elf.compressed(packed))
        else:
            path.write_bytes(bz2.compress(packed, 1))
    elif which == "folder":
        path = folder / "root"
        shutil.rmtree(path, ignore_errors=True)
        made_elf.installed(path / "lib/python3.12/site-packages", "a", files)
        record = path / "lib/python3.12/site-packages/a-1.0.dist-info/RECORD"
        record.write_bytes(broken(record.read_bytes(), draw))
    else:
        path = folder / "x.sqfs"
        path.write_bytes(broken(_compiled_image(), draw))
    if which in ("wheel", "conda", "bz2") and draw.random() < 0.4:
        path.write_bytes(broken(path.read_bytes(), draw))
    inventory = read_inventory(path)
    site = load_site("mn5")
    for machine, verdicts in ((None, ()), (H100, judge(inventory, H100))):
        on = site if machine is not None else None
        _plain(inspect_gpu.format_audit(path, inventory, on, machine, verdicts).replace("\n", ""))
        json.dumps(inspect_gpu.describe_audit(path, inventory, on, machine, verdicts))


@functools.cache
def _compiled_image() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        files = {
            f"opt/lib{row}.so": made_elf.elf(needed=["libcudart.so.12"], sections=SECTIONS) + b"x" * row
            for row in range(9)
        }
        return bombs.squashfs(Path(name, "a.sqfs"), files, "-no-xattrs").read_bytes()


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "recipes": recipe, "foreign": foreign_lock, "sites": site, "locks": lock, "json": records, "archives": archive,
    "images": image, "yaml": text, "compiled": compiled,
}  # fmt: skip


def attempt(kind: str, seed: int, folder: Path) -> bool:
    """One case; false where it was refused. Anything but a refusal in words is raised."""
    try:
        KINDS[kind](random.Random(seed), folder)
    except BuilderError as error:
        check_findings(error)
        return False
    except REFUSALS:
        return False
    finally:
        assert not (folder / CANARY).exists()
        assert not os.path.lexists(CANARY)
    return True
