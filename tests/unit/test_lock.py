"""Locks as data: read and written, fresh or stale, and what becomes of them in a plan."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.lock import name_site
from builder.cli.main import run
from builder.compile.compile import compile_plan
from builder.compile.image_files import make_image_files
from builder.layers.reference import parse_reference
from builder.lock.session import make_unreachable_error
from builder.lock.site_lock import SiteLock, write_locks
from builder.model.finding import ConfigError, StepError, UnsupportedError
from builder.model.lock import BaseLock, Lock, LockRequest, PipFile, describe_changes
from builder.model.plan import Plan
from builder.model.secrets import strip_all_credentials
from builder.model.target import Context
from builder.parse.lock_files import name_site_folder, read_conda, read_index, read_lock, read_pylock, write_pylock
from builder.parse.recipe import load_recipe, name_index
from builder.parse.site import load_site
from builder.pipeline.resolution import resolve_recipe
from builder.resolve.locked import make_lock_request
from builder.resolve.resolve import resolve
from builder.resolve.wheel_tags import choose_wheel

ENV = """\
name: demo
channels: [conda-forge]
dependencies:
  - python=3.12
  - ffmpeg
  - pip: [torch==2.8.0, six]
"""
CONDA = """\
version: 7
platforms:
- name: linux-64
environments:
  default:
    channels:
    - url: https://conda.example/conda-forge/
    packages:
      linux-64:
      - conda: https://conda.example/conda-forge/linux-64/python-3.12.4-h0_cpython.conda
packages:
- conda: https://conda.example/conda-forge/linux-64/python-3.12.4-h0_cpython.conda
  sha256: {one}
  md5: {md5}
  depends:
  - libffi >=3.4
  license: PSF
  size: 100
- conda: /srv/my channel/noarch/ffmpeg-7.1-h_1.conda
  subdir: noarch
  sha256: {two}
"""
HASH = {"one": "1" * 64, "two": "2" * 64, "md5": "3" * 32}
BASE = BaseLock(reference="docker://docker.io/library/python:3.12-slim-bookworm", digest=f"sha256:{'d' * 64}")
FILES = (
    PipFile(
        name="six", version="1.16.0", kind="wheel", sha256="4" * 64,
        url="https://i.example/six-1.16.0-py3-none-any.whl",
    ),
    PipFile(
        name="torch", version="2.8.0+cpu", kind="wheel", sha256="5" * 64, size=7, torch=True,
        url="https://t.example/torch-2.8.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl",
    ),
)  # fmt: skip


class Folder:
    """A recipe with its lock, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.env = folder / "demo.yml"
        self.index = name_index(self.env)
        self.env.write_text(ENV)

    def context(self, site: str = "local", **more: object) -> Context:
        lock = read_lock(self.index, site)
        return replace(Context(tool="recipe 0"), lock=lock, lock_file="demo.lock.yml", **more)  # type: ignore[arg-type]

    def lock(
        self, site: str = "local", *, conda: str = CONDA, pip: tuple[PipFile, ...] = FILES, base: BaseLock = BASE,
        options: Mapping[str, str] | None = None,
    ) -> Lock:  # fmt: skip
        """Write a lock that fits the recipe as it is now; `options` are those of the command line."""
        context = replace(Context(tool="recipe 0"), **(options or {}))  # type: ignore[arg-type]
        target = resolve(load_recipe(self.env), load_site(site), context=context)
        text, pylock = conda.format(**HASH), write_pylock(pip, python="3.12")
        made = Lock(
            site=site, recipe=target.recipe.digest, tool="recipe 0", asked=make_lock_request(target), base=base,
            virtual=("__glibc=2.36=0",),
            conda=read_conda(text, file=Path("x")),
            pip=read_pylock(pylock, file=Path("x")),
        )  # fmt: skip
        write_locks(self.index, [SiteLock(lock=made, conda=text, pip=pylock)], tool="recipe 0")
        return made

    def plan(self, site: str = "local", **more: object) -> Plan:
        return compile_plan(resolve(load_recipe(self.env), load_site(site), context=self.context(site, **more)))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def texts(plan: Plan) -> Mapping[str, str]:
    return {file.path: file.text for file in plan.files}


