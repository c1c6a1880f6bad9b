"""The two installs of an image, as install.sh runs them, on indexes of tiny wheels: no default torch slips in."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from tiny_index import write_index, write_indexes, write_source, write_wheel

from builder.compile.compile import compile_plan
from builder.compile.image_files import make_run_script
from builder.model.plan import Plan
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

pytestmark = pytest.mark.engines

BIN = Path(sys.executable).parent
TOKENS = ("rocm6.4", "xpu", "cpu", "cu126", "cu128", "cu129")
# The highest build of torch 2.8.0 that each site's driver serves.
SITES = {"frontier": "rocm6.4", "dawn": "xpu", "mn5": "cu129", "local": "cpu"}
ENV = "torch==2.8.0\ntorchvision\naccelerate\ntransformers\ntimm\nlightning\nnumpy\n"

STATE = """
import importlib.metadata as metadata, json, pathlib
found = {}
for item in metadata.distributions():
    name = item.metadata["Name"]
    origin = pathlib.Path(str(item.locate_file(name.replace("-", "_")))) / "origin.txt"
    found[name] = [item.version, origin.read_text() if origin.exists() else ""]
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Indexes:
    """The default index and PyTorch's, by file:// addresses."""

    default: str
    torch: str  # holds {token}


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    root = tmp_path_factory.mktemp("indexes")
    found = write_indexes(root, TOKENS)
    return Indexes(default=found["default"], torch=(root / "whl").as_uri() + "/{token}")


