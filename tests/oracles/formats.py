"""Read what others publish: cog's list of PyTorch builds, PyTorch's own build matrix, uv's backends."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a source says of one release of torch; an empty field is not said."""

    torch: str
    torchvision: str = ""
    torchaudio: str = ""
    pythons: frozenset[str] = frozenset()
    builds: frozenset[str] = frozenset()  # cpu, cu126, rocm6.4
    whole: bool = False  # the source lists every build


@dataclass(frozen=True, kw_only=True)
class Published:
    """Everything that a source says."""

    releases: tuple[Release, ...] = ()
    indexes: frozenset[str] = frozenset()
    drivers: Mapping[str, str] = field(default_factory=dict)  # cuNNN -> the least driver
    gfx: Mapping[str, frozenset[str]] = field(default_factory=dict)  # rocmX.Y -> targets


def read_cog(text: str) -> Published:
    """Read cog's JSON: a row for each release and CUDA; some versions have the build behind a `+`."""
    found: dict[str, dict[str, set[str]]] = {}
    for row in json.loads(text):
        torch = row["Torch"].partition("+")[0]
        fields = found.setdefault(torch, {"vision": set(), "audio": set(), "builds": set()})
        fields["vision"].add(row["Torchvision"].partition("+")[0])
        fields["audio"].add(row["Torchaudio"].partition("+")[0])
        fields["builds"].add("cu" + row["CUDA"].replace(".", "") if row["CUDA"] else "cpu")
    releases = (
        Release(
            torch=torch, torchvision=min(one["vision"]), torchaudio=min(one["audio"]), builds=frozenset(one["builds"])
        )
        for torch, one in found.items()
    )
    return Published(releases=tuple(releases))


def read_matrix(text: str) -> Published:
    """Read the build matrix of PyTorch: the lists of its channel `release`; nothing of it is run."""
    known: dict[str, object] = {}
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name):
            try:
                known[target.id] = ast.literal_eval(node.value)
            except ValueError:
                continue

    def find(*names: str) -> list[str]:
        value = next((known[name] for name in names if name in known), [])
        listed = value.get("release", []) if isinstance(value, dict) else value
        return [str(one) for one in listed] if isinstance(listed, list) else []

    cuda = {f"cu{version.replace('.', '')}" for version in find("CUDA_ARCHES_DICT", "CUDA_ACRHES_DICT", "CUDA_ARCHES")}
    rocm = {f"rocm{version}" for version in find("ROCM_ARCHES_DICT", "ROCM_ARCHES")}
    pythons = find("PYTHON_ARCHES_DICT", "FULL_PYTHON_VERSIONS")
    release = Release(
        torch=str(known.get("CURRENT_STABLE_VERSION", "")),
        pythons=frozenset(version for version in pythons if not version.endswith("t")),
        builds=frozenset({*cuda, *rocm, "cpu"}),
        whole=True,
    )
    return Published(releases=(release,) if release.torch else ())


def read_uv(text: str) -> Published:
    """Read uv's backends: the words that name an index, the least drivers for Linux, the AMD GPUs of each ROCm."""
    names = dict(re.findall(r'"([a-z0-9.]+)"\s*=>\s*Ok\((?:Self|TorchBackend)::(\w+)\)', text))
    words = {name: word for word, name in names.items()}
    linux = text.partition("LINUX_CUDA_DRIVERS")[2].partition("});")[0]
    drivers = {
        words.get(name, name.lower()): ".".join(part.strip().zfill(2) for part in numbers.split(","))
        for name, numbers in re.findall(r"TorchBackend::(Cu\w+),\s*Version::new\(\[([\d, ]+)\]\)", linux)
    }
    gfx: dict[str, set[str]] = {}
    for name, target in re.findall(r"TorchBackend::(Rocm\w+),\s*AmdGpuArchitecture::(Gfx\w+)", text):
        gfx.setdefault(words.get(name, name.lower()), set()).add(target.lower())
    return Published(
        indexes=frozenset(names), drivers=drivers, gfx={token: frozenset(targets) for token, targets in gfx.items()}
    )


READERS = {"cog": read_cog, "matrix": read_matrix, "uv": read_uv}