def test_without_conda_the_python_is_the_recipes() -> None:
    """Conda's packages are not known where no channel answers; the base image's Python is another one."""
    base = BaseLock(reference="docker://python:3.12-slim", python="3.12")
    asked = LockRequest(place="conda", arch="x86_64", base=base.reference, python="3.11")
    assert Lock(site="local", recipe="", tool="", asked=asked, base=base).python == "3.11"
    assert Lock(site="local", recipe="", tool="", asked=replace(asked, place="venv"), base=base).python == "3.12"


def test_what_is_written_is_read_again(folder: Folder) -> None:
    lock = folder.lock()
    assert read_lock(folder.index, "local") == lock
    assert lock.python == "3.12.4"
    assert lock.platform == "linux-64"
    python = lock.conda[1]
    assert (python.name, python.build, python.subdir, python.size) == ("python", "h0_cpython", "linux-64", 100)
    assert lock.conda[0].url == "file:///srv/my%20channel/noarch/ffmpeg-7.1-h_1.conda"
    assert [file.torch for file in lock.pip] == [False, True]


def test_the_same_lock_is_the_same_bytes_and_other_sites_stay(folder: Folder) -> None:
    folder.lock("frontier", pip=())
    folder.lock()
    before = {path: path.read_bytes() for path in folder.index.parent.rglob("*") if path.is_file()}
    folder.lock()
    folder.lock("frontier", pip=())
    assert {path: path.read_bytes() for path in folder.index.parent.rglob("*") if path.is_file()} == before
    index = read_index(folder.index)
    assert index is not None
    assert sorted(index.sites) == ["frontier", "local"]
    assert not (name_site_folder(folder.index, "frontier") / "pylock.toml").exists() or index.sites["frontier"].pip


def test_no_lock_is_none(folder: Folder) -> None:
    assert read_lock(folder.index, "local") is None
    folder.lock()
    assert read_lock(folder.index, "frontier") is None


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("demo.lock/local/pixi.lock", "1" * 64, "9" * 64),
        ("demo.lock/local/pylock.toml", "1.16.0", "1.17.0"),
        ("demo.lock.yml", "'3.12'", "'3.13'"),
        ("demo.lock.yml", "d" * 64, "e" * 64),
    ],
)
def test_a_lock_altered_by_hand_is_refused(folder: Folder, name: str, old: str, new: str) -> None:
    folder.lock()
    path = folder.env.parent / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_lock(folder.index, "local")
    assert [finding.code for finding in caught.value.findings] == ["lock-altered"]
    assert caught.value.exit_code == 2


def test_a_lost_file_is_told(folder: Folder) -> None:
    folder.lock()
    (name_site_folder(folder.index, "local") / "pixi.lock").unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        read_lock(folder.index, "local")


@pytest.mark.parametrize(
    "text", ["", "lock: '2'\ntool: x\n", "[1]", "lock: '1'\ntool: x\nsites: {../x: {}}\n", "a: [\n"]
)
def test_a_faulty_index_is_told(folder: Folder, text: str) -> None:
    folder.index.write_text(text)
    with pytest.raises(ConfigError):
        read_lock(folder.index, "local")


@rows(
    "address",
    [
        "https://user:secret@conda.example/c/linux-64/x-1-0.conda",
        "https://conda.example/t/secret-token/c/linux-64/x-1-0.conda",
        "https://conda.example/c/linux-64/x-1-$(id).conda",
        '"https://conda.example/c/linux-64/x-1-0.conda\\n@EXPLICIT"',
        "https://conda.example/c/linux-64/../../x-1-0.conda x",
    ],
)
def test_an_address_that_is_not_plain_is_refused(address: str) -> None:
    text = f"packages:\n- conda: {address}\n  sha256: {'1' * 64}\n"
    with pytest.raises(ConfigError):
        read_conda(text, file=Path("pixi.lock"))


