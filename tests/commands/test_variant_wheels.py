"""Variant wheels on an index of this machine: what pip and uv do with them, and what recipe says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.registry_stand_ins import StandIn, serving
from support.rows import rows
from support.variant_wheels import GPUS, LEVELS, variant_release

from builder.compile.render import read_template
from builder.layers.uv import find_own_uv, make_uv_environment, make_uv_settings

ROOT = Path(__file__).parents[2]
TELL = {"NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "13.0", "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "9.0"}
PREVIEW = {"UV_PREVIEW": "1", "UV_PREVIEW_FEATURES": "wheel-variants", **TELL}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """An index with two packages that have variants, one of them a plain wheel too."""
    folder = tmp_path_factory.mktemp("variants")
    for name, variants, plain in (("only", GPUS, False), ("both", GPUS, True), ("level", LEVELS, True)):
        variant_release(folder, name, variants, plain=plain)

    def reply(_server: StandIn, path: str, _shown: str) -> tuple[int, dict[str, str], bytes]:
        name = path.strip("/").rpartition("/")[2]
        if (folder / name).is_file():
            return 200, {"Content-Type": "application/octet-stream"}, (folder / name).read_bytes()
        files = sorted(file.name for file in folder.glob(f"{name}-*"))
        page = "".join(f'<a href="/files/{file}">{file}</a>\n' for file in files)
        return (200, {"Content-Type": "text/html"}, page.encode()) if name and files else (404, {}, b"")

    with serving() as server:
        server.reply = reply
        yield server


def environment(index: StandIn, folder: Path, **more: str) -> dict[str, str]:
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    env |= {"UV_DEFAULT_INDEX": f"{index.url}/simple", "UV_NO_CONFIG": "1", "UV_PYTHON": sys.executable}
    return env | {"RECIPE_CACHE_DIR": str(folder / "cache"), "UV_CACHE_DIR": str(folder / "uv"), **more}


def install(words: list[str], folder: Path, env: dict[str, str]) -> str:
    """What a module says after it was installed, or what the installer said."""
    target = folder / "target"
    argv = [find_own_uv(), "pip", "install", "--target", str(target), *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    files = [*target.glob("*.py")]
    return files[0].read_text().strip() if files else re.sub(r"\s+", " ", done.stderr)


@rows(
    ("words", "more", "said"),
    [
        (["both"], {}, "LABEL = ''"),
        (["only"], {}, "only==1.0 has only unsupported wheel variants"),
        (["both"], PREVIEW, "LABEL = 'cu13'"),  # what uv is told of the driver, or asks the machine that it runs on
        (["--no-preview", "both"], PREVIEW, "LABEL = ''"),
        (["--no-preview", "level"], PREVIEW, "LABEL = ''"),
        (["--no-preview", "only"], PREVIEW, "only==1.0 has only unsupported wheel variants"),
    ],
)
def test_what_uv_takes(words: list[str], more: dict[str, str], said: str, index: StandIn, tmp_path: Path) -> None:
    assert said in install(words, tmp_path, environment(index, tmp_path, **more))


def test_a_build_never_takes_the_variant_of_its_own_machine(index: StandIn, tmp_path: Path) -> None:
    (line,) = [line for line in read_template("install.sh").splitlines() if '"$uv" pip install' in line]
    assert "--no-preview" in line
    settings = make_uv_settings(environment(index, tmp_path, **PREVIEW), cache=tmp_path / "cache")
    argv = [find_own_uv(), "pip", "compile", "--no-header", "--generate-hashes", "-"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PREVIEW.items():
            patch.setenv(name, value)
        env = make_uv_environment(settings) | {"UV_PYTHON": sys.executable}
    done = subprocess.run(argv, env=env, input="only\n", capture_output=True, text=True, timeout=60, check=False)
    assert "only unsupported wheel variants" in re.sub(r"\s+", " ", done.stderr)


def test_pip_passes_over_them(index: StandIn, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--isolated", "--no-cache-dir", "--disable-pip-version-check"]
    argv += ["-d", str(tmp_path / "files"), "--index-url", f"{index.url}/simple"]
    for name, found in (("both", ["both-1.0-py3-none-any.whl"]), ("only", [])):
        done = subprocess.run(
            [*argv, name], env=environment(index, tmp_path), capture_output=True, timeout=60, check=False
        )
        assert (done.returncode == 0) is bool(found)
        assert [path.name for path in (tmp_path / "files").glob(f"{name}-*")] == found


def run(words: list[str], folder: Path, env: dict[str, str]) -> tuple[int, str]:
    env = {**env, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "builder.cli.main", *words]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


@rows("site", ["mn5", "lumi-g"])
def test_a_package_of_variants_alone_is_refused(site: str, index: StandIn, tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("name: x\ndependencies:\n  - pip:\n    - only\n")
    code, said = run(["check", "--resolve", site, "x.yml"], tmp_path, environment(index, tmp_path, **PREVIEW))
    assert code == 3, said
    assert "error[wheel-variant]: 'only' has variant wheels alone" in said
    assert f"`recipe inspect --gpu only-1.0-variants.json --site {site}`" in said


def test_the_file_of_an_index_says_what_serves(index: StandIn, tmp_path: Path) -> None:
    env = environment(index, tmp_path)
    variant_release(tmp_path, "only", GPUS, plain=False)
    for site, expected, line in (
        ("mn5", 0, "ok   cu12"),
        ("lumi-g", 0, "ok   rocm"),
        ("dawn", 6, "fix: choose a release with one for: intel :: device_ip :: 12.60.*"),
    ):
        code, said = run(["inspect", "--gpu", "only-1.0-variants.json", "--site", site], tmp_path, env)
        assert (code, line in said) == (expected, True), said
    # The fix: the wheel under a name without the label.
    name = "only-1.0-py3-none-any.whl"
    (tmp_path / "only-1.0-py3-none-any-cu12.whl").rename(tmp_path / name)
    assert run(["inspect", "--gpu", name, "--site", "mn5"], tmp_path, env)[0] == 0
    assert install([str(tmp_path / name)], tmp_path, env) == "LABEL = 'cu12'"
