"""Package indexes made of tiny wheels: the real names, local versions and dependencies, and nothing inside."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ORIGIN = "origin.txt"  # in every wheel's package folder: the index it came from

# What torch/version.py says of a build.
BUILT_FOR = {"rocm": "hip = '6.4'\n", "xpu": "xpu = '2025.1'\n", "cpu": "cuda = None\n"}

NUMPY = ("numpy", "2.3.0", ())
DEFAULT: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # The default index has the CUDA build of torch, without a local version.
    ("torch", "2.8.0", ("numpy-stub", "nvidia-cublas-cu12==12.8.4.1", "triton==3.4.0", "filelock")),
    ("torch", "2.13.0", ("nvidia-cublas-cu12==12.8.4.1", "triton==3.7.1", "filelock")),
    ("torchvision", "0.23.0", ("torch==2.8.0", "numpy")),
    ("torchvision", "0.28.0", ("torch==2.13.0", "numpy")),
    ("torchaudio", "2.8.0", ("torch==2.8.0",)),
    ("nvidia-cublas-cu12", "12.8.4.1", ()),
    ("triton", "3.4.0", ()),
    ("triton", "3.7.1", ()),
    ("pytorch-triton-rocm", "2.1.0", ()),  # the default index has stale copies
    ("numpy-stub", "1.0", ()),
    ("numpy", "1.26.4", ()),
    NUMPY,
    ("filelock", "3.20.0", ()),
    # An old release without dependencies is what a resolver goes back to when torch does not fit.
    ("accelerate", "0.0.1", ()),
    ("accelerate", "1.10.0", ("torch>=2.0.0", "numpy>=1.17,<3.0.0")),
    ("timm", "0.1.0", ()),
    ("timm", "1.0.19", ("torch", "torchvision")),
    ("transformers", "4.55.0", ("numpy>=1.17", "filelock")),
    ("lightning", "2.5.0", ("torch>=2.1.0,<4.0", "torchmetrics>0.7")),
    ("torchmetrics", "1.8.0", ("torch>=2.0.0", "numpy>1.20.0")),
    ("old-friend", "1.0", ("torch==2.7.1",)),
    *((name, "80.0.0", ()) for name in ("setuptools", "wheel", "packaging", "psutil", "ninja")),
    ("hidden-torch", "1.0", ("torch",)),  # nobody's table knows that it needs torch
)


def torch_index(token: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """What lies on one index of PyTorch's: the family with its local version, its Triton, copies of dependencies."""
    triton = {
        "rocm": ("pytorch-triton-rocm", "3.4.0", ()),
        "xpu": ("pytorch-triton-xpu", "3.4.0", ()),
        "cu": ("triton", "3.4.0", ()),
    }
    own = next((row for prefix, row in triton.items() if token.startswith(prefix)), None)
    needs = (f"{own[0]}==3.4.0",) if own else ()
    cuda = ("nvidia-cublas-cu12==12.6.4.1",) if token == "cu126" else ()
    rows = [
        ("torch", f"2.8.0+{token}", ("filelock", *needs, *cuda)),
        ("torchvision", f"0.23.0+{token}", ("torch==2.8.0", "numpy")),
        ("torchaudio", f"2.8.0+{token}", ("torch==2.8.0",)),
        ("filelock", "3.13.1", ()),
        ("numpy", "2.1.2", ()),
    ]
    return (*rows, *([own] if own else []), *([("nvidia-cublas-cu12", "12.6.4.1", ())] if cuda else []))


def write_wheel(folder: Path, name: str, version: str, needs: Iterable[str], *, origin: str) -> Path:
    """Write one pure wheel (PEP 427) and return its path."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {need}" for need in needs]
    metadata += [f"Provides-Extra: {need.split('extra == ')[1].strip(chr(39))}" for need in needs if "extra ==" in need]
    texts = {
        f"{stem}/__init__.py": f"__version__ = {version!r}\n",
        f"{stem}/{ORIGIN}": origin,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if name == "torch":
        texts |= {f"{stem}/__init__.py": f"from . import version\n__version__ = {version!r}\n"}
        built = BUILT_FOR.get(version.partition("+")[2].rstrip("0123456789."), "cuda = '12.8'\n")
        texts |= {f"{stem}/version.py": f"__version__ = {version!r}\n{built}"}
    rows = []
    path = folder / f"{stem}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in texts.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{file},sha256={digest},{len(text.encode())}")
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return path


BACKEND = """
import zipfile
import torch

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "flash_attn-2.7.4-py3-none-any.whl"
    info = "flash_attn-2.7.4.dist-info"
    texts = {
        "flash_attn/__init__.py": "",
        "flash_attn/origin.txt": f"compiled against {torch.__version__}",
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: flash-attn\\nVersion: 2.7.4\\nRequires-Dist: torch\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as archive:
        for path, text in {**texts, f"{info}/RECORD": "".join(f"{path},,\\n" for path in texts)}.items():
            archive.writestr(path, text)
    return name
"""


def write_source(folder: Path, *, name: str = "flash-attn") -> str:
    """Write a stand-in for flash-attn's source: a build that imports torch, as the real one does; return its folder.

    By another name it is a package that wants nothing of torch.
    """
    folder.mkdir(parents=True)
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    head, backend, stem = f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.7.4\n", BACKEND, name.replace("-", "_")
    if name != "flash-attn":
        backend = backend.replace("flash-attn", name).replace("flash_attn", stem).replace("Requires-Dist: torch\\n", "")
        backend = backend.replace("import torch\n", "").replace("{torch.__version__}", "nothing")
    with tarfile.open(folder / f"{stem}-2.7.4.tar.gz", "w:gz") as archive:
        for file, text in (("pyproject.toml", build), ("backend.py", backend), ("PKG-INFO", head)):
            entry = tarfile.TarInfo(f"{stem}-2.7.4/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return str(folder)


def write_index(root: Path, packages: Iterable[tuple[str, str, tuple[str, ...]]]) -> str:
    """Write a tree as PEP 503 has it and return its address; its own name is what its wheels give as their origin."""
    pages: dict[str, list[str]] = {}
    for name, version, needs in packages:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        wheel = write_wheel(folder, name, version, needs, origin=root.name)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        address = wheel.name.replace("+", "%2B")
        pages.setdefault(name, []).append(f'<a href="{address}#sha256={digest}">{wheel.name}</a>')
    for name, links in pages.items():
        (root / name / "index.html").write_text("<!DOCTYPE html><html><body>" + "<br>".join(links) + "</body></html>")
    names = "".join(f'<a href="{name}/">{name}</a>' for name in pages)
    (root / "index.html").write_text(f"<!DOCTYPE html><html><body>{names}</body></html>")
    return root.as_uri()


def write_sources(root: Path, *, name: str, version: str, backend: str, requires: Iterable[str]) -> None:
    """Add a source distribution to an index: `backend` is the module that builds it."""
    folder = root / name
    folder.mkdir(exist_ok=True)
    build = f'[build-system]\nrequires = {list(requires)}\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in (("pyproject.toml", build), ("backend.py", backend), ("PKG-INFO", head)):
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "index.html").write_text(
        f'<html><body><a href="{path.name}#sha256={digest}">{path.name}</a></body></html>'
    )


def write_indexes(root: Path, tokens: Iterable[str]) -> Mapping[str, str]:
    """Write the default index and one for each token; return their addresses."""
    found = {token: write_index(root / "whl" / token, torch_index(token)) for token in tokens}
    return {"default": write_index(root / "default", DEFAULT), **found}