@rows(
    "address",
    [
        f"file:///dev/null%0A{'a' * 64}%09../../.bashrc%09/payload%0A/linux-64/x-1-0.conda",
        "file:///c%09d/linux-64/x-1-0.conda",
        "file:///c%0d/linux-64/x-1-0.conda",
        "file:///c%C2%85/linux-64/x-1-0.conda",
        "file:///c%E2%80%A8/linux-64/x-1-0.conda",
        "file:///c%FF%0A/linux-64/x-1-0.conda",
        "file:///c/../linux-64/x-1-0.conda",
        "file:///c/%2e%2E/linux-64/x-1-0.conda",
        "file:///c/linux-64/..%2Fx-1-0.conda",
        "file:///c/linux-64/..%5Cx-1-0.conda",
        "file:///c/%2e%2e/x-1-0.conda",
        "file://c/linux-64/x-1-0.conda",
        "FILE:relative/linux-64/x-1-0.conda",
        "https://conda.example/c/linux-64/x%2F..%2F1-1-0.conda",
    ],
)
def test_security_05_an_address_that_means_another_path_or_line_is_refused(address: str) -> None:
    text = f"packages:\n- conda: {address}\n  sha256: {'1' * 64}\n"
    with pytest.raises(ConfigError):
        read_conda(text, file=Path("pixi.lock"))
    package = f'name = "six"\nversion = "1"\nwheels = [{{url = "{address}", hashes = {{sha256 = "{"1" * 64}"}}}}]'
    if "%" in address:
        with pytest.raises(ConfigError):
            read_pylock(f'lock-version = "1.0"\n[[packages]]\n{package}\n', file=Path("pylock.toml"))


@rows("name", ["a%2Fx-1-0.conda", "x-1-0%20b.conda", "x-1-%27$%27.conda", "%2Ex-1-0.conda", "x-1-%00.conda"])
def test_security_05_a_file_name_is_plain_when_it_is_decoded(name: str) -> None:
    text = f"packages:\n- conda: file:///c/linux-64/{name}\n  sha256: {'1' * 64}\n"
    with pytest.raises(ConfigError):
        read_conda(text, file=Path("pixi.lock"))


@rows("subdir", ["..", "%2e%2e", "a/b", ".", "linux%2F64"])
def test_security_05_a_platform_that_is_a_path_is_refused(subdir: str) -> None:
    text = f"packages:\n- conda: file:///c/noarch/x-1-0.conda\n  subdir: {subdir}\n  sha256: {'1' * 64}\n"
    with pytest.raises(ConfigError):
        read_conda(text, file=Path("pixi.lock"))


def test_security_05_what_was_not_read_from_a_lock_is_not_written_either(folder: Folder) -> None:
    folder.lock()
    target = resolve(load_recipe(folder.env), load_site("local"), context=folder.context("local"))
    assert target.lock is not None
    package = replace(target.lock.conda[0], url="file:///x%0Ay/noarch/ffmpeg-7.1-h_1.conda")
    with pytest.raises(ConfigError, match="another path or line"):
        make_image_files(replace(target, lock=replace(target.lock, conda=(package,))))


@rows(
    "package",
    [
        'name = "six"\nwheels = [{url = "https://u:p@i.example/six-1-py3-none-any.whl", hashes = {sha256 = "%s"}}]',
        'name = "six"\nversion = "1\\n--pre"\nwheels = [{url = "https://i.example/s.whl", hashes = {sha256 = "%s"}}]',
        'name = "si x"\nversion = "1"\nwheels = [{url = "https://i.example/s.whl", hashes = {sha256 = "%s"}}]',
        'name = "six"\nversion = "1"\nwheels = [{url = "https://i.example/s.whl\\nx", hashes = {sha256 = "%s"}}]',
        'name = "six"\nversion = "1"\nwheels = [{url = "https://i.example/s.whl", hashes = {md5 = "%s"}}]',
        'name = "six"\nversion = "1"\nvcs = {type = "git", url = "https://h/r", commit-id = "a b"}\n#%s',
        'name = "six"\nversion = "1"\ndirectory = {path = "."}\n#%s',
    ],
)
def test_a_pylock_that_is_not_plain_is_refused(package: str) -> None:
    with pytest.raises(ConfigError):
        read_pylock(f'lock-version = "1.0"\n[[packages]]\n{package % ("1" * 64)}\n', file=Path("pylock.toml"))