@dataclass(frozen=True, kw_only=True)
class Image:
    """A folder in the place of an image: install.sh with its files, the environment, the settings of the host."""

    root: Path
    indexes: Indexes

    @property
    def here(self) -> Path:
        return self.root / "build"

    @property
    def python(self) -> Path:
        return self.root / "env" / "bin" / "python"

    def fill(self, plan: Plan) -> None:
        """Lay the plan's files out; only the two fixed paths of install.sh are replaced."""
        self.here.mkdir(parents=True)
        for file in plan.files:
            if file.path.startswith("image/"):
                (self.here / file.path.removeprefix("image/")).write_text(file.text)
        script = (self.here / "install.sh").read_text()
        for fixed, own in (("here=/opt/recipe/build\n", self.here), ("prefix=/opt/env\n", self.root / "env")):
            assert fixed in script
            script = script.replace(fixed, f"{fixed.partition('=')[0]}={own}\n")
        (self.here / "install.sh").write_text(script)
        version = next(line for line in script.splitlines() if line.startswith("UV_VERSION=")).partition("=")[2]
        tools = self.root / "tools" / f"uv-{version}" / "bin"
        tools.mkdir(parents=True)
        (tools / "uv").symlink_to(BIN / "uv")

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "RECIPE_TOOLS": str(self.root / "tools"),
            "PIP_INDEX_URL": self.indexes.default,
            "UV_DEFAULT_INDEX": self.indexes.default,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_CONFIG": "1",
            "PIP_CONFIG_FILE": os.devnull,  # this machine's index stays out
            **more,
        }

    def install(self, *parts: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run parts of install.sh; the first that fails ends it."""
        for part in parts:
            command = ["/bin/sh", str(self.here / "install.sh"), part]
            done = subprocess.run(command, env=self.environment(**more), capture_output=True, text=True, check=False)
            if done.returncode:
                break
        return done

    def state(self, python: Path | None = None) -> dict[str, tuple[str, str]]:
        """Version and origin of everything that is installed."""
        done = subprocess.run([str(python or self.python), "-c", STATE], capture_output=True, text=True, check=True)
        return {name: (version, origin) for name, (version, origin) in json.loads(done.stdout).items()}


@pytest.fixture
def image(tmp_path: Path, indexes: Indexes) -> Image:
    return Image(root=tmp_path / "image", indexes=indexes)


@pytest.fixture
def plan(tmp_path: Path, indexes: Indexes) -> Callable[..., Plan]:
    def made(text: str, site: str, **chosen: str) -> Plan:
        file = tmp_path / ("environment.yml" if "dependencies:" in text else "requirements.txt")
        file.write_text(text)
        context = Context(torch_index=indexes.torch, **chosen)
        return compile_plan(resolve(load_recipe(file), load_site(site), context=context))

    return made


def make_venv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def fresh(image: Image, plan: Plan) -> None:
    """The environment is made here, since the Python of this machine is not the one that was planned."""
    image.fill(plan)
    (image.here / "place").write_text("venv\n")
    make_venv(image.root / "env")


@pytest.mark.parametrize("site", SITES)
def test_every_vendor_gets_its_own_build(site: str, image: Image, plan: Callable[..., Plan]) -> None:
    token = SITES[site]
    made = plan(ENV, site, base=FRESH.get(site, ""))
    fresh(image, made)
    done = image.install("torch", "packages")
    assert done.returncode == 0, done.stderr
    found = image.state()
    assert found["torch"] == (f"2.8.0+{token}", token)
    assert found["torchvision"] == (f"0.23.0+{token}", token)
    newest = {"accelerate": "1.10.0", "timm": "1.0.19", "lightning": "2.5.0", "torchmetrics": "1.8.0"}
    assert {name: found[name] for name in newest} == {name: (version, "default") for name, version in newest.items()}
    assert found["transformers"] == ("4.55.0", "default")
    cuda = [name for name in found if name.startswith("nvidia-")]
    assert cuda == (["nvidia-cublas-cu12"] if token == "cu126" else [])
    tritons = {name: origin for name, (_, origin) in found.items() if "triton" in name}
    wanted = {"rocm6.4": "pytorch-triton-rocm", "xpu": "pytorch-triton-xpu", "cpu": ""}.get(token, "triton")
    assert tritons == ({wanted: token} if wanted else {})


# Images with a torch of their own are passed by: this is about wheels.
FRESH = {
    "dawn": "docker://intel/deep-learning-essentials:2025.3.0-0-devel-rockylinux9",
    "frontier": "docker://savannah.ornl.gov/olcf-container-images/cpe:25.09_gnu_ubuntu",
    "mn5": "docker://docker.io/library/python:3.12-slim-bookworm",
}


def test_other_packages_come_from_the_default_index(image: Image, plan: Callable[..., Plan]) -> None:
    fresh(image, plan("torch==2.8.0\ntorchvision\nnumpy==1.26.4\nfilelock>=3.20\n", "frontier"))
    done = image.install("torch", "packages")
    assert done.returncode == 0, done.stderr
    found = image.state()
    assert found["numpy"] == ("1.26.4", "default")
    assert found["filelock"] == ("3.20.0", "default")
    assert found["torch"] == ("2.8.0+rocm6.4", "rocm6.4")


def test_a_package_for_another_torch_fails_and_replaces_nothing(image: Image, plan: Callable[..., Plan]) -> None:
    fresh(image, plan("torch==2.8.0\nold-friend==1.0\n", "frontier"))
    done = image.install("torch", "packages")
    assert done.returncode != 0
    assert "old-friend==1.0" in done.stderr
    assert image.state()["torch"] == ("2.8.0+rocm6.4", "rocm6.4")


def test_a_dependent_brings_the_sites_build_by_itself(image: Image, plan: Callable[..., Plan]) -> None:
    """Without torch in the recipe: accelerate alone would bring the default index's CUDA build."""
    fresh(image, plan("accelerate\ntorchvision==0.23.0\n", "frontier"))
    done = image.install("torch", "packages")
    assert done.returncode == 0, done.stderr
    found = image.state()
    assert found["torch"] == ("2.8.0+rocm6.4", "rocm6.4")
    assert found["accelerate"] == ("1.10.0", "default")


def test_a_torch_that_is_nowhere_fails(image: Image, plan: Callable[..., Plan]) -> None:
    fresh(image, plan("torch==2.9.1\naccelerate\n", "frontier"))
    done = image.install("torch", "packages")
    assert done.returncode != 0
    assert "torch" not in image.state()


def test_an_extra_index_of_the_host_does_not_hide_pytorchs(image: Image, plan: Callable[..., Plan]) -> None:
    fresh(image, plan("torch==2.8.0\naccelerate\n", "frontier"))
    done = image.install("torch", "packages", UV_INDEX=image.indexes.default)
    assert done.returncode == 0, done.stderr
    assert image.state()["torch"] == ("2.8.0+rocm6.4", "rocm6.4")


@pytest.mark.parametrize("option", ["", "--require-hashes\n"])
def test_pinned_hashes_hold_beside_the_torch_that_has_none(
    option: str, image: Image, plan: Callable[..., Plan]
) -> None:
    """A file of `pip-compile --generate-hashes`: torch is taken out of it, what depends on torch stays."""
    folder = Path(image.indexes.default.removeprefix("file://"))
    names = {"accelerate": "1.10.0", "numpy": "1.26.4"}
    lines = []
    for name, version in names.items():
        digest = hashlib.sha256((folder / name / f"{name}-{version}-py3-none-any.whl").read_bytes()).hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    torch = "torch==2.8.0 --hash=sha256:" + "0" * 64 + "\n"
    fresh(image, plan(option + torch + "".join(lines), "frontier"))
    done = image.install("torch", "packages")
    assert done.returncode == 0, done.stderr
    found = image.state()
    assert found["torch"] == ("2.8.0+rocm6.4", "rocm6.4")
    assert found["accelerate"] == ("1.10.0", "default")
    wrong = (image.here / "requirements.txt").read_text().replace("sha256:", "sha256:0000")
    (image.here / "requirements.txt").write_text(re.sub(r"(sha256:0000\w{60})\w{4}", r"\1", wrong))
    shutil.rmtree(image.root / "env")
    make_venv(image.root / "env")
    done = image.install("torch", "packages")
    assert done.returncode != 0
    assert "Hash mismatch" in done.stderr


def test_commands_of_a_file_with_hashes_have_pip(image: Image, plan: Callable[..., Plan]) -> None:
    """This index has no pip: Python's own is installed. The commands may remove it when they are done with it."""
    folder = Path(image.indexes.default.removeprefix("file://"))
    digest = hashlib.sha256((folder / "numpy" / "numpy-1.26.4-py3-none-any.whl").read_bytes()).hexdigest()
    run = "run: [python -m pip --version, python -m pip uninstall -y pip]"
    line = f"numpy==1.26.4 --hash=sha256:{digest}"
    fresh(image, plan(f"dependencies: [pip: ['{line}']]\ncontainer: {{{run}}}\n", "local", backend="apptainer"))
    done = image.install("packages")
    assert done.returncode == 0, done.stderr
    assert "pip, for the recipe's own commands" in done.stdout
    assert "pip" in image.state()
    done = image.install("run")
    assert done.returncode == 0, done.stderr
    assert "pip" not in image.state()


def test_commands_may_remove_the_pip_that_is_a_line(image: Image, plan: Callable[..., Plan], tmp_path: Path) -> None:
    index = write_index(tmp_path / "index", (("pip", "99.0", ()), ("numpy", "1.26.4", ()), ("tqdm", "4.0", ())))
    run = f"run: ['rm -r {image.root}/env/lib/python3*/site-packages/pip-99.0.dist-info']"
    fresh(image, plan(f"dependencies: [pip: [pip, numpy, tqdm]]\ncontainer: {{{run}}}\n", "local", backend="apptainer"))
    for part in ("packages", "run"):
        done = image.install(part, UV_DEFAULT_INDEX=index)
        assert done.returncode == 0, done.stderr
    assert "pip" not in image.state()
    (image.here / "run.sh").write_text((image.here / "run.sh").read_text().replace("pip-99.0", "numpy-1.26.4"))
    done = image.install("run")
    assert "removed packages or modules of the recipe: numpy:" in done.stderr


@pytest.mark.parametrize("isolated", [False, True])
def test_a_package_is_compiled_against_the_torch_of_its_image(
    image: Image, plan: Callable[..., Plan], isolated: bool, tmp_path: Path
) -> None:
    """Twice from one cache: the build for the first torch must not come to the second."""
    settings = {"UV_FIND_LINKS": write_source(tmp_path / "source"), "UV_CACHE_DIR": str(tmp_path / "cache")}
    for site, token in (("frontier", "rocm6.4"), ("mn5", "cu129")):
        own = replace(image, root=image.root / site)
        fresh(own, plan("torch==2.8.0\nflash-attn==2.7.4\naccelerate\n", site, base=FRESH.get(site, "")))
        if isolated:
            (own.here / "compiled.txt").unlink()
        done = own.install("torch", "packages", **settings)
        if isolated:
            assert done.returncode != 0
            assert "No module named 'torch'" in done.stderr
            return
        assert done.returncode == 0, done.stdout + done.stderr
        found = own.state()
        assert found["flash-attn"] == ("2.7.4", f"compiled against 2.8.0+{token}")
        assert found["torch"] == (f"2.8.0+{token}", token)
        assert (found["accelerate"][0], found["ninja"][0]) == ("1.10.0", "80.0.0")


def test_an_unplanned_torch_is_found_in_the_image(image: Image, plan: Callable[..., Plan]) -> None:
    """A package that no table knows brings the default index's torch: the proof after the install refuses it."""
    fresh(image, plan("hidden-torch==1.0\n", "frontier", base=FRESH["frontier"]))
    done = image.install("torch", "packages")
    assert done.returncode == 0, done.stderr
    assert image.state()["torch"][1] == "default"
    proof = subprocess.run(
        [str(image.python), str(image.here / "verify.py"), str(image.here / "recipe.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert proof.returncode == 1
    assert "write torch among the dependencies" in proof.stderr


@pytest.fixture
def ngc(image: Image) -> Path:
    """A base image's Python with a torch as NVIDIA's images have it, on PATH; a stand-in of a few tiny wheels."""
    python = make_venv(image.root / "base-stand-in")
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for name, version in (
        ("torch", "2.8.0a0+5228986c39.nv25.6"),
        ("torchvision", "0.22.0a0+95f10a4e"),
        ("flash-attn", "2.7.3"),
        ("numpy", "1.26.4"),
    ):
        wheel = write_wheel(image.root, name, version, (), origin="base")
        zipfile.ZipFile(wheel).extractall(site)
    (image.root / "constraint.txt").write_text("numpy==1.26.4\ntorch==2.8.0a0+5228986c39.nv25.6\n")
    return python


def in_base(image: Image, python: Path) -> dict[str, str]:
    path = f"{python.parent}:{os.environ['PATH']}"
    return {"PATH": path, "PIP_CONSTRAINT": str(image.root / "constraint.txt")}


def test_a_base_images_torch_is_kept(image: Image, plan: Callable[..., Plan], ngc: Path) -> None:
    made = plan("torch==2.8.0\ntorchvision\naccelerate\ntimm\nlightning\nnumpy\nflash-attn\n", "mn5")
    assert made.base.startswith("docker://nvcr.io/nvidia/pytorch:25.")
    image.fill(made)
    done = image.install("python", "torch", "packages", **in_base(image, ngc))
    assert done.returncode == 0, done.stdout + done.stderr
    found = image.state(ngc)
    assert found["torch"] == ("2.8.0a0+5228986c39.nv25.6", "base")
    assert found["torchvision"][1] == found["flash-attn"][1] == "base"
    assert found["numpy"] == ("1.26.4", "base")  # the image's own constraint
    assert {found[name][0] for name in ("accelerate", "timm", "lightning")} == {"1.10.0", "1.0.19", "2.5.0"}
    assert not [name for name in found if name.startswith("nvidia-") or name == "triton"]
    assert "kept the base image's torch 2.8.0a0" in done.stdout


def test_a_replaced_torch_of_the_base_image_ends_the_build(image: Image, plan: Callable[..., Plan], ngc: Path) -> None:
    """What the recipe's own commands do is not held back, but seen."""
    image.fill(plan("torch==2.8.0\naccelerate\n", "mn5"))
    settings = in_base(image, ngc)
    assert image.install("python", "torch", "packages", **settings).returncode == 0
    uv = f"{BIN}/uv pip install --python {ngc} --reinstall torch==2.8.0"
    (image.here / "run.sh").write_text(make_run_script((uv,)))
    done = image.install("run", **settings)
    assert done.returncode != 0
    assert "torch of the base image was replaced: 2.8.0a0+5228986c39.nv25.6 before, 2.8.0 now" in done.stderr


def one_call(image: Image, plan: Plan) -> subprocess.CompletedProcess[str]:
    """What conda does with the `pip:` section of an environment file: one call of pip with all its lines."""
    text = next(file.text for file in plan.files if file.path.endswith((".yml", ".yaml")) and "pip:" in file.text)
    lines = next(item["pip"] for item in yaml.safe_load(text)["dependencies"] if isinstance(item, dict))
    image.root.mkdir(exist_ok=True)
    (image.root / "condaenv.requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    make_venv(image.root / "env")
    command = [sys.executable, "-m", "pip", "--python", str(image.python), "install", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "-r", str(image.root / "condaenv.requirements.txt")]
    return subprocess.run(command, env=image.environment(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("site", "backend", "token"),
    [("lumi-g", "cotainr", "rocm6.4"), ("lumi-g", "tykky", "rocm6.4"), ("lumi-c", "cotainr", "cpu")],
)
def test_one_call_of_pip_takes_the_sites_build(
    site: str, backend: str, token: str, image: Image, plan: Callable[..., Plan]
) -> None:
    done = one_call(image, plan(ENV, site, backend=backend))
    assert done.returncode == 0, done.stderr
    found = image.state()
    assert found["torch"] == (f"2.8.0+{token}", token)
    assert found["torchvision"] == (f"0.23.0+{token}", token)
    assert found["accelerate"] == ("1.10.0", "default")
    assert found["numpy"] == ("2.3.0", "default")
    assert not [name for name in found if name.startswith("nvidia-") or name == "triton"]


def test_one_call_of_pip_fails_on_another_torch(image: Image, plan: Callable[..., Plan]) -> None:
    done = one_call(image, plan("torch==2.8.0\nold-friend==1.0\n", "lumi-g"))
    assert done.returncode != 0
    assert "conflict" in done.stderr
    assert image.state() == {}
