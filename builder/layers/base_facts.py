"""Facts about a base image, read from its files without running it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..sif.bounded import parse_json
from ..sif.errors import LayeringError
from ..sif.listing import row_of
from ..sif.programs import call, needed_program
from ..sif.sif import INSPECT, Sif, SifError, read_sif
from ..sif.tree import read, walk
from .cache import Store

LONGEST = 64 * 1024  # characters of a PATH
FORMAT = 4  # version of the facts; another number reads all of them again
FIX = "build with --backend apptainer"
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GLIBC = re.compile(rb"GNU C Library [^\n]*? version (\d+\.\d+)")
PYTHON = re.compile(r"python(3\.\d+)")
Listing = tuple[dict[str, int], dict[str, str], set[str]]
ENVIRONMENT = ".singularity.d/env"
LIMIT = 32 << 20  # bytes of one file; a C library has 2 MB
METADATA = ("*.dist-info/METADATA", "*.egg-info/PKG-INFO")


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

    def with_layer(self, folders: Mapping[str, int], links: Mapping[str, str], files: set[str]) -> BaseFacts:
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
    if store.known_digest(image) is None:
        with ThreadPoolExecutor(1) as pool:  # a new one is listed while its digest is computed
            later = pool.submit(store.digest, image)
            listing = list_squashfs(image, offset=system.offset)
            digest = later.result()
    else:
        digest, listing = store.digest(image), None
    known = store.recall("facts", digest)
    if isinstance(known, dict) and known.pop("format", None) == FORMAT:
        return BaseFacts(**known)
    listing = listing or list_squashfs(image, offset=system.offset)
    facts = _read(image, listing, digest=digest, machine=sif.machine, offset=system.offset, store=store)
    facts = replace(facts, inspect=_inspect(image, sif))
    if facts.glibc or not _libc(facts, listing[2]):  # a glibc without a version may be incomplete
        store.remember("facts", digest, {"format": FORMAT, **asdict(facts)})
    return facts


def _inspect(image: Path, sif: Sif) -> str:
    for item in sif.objects:
        if item.label == INSPECT:
            with image.open("rb") as file:
                file.seek(item.offset)
                return file.read(min(item.size, 1 << 24)).decode(errors="replace")
    return ""


def _read(image: Path, listing: Listing, *, digest: str, machine: str, offset: int, store: Store) -> BaseFacts:
    program = needed_program("unsquashfs", fix="install squashfs-tools")
    folders, links, files = listing
    bare = BaseFacts(sha256=digest, machine=machine, folders=folders, links=links)
    libc = _libc(bare, files)
    wanted = ["/.singularity.d/labels.json", "/.singularity.d/runscript"]
    wanted += [path for path in files if path.startswith("/.singularity.d/env/")] + ([libc] if libc else [])
    with store.work_folder() as work:
        tree = work / "tree"
        words: list[str | Path] = [program, "-n", "-no-xattrs", "-d", tree, "-o", str(offset), image]
        call([*words, *[path.lstrip("/") for path in wanted if path in files]], what=f"reading '{image}'")
        labels = _labels(tree)
        script = _text(tree, ".singularity.d/runscript")
        glibc = GLIBC.search(_bytes(tree, libc)) if libc else None
        path = _path(tree)
    python, minor = _python(bare, files, path)
    return BaseFacts(
        sha256=digest,
        machine=machine,
        folders=folders,
        links=links,
        labels=labels,
        runscript=bool(script) and "no runscript defined" not in script,
        python=python,
        minor=minor,
        glibc=glibc[1].decode() if glibc else "",
    )


def list_squashfs(image: Path, *, offset: int) -> Listing:
    """List a squashfs: folders with modes, links with targets, and files; raises LayeringError."""
    program = needed_program("unsquashfs", fix="install squashfs-tools")
    folders: dict[str, int] = {}
    links: dict[str, str] = {}
    files: set[str] = set()
    for line in call([program, "-lln", "-o", str(offset), image], what=f"reading '{image}'").splitlines():
        row = row_of(line)
        if row is None:
            continue
        if row.kind == "d":
            folders[row.path] = row.permissions
        elif row.kind == "l":
            links[row.path] = row.target
        else:
            files.add(row.path)
    return folders, links, files


def _libc(bare: BaseFacts, files: set[str]) -> str:
    for folder in ("/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/lib"):
        path = bare.resolve_path(f"{folder}/libc.so.6")
        if path in files:
            return path
    return ""


def _labels(tree: Path) -> dict[str, str]:
    try:
        found = parse_json(_bytes(tree, ".singularity.d/labels.json"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _bytes(tree: Path, path: str) -> bytes:
    """Read a file of the image, b"" if it is missing; the links in what was unpacked are not followed."""
    try:
        return read(tree, path, limit=LIMIT)
    except OSError:
        return b""


def _text(tree: Path, path: str) -> str:
    return _bytes(tree, path).decode(errors="replace")


def _path(tree: Path) -> str:
    """PATH of the image: the last plain value in its scripts, with what they put before it."""
    found = ""
    for name in sorted(entry.path for entry in walk(tree, ENVIRONMENT)):
        text = _text(tree, f"{ENVIRONMENT}/{name}")
        for match in re.finditer(r"^\s*export PATH=[\"']?([^\"'\n]*)", text, re.MULTILINE):
            value = match[1].removeprefix("${PATH:-")
            if value.count("$") * len(found) > LONGEST:  # each line may double the length
                continue
            found = value.replace("${PATH}", found).replace("$PATH", found)
    return f"{found}:{USUAL_PATH}"


def _python(bare: BaseFacts, files: set[str], path: str) -> tuple[str, str]:
    """The program that `python3` is in the image, and its X.Y from the file's name."""
    for folder in path.split(":"):
        if not folder.startswith("/"):
            continue
        program = bare.resolve_path(f"{folder}/python3")
        if program in files:
            found = PYTHON.fullmatch(posixpath.basename(program))
            return (program if found else f"{folder}/python3"), (found[1] if found else "")
    return "", ""
