"""PEP 751: the lock of Python packages that pip and uv read. What `recipe lock` writes has one file a package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from builder.model.finding import ConfigError, Finding, Location
from builder.model.lock import PipFile
from builder.model.secrets import find_address_secret
from builder.model.text import URL, is_misleading, sanitize, to_dict, to_integer, to_list

HEX = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# Python's reader takes time and memory that grow with the square of a dotted key's parts.
STRING = re.compile(r""""(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
KEYS, PARTS = re.compile(r"""[\w". \t-]+"""), 8
VERSION = re.compile(r"[A-Za-z0-9.!_+-]+")

# Packages that come from PyTorch's own index, since the default index has other files under their names.
TORCH_FAMILY = (
    "torch", "torchvision", "torchaudio",
    "triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton-xpu", "triton-xpu",
)  # fmt: skip


def parse_pylock(text: str, *, file: Path) -> Mapping[str, Any]:
    """Parse a pylock file; raises ConfigError if it is invalid."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError
        raise ConfigError(_make_fault(file, f"the lock is not TOML: {sanitize(str(error), limit=200)}")) from None
    if str(tree.get("lock-version", "")).partition(".")[0] != "1" or not isinstance(tree.get("packages", []), list):
        raise ConfigError(_make_fault(file, "the lock is no pylock file of version 1"))
    return dict(tree)


def read_pylock(text: str, *, file: Path) -> tuple[PipFile, ...]:
    """Return the files of a pylock that `recipe lock` wrote, sorted by name; raises ConfigError with a fault."""
    longest = max((keys.count(".") for keys in KEYS.findall(STRING.sub('""', text))), default=0)
    if longest >= PARTS or '"""' in text or "'''" in text:
        raise ConfigError(_make_fault(file, "the lock is not written as `recipe lock` writes it"))
    found = [_parse_file(to_dict(package), file=file) for package in parse_pylock(text, file=file).get("packages", [])]
    return tuple(sorted(found, key=lambda item: item.name))


def _parse_file(package: Mapping[str, Any], *, file: Path) -> PipFile:
    name, version = get_text(package, "name"), get_text(package, "version")
    wheels, vcs = to_list(package.get("wheels")), to_dict(package.get("vcs"))
    source = to_dict(wheels[0]) if wheels else to_dict(package.get("sdist") or package.get("archive") or vcs)
    url, sha256 = get_text(source, "url"), get_text(to_dict(source.get("hashes")), "sha256")
    if not NAME.fullmatch(name) or not url or len(wheels) > 1 or (version and not VERSION.fullmatch(version)):
        raise ConfigError(_make_fault(file, f"the lock does not name one file for '{sanitize(name)}'"))
    if vcs:
        inside = get_text(vcs, "subdirectory")
        url = f"git+{url.removeprefix('git+')}@{get_text(vcs, 'commit-id')}"
        url += f"#subdirectory={inside}" if inside else ""
    if not URL.fullmatch(url) or is_misleading(url):
        raise ConfigError(_make_fault(file, f"the address of '{name}' in the lock is not plain"))
    if find_address_secret(url):
        raise ConfigError(_make_fault(file, f"the address of '{name}' in the lock has credentials in it"))
    if not vcs and not HEX.fullmatch(sha256):
        raise ConfigError(_make_fault(file, f"the lock has no sha256 for '{name}'"))
    return PipFile(
        name=name,
        version=version,
        kind="vcs" if vcs else "wheel" if url.partition("#")[0].endswith(".whl") else "sdist",
        url=url,
        sha256=sha256,
        size=max(to_integer(source.get("size")) or 0, 0),
        torch=name in TORCH_FAMILY,
        direct=bool(vcs or package.get("archive")),
    )


def get_text(entry: Mapping[str, Any], name: str) -> str:
    """Return a text of a table, "" for anything else."""
    found = entry.get(name)
    return found if isinstance(found, str) else ""


def write_pylock(files: Iterable[PipFile], *, python: str) -> str:
    """Return the pylock of these files: sorted, the same bytes for the same files."""
    lines = ['lock-version = "1.0"', 'created-by = "recipe"', f"requires-python = {_quote_text(f'=={python}.*')}"]
    for file in sorted(files, key=lambda item: item.name):
        lines += ["", "[[packages]]", f"name = {_quote_text(file.name)}"]
        lines += [f"version = {_quote_text(file.version)}"] if file.version else []
        if file.kind == "vcs":
            whole, _, inside = file.url.removeprefix("git+").partition("#subdirectory=")
            url, _, commit = whole.rpartition("@")
            part = f", subdirectory = {_quote_text(inside)}" if inside else ""
            lines.append(f'vcs = {{ type = "git", url = {_quote_text(url)}, commit-id = {_quote_text(commit)}{part} }}')
            continue
        size = f"size = {file.size}, " if file.size else ""
        entry = f"{{ url = {_quote_text(file.url)}, {size}hashes = {{ sha256 = {_quote_text(file.sha256)} }} }}"
        if file.direct:
            lines.append(f"archive = {entry}")
        else:
            lines.append(f"wheels = [{entry}]" if file.kind == "wheel" else f"sdist = {entry}")
    return "\n".join(lines) + "\n"


def _quote_text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _make_fault(file: Path, message: str) -> Finding:
    fix = "run `recipe lock SITE ENV` again"
    return Finding(code="lock-faulty", message=message, at=Location(file=str(file)), fix=fix)
