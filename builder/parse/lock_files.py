"""The files of a lock: a small index, and next to it files in the formats that other tools read.

`NAME.lock.yml` is the index; `NAME.lock/SITE/pixi.lock` (rattler's format) has the conda packages and
`NAME.lock/SITE/pylock.toml` (PEP 751) those of pip. The index has the sha256 of both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from builder.layers.conda_solver import CondaPackage
from builder.model.finding import ConfigError, Finding, Location
from builder.model.lock import BaseLock, Lock, LockRequest, PipFile
from builder.model.secrets import find_address_secret
from builder.model.text import URL, exists, is_misleading, sanitize, to_dict, to_integer, to_list
from builder.parse.decoder import Decoder
from builder.parse.yaml import Listing, Table, Text, Value, parse_yaml, read_text, to_yaml

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


SCHEMA = "1"
PIXI, PYLOCK = "pixi.lock", "pylock.toml"
MD5 = re.compile(r"[0-9a-f]{32}")
SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
BYTES = re.compile(r"[0-9]{1,15}")
PART = re.compile(r"(?!\.)[A-Za-z0-9_.+!%-]+")  # of a package's file name
DIGEST = re.compile(r"(sha256:[0-9a-f]{64})?")
SIZE = 8 * 1024 * 1024  # bytes: a conda environment of a thousand packages is below one MiB
PIP_SIZE = 2 * 1024 * 1024  # bytes: a thousand packages are below half of one MiB
NODES = 200_000  # values: of a thousand packages there are thirty thousand


@dataclass(frozen=True, kw_only=True)
class LockEntry:
    """One site in the index; `conda` and `pip` are the sha256 of its files, empty where it has none."""

    recipe: str
    digest: str
    asked: LockRequest
    base: BaseLock
    virtual: tuple[str, ...] = ()
    conda: str = ""
    pip: str = ""


@dataclass(frozen=True, kw_only=True)
class LockIndex:
    """The index: every site that the environment is locked for."""

    lock: str  # the version of this format
    tool: str
    sites: Mapping[str, LockEntry] = field(default_factory=dict)


def name_site_folder(index: Path, site: str) -> Path:
    """Return the folder of a site's files."""
    return index.with_name(index.name.removesuffix(".yml")) / site


def read_index(path: Path) -> LockIndex | None:
    """Read the index, None if there is none; raises ConfigError with every fault of it."""
    if not exists(path):
        return None
    tree = parse_yaml(read_text(path, what="lock"), file=str(path))
    decoder = Decoder(file=str(path))
    index: LockIndex | None = None if tree is None else decoder.decode_table(tree, LockIndex, key="")
    if index is None or decoder.findings:
        raise ConfigError(*(decoder.findings or [_make_fault(path, "the lock is empty")]))
    if index.lock != SCHEMA:
        message = f"the lock has format '{sanitize(index.lock)}', this version reads {SCHEMA}"
        raise ConfigError(_make_fault(path, message, key="lock"))
    for name in index.sites:
        if not SITE.fullmatch(name):
            raise ConfigError(_make_fault(path, "a site of the lock has no plain name", key="sites"))
    return index


def read_lock(path: Path, site: str) -> Lock | None:
    """Read the lock of a site from an index, None if there is none; raises ConfigError if it was altered."""
    index = read_index(path)
    entry = index.sites.get(site) if index else None
    if index is None or entry is None:
        return None
    if not DIGEST.fullmatch(entry.base.digest):
        raise ConfigError(
            _make_fault(path, "the digest of the base image is malformed", key=f"sites.{site}.base.digest")
        )
    folder = name_site_folder(path, site)
    conda = _read_own_file(folder / PIXI, entry.conda, index=path)
    pip = _read_own_file(folder / PYLOCK, entry.pip, index=path, limit=PIP_SIZE)
    lock = Lock(
        site=site,
        recipe=entry.recipe,
        tool=index.tool,
        asked=entry.asked,
        base=entry.base,
        virtual=entry.virtual,
        conda=read_conda(conda, file=folder / PIXI) if conda else (),
        pip=read_pylock(pip, file=folder / PYLOCK) if pip else (),
    )
    if lock.digest != entry.digest:
        raise ConfigError(_make_changed_finding(path, key=f"sites.{site}"))
    return lock


def _read_own_file(path: Path, digest: str, *, index: Path, limit: int = SIZE) -> str:
    """Read a file whose digest is in the index."""
    if not digest:
        return ""
    text = read_text(path, what="lock", at=Location(file=str(index)), limit=limit)
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise ConfigError(_make_changed_finding(path))
    return text