def test_commits_and_addresses_survive_a_pylock() -> None:
    files = (
        PipFile(name="a", version="", kind="vcs", url="git+https://h/r@" + "c" * 40 + "#subdirectory=x", direct=True),
        PipFile(
            name="b", version="1.0", kind="wheel", url="https://h/b-1.0-py3-none-any.whl", sha256="1" * 64, direct=True
        ),
        PipFile(name="c", version="1.0", kind="sdist", url="https://h/c-1.0.tar.gz", sha256="2" * 64, size=4),
    )
    assert read_pylock(write_pylock(files, python="3.12"), file=Path("x")) == files
    assert files[0].requirement == "a @ git+https://h/r@" + "c" * 40 + "#subdirectory=x"
    assert files[1].requirement == f"b @ https://h/b-1.0-py3-none-any.whl --hash=sha256:{'1' * 64}"


# --- fresh and stale -------------------------------------------------------------------------------------------------


def test_what_does_not_choose_files_may_change(folder: Folder) -> None:
    folder.lock()
    folder.env.write_text(ENV + "container: {smoke: {workloads: []}, labels: {a: b}, env: {A: b}}\n")
    assert "image/lock" in texts(folder.plan())


CHANGES: tuple[tuple[str, str, str], ...] = (
    ("six", "six==1.15.0", "the pip packages: no longer 'six', now 'six==1.15.0'"),
    ("ffmpeg", "ffmpeg=7", "the conda packages: no longer 'ffmpeg', now 'ffmpeg=7'"),
    ("python=3.12", "python=3.11", "Python: '3.12' before, '3.11' now"),
    ("[conda-forge]", "[bioconda, conda-forge]", "the channels: now 'bioconda'"),
    ("torch==2.8.0", "torch==2.7.1", "the torch packages: no longer 'torch==2.8.0+cpu', now 'torch==2.7.1+cpu'"),
)


@pytest.mark.parametrize(("old", "new", "said"), CHANGES)
def test_a_changed_recipe_makes_a_lock_stale(folder: Folder, old: str, new: str, said: str) -> None:
    folder.lock()
    folder.env.write_text(ENV.replace(old, new))
    plan = folder.plan()
    finding = next(finding for finding in plan.findings if finding.code == "lock-stale")
    assert finding.level == "warning"
    assert said in finding.message
    assert finding.fix == f"run `recipe lock local {folder.env}`"
    assert "image/lock" not in texts(plan)
    with pytest.raises(UnsupportedError, match="is stale; changed") as caught:
        folder.plan(locked=True)
    assert caught.value.exit_code == 3


def test_changed_facts_of_a_site_make_a_lock_stale(folder: Folder) -> None:
    lock = folder.lock()
    other = replace(lock.asked, glibc="2.28", cuda="12.4", base="docker://other:1", arch="aarch64")
    said = "; ".join(describe_changes(lock, other))
    assert "the base image's glibc: '2.36' before, '2.28' now" in said
    assert "the CUDA of the site's driver: none before, '12.4' now" in said
    assert (
        "the base image: 'docker://docker.io/library/python:3.12-slim-bookworm' before, 'docker://other:1' now" in said
    )
    assert "the processor: 'x86_64' before, 'aarch64' now" in said
    with pytest.raises(UnsupportedError, match="the base image:"):
        folder.plan(locked=True, base="docker://debian:12")
    for name, word in (("glibc", "unknown"), ("python", "any")):
        known, empty = replace(lock.asked, **{name: "3.12"}), replace(lock.asked, **{name: ""})
        (said,) = describe_changes(replace(lock, asked=known), empty)
        assert said.endswith(f"before, {word} now")
        (said,) = describe_changes(replace(lock, asked=empty, base=replace(lock.base, glibc="")), known)
        assert said.endswith(f": {word} before, '3.12' now")


