"""Facts about a base image, read from its files without running it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..sif.bounded import parse_json
from ..sif.errors import LayeringError
from ..sif.reader import Reader, drop_surrogates
from ..sif.sif import INSPECT, Sif, SifError, read_sif
from ..sif.squashfs import FILE, FOLDER, LINK, SquashfsError
from .cache import Store

LONGEST = 64 * 1024  # characters of a PATH
FORMAT = 4  # version of the facts; another number reads all of them again
FIX = "build with --backend apptainer"
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GLIBC = re.compile(rb"GNU C Library [^\n]*? version (\d+\.\d+)")
PYTHON = re.compile(r"python(3\.\d+)")
Listing = tuple[dict[str, int], dict[str, str], set[str]]
LABELS, RUNSCRIPT = "/.singularity.d/labels.json", "/.singularity.d/runscript"
ENVIRONMENT = "/.singularity.d/env"
LIMIT = 32 << 20  # bytes of one file; a C library has 2 MB


@dataclass(frozen=True, kw_only=True)
class BaseFacts:
    """A base image as a build sees it: folders with modes, links with targets, its Python, its glibc."""

    sha256: str
    machine: str
    folders: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    runscript: bool = False
    inspect: str = ""  # the object that `inspect` reads, where the image has one
    python: str = ""  # path of the program
    minor: str = ""  # X.Y
    glibc: str = ""

    def apply_layer(self, folders: Mapping[str, int], links: Mapping[str, str], files: set[str]) -> BaseFacts:
        """Return the facts with a layer over the image."""
        hidden = {*folders, *files}
        kept = {path: target for path, target in self.links.items() if path not in hidden}
        return replace(self, folders={**self.folders, **folders}, links={**kept, **links})

    def resolve_path(self, path: str) -> str:
        """Follow the links of the image in a path: a layer with a folder in place of a link would hide its target."""
        todo, done = [part for part in path.split("/") if part], ""
        for _ in range(100):
            if not todo:
                break
            part = todo.pop(0)
            if part == "..":
                done = posixpath.dirname(done) if done != "/" else ""
                continue
            step = f"{done}/{part}"
            target = self.links.get(step)
            if target is None:
                done = step
                continue
            todo = [word for word in target.split("/") if word and word != "."] + todo
            done = "" if target.startswith("/") else done
        return done or "/"


def read_base_facts(image: Path, *, store: Store) -> BaseFacts:
    """Return the facts of a base image, cached by its sha256; raises LayeringError."""
    try:
        sif = read_sif(image)
        system = sif.system
    except (SifError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LayeringError(f"layers cannot be put on '{image}': {str(reason).lower()}", fix=FIX) from None
    if sif.overlays:
        raise LayeringError(f"'{image}' holds overlays of its own", fix=FIX)
    if store.recall_digest(image) is None:
        with ThreadPoolExecutor(1) as pool:  # a new one is listed while its digest is computed
            later = pool.submit(store.find_digest, image)
            listing = list_squashfs(image, offset=system.offset)
            digest = later.result()
    else:
        digest, listing = store.find_digest(image), None
    known = store.recall("facts", digest)
    if isinstance(known, dict) and known.pop("format", None) == FORMAT:
        return BaseFacts(**known)
    listing = listing or list_squashfs(image, offset=system.offset)
    facts = _read(image, listing, digest=digest, machine=sif.machine, offset=system.offset)
    facts = replace(facts, inspect=_inspect(image, sif))
    if facts.glibc or not _find_libc(facts, listing[2]):  # a glibc without a version may be incomplete
        store.remember("facts", digest, {"format": FORMAT, **asdict(facts)})
    return facts


def read_base_programs(image: Path) -> BaseFacts:
    """Return the machine, the Python and the glibc of a base image alone, in milliseconds; raises LayeringError.

    Only the folders on their paths are read; `read_base_facts` lists the image and computes its digest.
    """
    try:
        sif = read_sif(image)
        with image.open("rb") as source:
            reader = Reader(source, offset=sif.system.offset)
            bare = BaseFacts(sha256="", machine=sif.machine, links=_Links(reader))
            names = sorted(f"{ENVIRONMENT}/{name}" for name in reader.list_names(ENVIRONMENT))
            files = _Files(reader)
            libc = _find_libc(bare, files)
            contents = _read_contents(image, [*names, *([libc] if libc else [])], offset=sif.system.offset)
            path = _find_path([contents[name].decode(errors="replace") for name in names if name in contents])
            python, minor = _find_python(bare, files, path)
    except (SifError, SquashfsError, OSError) as error:
        raise _make_error(image, error) from None
    glibc = GLIBC.search(contents.get(libc, b""))
    return BaseFacts(
        sha256="", machine=sif.machine, python=python, minor=minor, glibc=glibc[1].decode() if glibc else ""
    )


class _Links(Mapping[str, str]):
    """The links of an image, found when a path needs one."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __getitem__(self, path: str) -> str:
        found = self.reader.find(path)
        if found is None or found.kind != LINK:
            raise KeyError(path)
        return found.target

    def __iter__(self) -> Iterator[str]:
        return (file.path for file in self.reader.list_files() if file.kind == LINK)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Files(Container[str]):
    """The files of an image, found one by one."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __contains__(self, path: object) -> bool:
        found = self.reader.find(str(path))
        return found is not None and found.kind not in (FOLDER, LINK)


def _inspect(image: Path, sif: Sif) -> str:
    for item in sif.objects:
        if item.label == INSPECT:
            with image.open("rb") as file:
                file.seek(item.offset)
                return file.read(min(item.size, 1 << 24)).decode(errors="replace")
    return ""


def _read(image: Path, listing: Listing, *, digest: str, machine: str, offset: int) -> BaseFacts:
    folders, links, files = listing
    bare = BaseFacts(sha256=digest, machine=machine, folders=folders, links=links)
    libc = _find_libc(bare, files)
    scripts = sorted(path for path in files if path.startswith(f"{ENVIRONMENT}/"))
    contents = _read_contents(image, [LABELS, RUNSCRIPT, *scripts, *([libc] if libc else [])], offset=offset)
    glibc = GLIBC.search(contents.get(libc, b""))
    script = contents.get(RUNSCRIPT, b"").decode(errors="replace")
    path = _find_path([contents[name].decode(errors="replace") for name in scripts if name in contents])
    python, minor = _find_python(bare, files, path)
    return BaseFacts(
        sha256=digest,
        machine=machine,
        folders=folders,
        links=links,
        labels=_parse_labels(contents.get(LABELS, b"")),
        runscript=bool(script) and "no runscript defined" not in script,
        python=python,
        minor=minor,
        glibc=glibc[1].decode() if glibc else "",
    )


def list_squashfs(image: Path, *, offset: int) -> Listing:
    """List a squashfs: folders with modes, links with targets, and files; raises LayeringError."""
    folders: dict[str, int] = {}
    links: dict[str, str] = {}
    files: set[str] = set()
    try:
        with image.open("rb") as source:
            for found in Reader(source, offset=offset).list_files():
                path = found.path if found.path.isascii() else drop_surrogates(found.path)
                if found.kind == FOLDER:
                    folders[path] = found.mode
                elif found.kind == LINK:
                    links[path] = drop_surrogates(found.target)
                else:
                    files.add(path)
    except (SquashfsError, OSError) as error:
        raise _make_error(image, error) from None
    return folders, links, files


def _make_error(image: Path, error: SifError | SquashfsError | OSError) -> LayeringError:
    reason = getattr(error, "strerror", None) or str(error)
    return LayeringError(f"the file system in '{image}' cannot be read: {reason}", fix=FIX)


def _read_contents(image: Path, paths: Sequence[str], *, offset: int) -> dict[str, bytes]:
    """The contents of those that are files and not too large; raises LayeringError."""
    try:
        with image.open("rb") as source:
            reader = Reader(source, offset=offset)
            found = [file for path in paths if (file := reader.find(path)) is not None]
            return {
                file.path: reader.read(file, limit=LIMIT) for file in found if file.kind == FILE and file.size <= LIMIT
            }
    except (SquashfsError, OSError) as error:
        raise _make_error(image, error) from None


def _find_libc(bare: BaseFacts, files: Container[str]) -> str:
    for folder in ("/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/lib"):
        path = bare.resolve_path(f"{folder}/libc.so.6")
        if path in files:
            return path
    return ""


def _parse_labels(content: bytes) -> dict[str, str]:
    try:
        found = parse_json(content)
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _find_path(scripts: Sequence[str]) -> str:
    """PATH as the image sets it: the last plain value among its scripts, with what those scripts put before."""
    found = ""
    for text in scripts:
        for match in re.finditer(r"^\s*export PATH=[\"']?([^\"'\n]*)", text, re.MULTILINE):
            value = match[1].removeprefix("${PATH:-")
            if value.count("$") * len(found) > LONGEST:  # each line may double the length
                continue
            found = value.replace("${PATH}", found).replace("$PATH", found)
    return f"{found}:{USUAL_PATH}"


def _find_python(bare: BaseFacts, files: Container[str], path: str) -> tuple[str, str]:
    """The program that `python3` is in the image, and its X.Y from the file's name."""
    for folder in path.split(":"):
        if not folder.startswith("/"):
            continue
        program = bare.resolve_path(f"{folder}/python3")
        if program in files:
            found = PYTHON.fullmatch(posixpath.basename(program))
            return (program if found else f"{folder}/python3"), (found[1] if found else "")
    return "", ""