def _make_changed_finding(path: Path, *, key: str = "") -> Finding:
    message = "the lock was altered by hand, or its files are of two runs: it is not what `recipe lock` wrote"
    fix = "take back the change, or run `recipe lock SITE ENV` again"
    return Finding(code="lock-altered", message=message, at=Location(file=str(path), key=key), fix=fix)


def _make_fault(path: Path, message: str, *, key: str = "") -> Finding:
    fix = "run `recipe lock SITE ENV` again"
    return Finding(code="lock-faulty", message=message, at=Location(file=str(path), key=key), fix=fix)


def is_index(head: bytes) -> bool:
    """Whether the first bytes of a file are those of an index, also of one that was damaged since."""
    return head.startswith(b"# Written by `recipe lock`") or re.search(rb"^lock:\s", head, re.MULTILINE) is not None


def format_index(locks: Mapping[str, Lock], *, files: Mapping[str, tuple[str, str]], tool: str) -> str:
    """Write the index; `files` has the sha256 of each site's two files, in the order conda, pip."""
    sites = {}
    for name, lock in sorted(locks.items()):
        conda, pip = files[name]
        entry = {"recipe": lock.recipe, "digest": lock.digest, "asked": _to_plain(asdict(lock.asked))}
        entry |= {"base": _to_plain(asdict(lock.base)), "virtual": list(lock.virtual), "conda": conda, "pip": pip}
        sites[name] = _to_plain(entry)
    head = "# Written by `recipe lock`: the exact files of every site lie in the folder of the same name.\n"
    return head + to_yaml({"lock": SCHEMA, "tool": tool, "sites": sites})


def _to_plain(entry: Mapping[str, object]) -> dict[str, object]:
    """Return plain data without empty values; tuples as lists, mappings sorted."""
    kept = {name: value for name, value in entry.items() if value not in ("", (), [], {}, 0, None)}
    return {name: _sort_value(value) for name, value in kept.items()}


def _sort_value(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def read_conda(text: str, *, file: Path) -> tuple[CondaPackage, ...]:
    """Return the packages of a rattler lock (versions 6 and 7) of one environment and platform, sorted by name."""
    tree = parse_yaml(text, file=str(file), nodes=NODES)
    packages = tree.get("packages") if isinstance(tree, Table) else None
    if not isinstance(packages, Listing):
        raise ConfigError(_make_fault(file, "the lock has no list of packages", key="packages"))
    found = [_read_conda_package(item, file=file, key=f"packages[{at}]") for at, item in enumerate(packages.items)]
    return tuple(sorted(found, key=lambda package: package.name))


def _find_address_fault(url: str, words: Sequence[str], *, sha256: str) -> str:
    """What is wrong with the address of a conda package, "" for nothing; `words` end with its subdir and file."""
    if not URL.fullmatch(url) or not all(PART.fullmatch(part) for part in words) or not HEX.fullmatch(sha256):
        return "a package of the lock has no plain address, or no sha256"
    subdir, name = words[-2:]
    whole = not url.lower().startswith("file:") or url[:8] == "file:///"
    if is_misleading(url) or "%" in subdir or not PART.fullmatch(unquote(name)) or not whole:
        return "an address of the lock holds what is another path or line when read"
    if "?" in url or find_address_secret(url):
        return "an address of the lock has credentials in it"
    return ""


def _read_conda_package(item: Value, *, file: Path, key: str) -> CondaPackage:
    entry = item if isinstance(item, Table) else Table(entries=(), line=item.line)

    def word(name: str) -> str:
        value = entry.get(name)
        return value.raw if isinstance(value, Text) and value.kind != "null" else ""

    place = word("conda")
    url = f"file://{quote(place)}" if place.startswith("/") else place
    stem = re.sub(r"\.(conda|tar\.bz2)$", "", url.rpartition("/")[2])
    name, version, build = ("", "", *stem.rsplit("-", 2))[-3:]
    words = [word("name") or name, word("version") or version, word("build") or build]
    words += [word("subdir") or url.rpartition("/")[0].rpartition("/")[2], url.rpartition("/")[2]]
    if fault := _find_address_fault(url, words, sha256=word("sha256")):
        raise ConfigError(_make_fault(file, fault, key=key))
    depends = entry.get("depends")
    return CondaPackage(
        name=words[0],
        version=words[1],
        build=words[2],
        subdir=words[3],
        url=url,
        sha256=word("sha256"),
        md5=word("md5") if MD5.fullmatch(word("md5")) else "",
        size=int(word("size")) if BYTES.fullmatch(word("size")) else 0,
        depends=tuple(one.raw for one in depends.items if isinstance(one, Text))
        if isinstance(depends, Listing)
        else (),
        license=word("license"),
    )