def test_the_glibc_before_is_the_one_read_from_the_image(folder: Folder) -> None:
    lock = folder.lock()
    lock = replace(lock, asked=replace(lock.asked, glibc=""), base=replace(lock.base, glibc="2.36"))
    assert list(describe_changes(lock, replace(lock.asked, glibc="2.36"))) == []
    (said,) = describe_changes(lock, replace(lock.asked, glibc="2.35"))
    assert said == "the base image's glibc: '2.36' before, '2.35' now"


def test_an_error_of_several_sites_names_its_own() -> None:
    with pytest.raises(StepError) as caught, name_site("frontier", among=2):
        raise make_unreachable_error("the channel", "no answer")
    assert caught.value.findings[0].message.startswith("no lock was written: 'frontier': the channel could not")


def test_locked_wants_a_lock(folder: Folder) -> None:
    folder.lock()
    with pytest.raises(UnsupportedError, match="a lock is required, and there is none for 'frontier'") as caught:
        folder.plan("frontier", locked=True)
    assert [finding.code for finding in caught.value.findings if finding.level == "error"] == ["lock-missing"]


def test_a_build_without_the_base_of_its_lock_gets_its_name(folder: Folder) -> None:
    folder.lock(options={"base": "docker://debian:12"}, base=BaseLock(reference="docker://debian:12"))
    finding = next(finding for finding in folder.plan().findings if finding.code == "lock-stale")
    assert finding.fix == (
        f"give --base docker://debian:12, which the lock was made with, or run `recipe lock local {folder.env}`"
    )


def test_the_line_for_a_lock_has_the_options_of_the_build(folder: Folder) -> None:
    more = {"base": "docker://debian:12", "backend": "apptainer"}
    line = f"run `recipe lock local {folder.env} --backend apptainer --base docker://debian:12`"
    with pytest.raises(UnsupportedError, match="there is none for 'local'") as caught:
        folder.plan(locked=True, **more)
    assert [finding.fix for finding in caught.value.findings if finding.code == "lock-missing"] == [line]
    folder.lock()  # without them
    with pytest.raises(UnsupportedError, match="is stale") as caught:
        folder.plan(locked=True, **more)
    assert [finding.fix for finding in caught.value.findings if finding.code == "lock-stale"] == [line]
    folder.lock(options=more)  # as the line does
    assert folder.plan(locked=True, **more).steps


def test_the_line_for_a_lock_leaves_out_the_base_of_the_recipe(folder: Folder, tmp_path: Path) -> None:
    folder.env.write_text(f"{ENV}container: {{base: ./own.sif}}\n")
    (tmp_path / "own.sif").touch()
    recipe = load_recipe(folder.env)
    context = replace(Context(tool="recipe 0"), locked=True, lock_file="demo.lock.yml")
    with pytest.raises(UnsupportedError, match="there is none for 'local'") as caught:
        compile_plan(resolve_recipe(load_site("local"), recipe, context=context))
    fixes = [finding.fix for finding in caught.value.findings if finding.code == "lock-missing"]
    assert fixes == [f"run `recipe lock local {folder.env}`"]


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_installs_exactly_what_is_locked(folder: Folder) -> None:
    lock = folder.lock()
    plan = folder.plan(locked=True, backend="apptainer")
    found = texts(plan)
    assert found["image/lock"] == f"{lock.digest}\n"
    assert found["image/conda-explicit.txt"] == (
        "# platform: linux-64\n@EXPLICIT\n"
        f"file:///mnt/conda/noarch/ffmpeg-7.1-h_1.conda#sha256:{'2' * 64}\n"
        f"https://conda.example/conda-forge/linux-64/python-3.12.4-h0_cpython.conda#sha256:{'1' * 64}\n"
    )
    assert found["image/conda-local.txt"] == (
        f"{'2' * 64}\tnoarch/ffmpeg-7.1-h_1.conda\t/srv/my channel/noarch/ffmpeg-7.1-h_1.conda\n"
    )
    assert found["image/requirements-torch.txt"] == (
        "--index-url https://download.pytorch.org/whl/cpu\n--require-hashes\n"
        f"torch==2.8.0+cpu --hash=sha256:{'5' * 64}\n"
    )
    assert found["image/requirements.txt"] == f"--require-hashes\nsix==1.16.0 --hash=sha256:{'4' * 64}\n"
    assert not {"image/environment.yml", "image/constraints.txt"} & set(found)
    assert f"From: docker.io/library/python@sha256:{'d' * 64}\n" in found["demo-local.def"]
    assert json.loads(found["image/recipe.json"])["lock"] == lock.digest
    assert f"recipe.lock {lock.digest}\n" in found["image/labels.txt"]
    assert "unpinned" not in {finding.code for finding in plan.findings}


def test_docker_copies_the_files_of_a_lock(folder: Folder) -> None:
    folder.lock()
    dockerfile = texts(folder.plan(backend="docker"))["Dockerfile"]
    assert f"FROM docker.io/library/python@sha256:{'d' * 64} AS filled\n" in dockerfile
    assert "COPY image/conda-explicit.txt /opt/recipe/build/" in dockerfile
    assert "image/lock " in dockerfile


def test_cotainr_has_versions_builds_and_the_hashes_of_pip(folder: Folder) -> None:
    folder.lock("lumi-c", base=BaseLock(reference="docker://ubuntu:24.04"))
    text = texts(folder.plan("lumi-c", locked=True))["environment.yml"]
    assert "  - python=3.12.4=h0_cpython\n" in text
    assert "      - --require-hashes\n" in text
    assert f"      - six==1.16.0 --hash=sha256:{'4' * 64}\n" in text
    assert "--extra-index-url https://download.pytorch.org/whl/cpu\n" in text


def test_a_local_base_image_is_compared_before_the_build(folder: Folder, tmp_path: Path) -> None:
    base = tmp_path / "base image.sif"
    recipe = load_recipe(folder.env)
    context = Context(base=str(base), tool="recipe 0", backend="apptainer")
    target = resolve(recipe, load_site("local"), context=context)
    lock = replace(
        folder.lock(), asked=make_lock_request(target), base=BaseLock(reference=base.name, digest=BASE.digest, size=12)
    )
    plan = compile_plan(resolve(recipe, load_site("local"), context=replace(context, lock=lock)))
    script = next(file.text for file in plan.files if file.path == "1-build-image.sh")
    assert f"same_file '{base}' 12 {'d' * 64}\n" in script
    assert script.index("same_file") < script.index('"$runtime" build')


def test_another_file_of_the_base_image_makes_a_lock_stale(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECIPE_CACHE_DIR", str(tmp_path / "cache"))
    base, site, recipe = tmp_path / "base.sif", load_site("local"), load_recipe(folder.env)
    base.write_bytes(b"locked")
    context = Context(base=str(base), tool="recipe 0", backend="apptainer")
    digest = f"sha256:{hashlib.sha256(b'locked').hexdigest()}"
    lock = folder.lock(base=BaseLock(reference=base.name, digest=digest, size=6), options={"base": str(base)})
    context = replace(context, lock=lock)
    assert resolve_recipe(site, recipe, context=context).lock == lock
    for content in (b"lockeD", b"locked and longer"):
        base.write_bytes(content)
        target = resolve_recipe(site, recipe, context=context)
        (finding,) = (found for found in target.findings if found.code == "lock-stale")
        assert (target.lock, finding.level) == (None, "warning")
        assert finding.message.endswith("changed: the base image: its file has another content")
        with pytest.raises(UnsupportedError, match="its file has another content"):
            compile_plan(resolve_recipe(site, recipe, context=replace(context, locked=True)))
    base.unlink()
    assert resolve_recipe(site, recipe, context=context).lock == lock
    assert not (tmp_path / "cache").exists()


def test_commits_are_installed_without_hashes(folder: Folder) -> None:
    commit = PipFile(name="tool", version="1", kind="vcs", url=f"git+https://h.example/r@{'c' * 40}", direct=True)
    folder.lock(pip=(*FILES, commit))
    found = texts(folder.plan())
    assert found["image/requirements-commits.txt"] == f"tool @ git+https://h.example/r@{'c' * 40}\n"
    assert "git+" not in found["image/requirements.txt"]


# --- files -----------------------------------------------------------------------------------------------------------


@rows(
    ("names", "best"),
    [
        (["a-1-py3-none-any.whl", "a-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"], 1),
        (["a-1-cp312-cp312-manylinux_2_17_x86_64.whl", "a-1-cp312-cp312-manylinux_2_28_x86_64.whl"], 1),
        (["a-1-cp312-cp312-manylinux_2_28_x86_64.whl", "a-1-cp312-cp312-manylinux_2_34_x86_64.whl"], 0),
        (["a-1-cp38-abi3-manylinux_2_28_x86_64.whl", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"], 0),
        (["a-1-cp312-cp312-manylinux_2_28_aarch64.whl", "a-1-cp312-cp312-win_amd64.whl", "a-1-py2-none-any.whl"], None),
        (["a-1-cp312-cp312-musllinux_1_2_x86_64.whl", "x.whl", "a-1-1-py3-none-any.whl", "a-1-2-py3-none-any.whl"], 3),
    ],
)  # fmt: skip
def test_one_wheel_is_chosen(names: list[str], best: int | None) -> None:
    for order in (names, names[::-1]):
        found = choose_wheel(order, python="3.12.4", arch="x86_64", glibc="2.31")
        assert found == (None if best is None else names[best])


@rows(
    ("reference", "parts"),
    [
        ("docker://ubuntu:24.04", ("registry-1.docker.io", "library/ubuntu", "24.04")),
        ("docker://docker.io/rocm/pytorch", ("registry-1.docker.io", "rocm/pytorch", "latest")),
        ("docker://127.0.0.1:5000/a/b:1", ("127.0.0.1:5000", "a/b", "1")),
        (f"oras://nvcr.io/nvidia/pytorch@sha256:{'1' * 64}", ("nvcr.io", "nvidia/pytorch", f"sha256:{'1' * 64}")),
    ],
)
def test_references_are_read_as_docker_reads_them(reference: str, parts: tuple[str, str, str]) -> None:
    assert parse_reference(reference) == parts


def test_credentials_leave_every_address() -> None:
    text = "- https://u:p@h/c/x.conda\n- https://h/t/tk-123/c/x.conda\n"
    assert strip_all_credentials(text) == "- https://h/c/x.conda\n- https://h/c/x.conda\n"


def test_the_command_line_needs_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from builder.cli.main import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.yml").write_text(ENV)
    assert run(["lock", "demo.yml"]) == 2
    assert run(["lock", "nowhere", "demo.yml"]) == 2


def test_checking_writes_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from builder.cli.main import run

    monkeypatch.chdir(folder.env.parent)
    monkeypatch.delenv("RECIPE_TORCH_INDEX", raising=False)
    folder.lock()
    before = sorted(folder.env.parent.rglob("*"))
    assert run(["lock", "--check", "local", "demo.yml"]) == 0
    assert "local: demo.lock.yml fits" in capsys.readouterr().err
    assert run(["lock", "--check", "local", "frontier", "demo.yml"]) == 3
    assert run(["check", "--locked", "local", "demo.yml"]) == 0
    assert run(["check", "--locked", "frontier", "demo.yml"]) == 3
    assert sorted(folder.env.parent.rglob("*")) == before


def test_nothing_imports_rattler_with_itself() -> None:
    """What is slow to import is imported by the process that solves, and by nothing else."""
    root = Path(__file__).parents[2] / "builder"
    importing = [
        path.name for path in root.rglob("*.py") if re.search(r"^(from|import) rattler", path.read_text(), re.MULTILINE)
    ]
    assert importing == []


def test_a_certificate_that_is_not_trusted_is_named() -> None:
    (found,) = make_unreachable_error("the index", "invalid peer certificate: UnknownIssuer").findings
    assert found.message.startswith("the index could not be read: a server's certificate is not trusted here: invalid")
    assert "SSL_CERT_FILE" in found.fix


def test_diff_of_an_image_names_the_lock_of_its_folder(
    folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose environment file is not here."""
    folder.lock()
    folder.env.unlink()
    monkeypatch.chdir(folder.env.parent)
    Path("small.sqsh").write_bytes(b"hsqs")
    assert run(["diff", "small.sqsh"]) == 2
    assert f"`recipe diff small.sqsh {folder.index.name}`" in capsys.readouterr().err
