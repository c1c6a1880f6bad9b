"""Reads the databases of package managers, given as bytes. Nothing here trusts them.

The package database of rpm, where it is one of SQLite (Fedora 33, RHEL 9 and newer).
"""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from builder.model.contents import InstalledPackage, TorchBuild
from builder.model.text import to_text
from builder.sif.bounded import parse_json
from builder.system.scratch import make_work_folder

SITE = r"(?P<site>(?:[^/\n]+/)*(?:site|dist)-packages)"
CONDA = re.compile(r"(?P<prefix>(?:[^/\n]+/)*)conda-meta/(?P<stem>[^/\n]+)\.json")
PIP = re.compile(rf"{SITE}/(?P<stem>[^/\n]+)\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info)")
TORCH = re.compile(rf"{SITE}/torch/version\.py")
DPKG = re.compile(r"var/lib/dpkg/status(?:\.d/[^/\n.]+)?")
RPM = re.compile(r"(?:var/lib|usr/lib/sysimage|usr/share)/rpm/(?:rpmdb\.sqlite|Packages|Packages\.db)")
APK = "lib/apk/db/installed"
LABELS, RECORD = ".singularity.d/labels.json", "opt/recipe/recipe.json"
RELEASES = ("etc/os-release", "usr/lib/os-release")
# One search decides of hundreds of thousands of paths.
WANTED = re.compile(
    "|".join(
        f"(?:{re.sub('[?]P<[a-z]+>', '?:', form)})"
        for form in (CONDA.pattern, PIP.pattern, TORCH.pattern, DPKG.pattern, RPM.pattern)
    )
    + "|"
    + "|".join(re.escape(path) for path in (APK, LABELS, RECORD, *RELEASES))
)
LABELS_MOST = 200  # labels, and lines of os-release
WORD = 200  # characters of a name or version
HEADERS = 64 * 1024  # bytes of METADATA in which its fields are looked for
ASSIGNED = re.compile(
    r"^(__version__|cuda|hip|xpu)\s*(?::[^=\n]{0,80})?=\s*(?:'([^'\n]{0,200})'|\"([^\"\n]{0,200})\")", re.MULTILINE
)
LINE = re.compile(rb"[^\n]+|(?<=\n)(?=\n)")
FIELDS, LONG = 200, 10_000  # fields of a paragraph, characters of one
FIELD = re.compile(r"([A-Za-z][A-Za-z-]*):[ \t]*(.*)")


def to_word(value: object) -> str:
    """Return a name or a version as one printable word, credentials left out."""
    return to_text(value, limit=WORD).strip()


def parse_conda_package(path: str, content: bytes | bytearray | None) -> InstalledPackage | None:
    """One package of conda's records; its file's name says most of it where the content cannot be read."""
    match = CONDA.fullmatch(path)
    if match is None or match["stem"] == "history":
        return None
    name, version, build = ("", "", *match["stem"].rsplit("-", 2))[-3:]
    entry = parse_object(content) if content else {}
    sha256 = to_word(entry.get("sha256"))
    return InstalledPackage(
        kind="conda",
        name=to_word(entry.get("name") or name),
        version=to_word(entry.get("version") or version),
        build=to_word(entry.get("build") or build),
        channel=_parse_channel(to_word(entry.get("channel"))),
        subdir=to_word(entry.get("subdir")),
        license=to_word(entry.get("license")),
        sha256=sha256 if re.fullmatch(r"[0-9a-f]{64}", sha256) else "",
        place=to_word(f"/{match['prefix'].rstrip('/')}"),
    )


def _parse_channel(channel: str) -> str:
    """https://conda.anaconda.org/conda-forge/linux-64 is conda-forge."""
    if "://" not in channel:
        return channel
    parts = [part for part in urlsplit(channel).path.split("/") if part]
    if parts and (parts[-1] == "noarch" or re.fullmatch(r"(?:linux|osx|win)-\w+", parts[-1])):
        parts.pop()
    return parts[-1] if parts else ""


def parse_pip_package(path: str, content: bytes | bytearray | None) -> InstalledPackage | None:
    """One distribution of a site-packages folder; its folder's name says most of it where METADATA cannot be read."""
    match = PIP.fullmatch(path)
    if match is None:
        return None
    fields = next(parse_paragraphs((content or b"")[:HEADERS]), {})
    name, _, version = match["stem"].partition("-")
    return InstalledPackage(
        kind="pip",
        name=to_word(fields.get("name") or name),
        version=to_word(fields.get("version") or re.sub(r"-py\d[\d.]*$", "", version)),
        license=to_word(fields.get("license-expression") or ""),
        place=to_word(f"/{match['site']}"),
    )


def parse_deb_packages(content: bytes | bytearray) -> Iterator[InstalledPackage]:
    """Return what dpkg's status file lists as installed."""
    for fields in parse_paragraphs(content):
        if fields.get("status", "install ok installed").endswith(" installed") and fields.get("package"):
            name, version = to_word(fields["package"]), to_word(fields.get("version", ""))
            yield InstalledPackage(kind="deb", name=name, version=version, arch=to_word(fields.get("architecture", "")))


def parse_torch_build(path: str, content: bytes | bytearray) -> TorchBuild | None:
    """What torch/version.py says, read and not run."""
    match = TORCH.fullmatch(path)
    if match is None:
        return None
    source = content[:HEADERS].decode("utf-8", errors="replace")
    found = {name: to_word(one or other) for name, one, other in ASSIGNED.findall(source)}
    return TorchBuild(
        version=found.get("__version__", ""),
        cuda=found.get("cuda", ""),
        hip=found.get("hip", ""),
        xpu=found.get("xpu", ""),
        place=to_word(f"/{match['site']}"),
    )


def parse_paragraphs(content: bytes | bytearray) -> Iterator[Mapping[str, str]]:
    """Fields of the paragraphs of a file in Debian's control format, or of an e-mail's header; the first of each."""
    fields: dict[str, str] = {}
    for row in LINE.finditer(content):  # a list of all lines takes thirty times as much as the file
        line = row[0].decode("utf-8", errors="replace").rstrip("\r")
        if not line.strip():
            if fields:
                yield fields
            fields = {}
        elif len(fields) < FIELDS and (match := FIELD.match(line)):
            fields.setdefault(match[1].lower(), match[2].strip()[:LONG])
    if fields:
        yield fields


def release(content: bytes | bytearray) -> Mapping[str, str]:
    """Fields of os-release."""
    lines = bytes(content[:HEADERS]).decode("utf-8", errors="replace").splitlines()[:LABELS_MOST]
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: to_word(value.strip("\"' ")) for name, _, value in pairs}


def parse_labels(value: Any) -> dict[str, str]:
    """Return labels as printable words; invalid ones are left out."""
    entries = value.items() if isinstance(value, dict) else ()
    found = {to_word(name): to_text(label) for name, label in entries if isinstance(label, (str, int, float))}
    return dict(sorted(found.items())[:LABELS_MOST])


def remove_duplicates(packages: Iterable[InstalledPackage]) -> tuple[InstalledPackage, ...]:
    """Leave out pip's view of what conda has installed, and every second listing; sorted."""
    unique = set(packages)
    conda = {(canonicalize_name(item.name), item.version) for item in unique if item.kind == "conda"}
    prefixes = tuple(f"{item.place.rstrip('/')}/" for item in unique if item.kind == "conda")
    kept = [
        item
        for item in unique
        if item.kind != "pip"
        or (canonicalize_name(item.name), item.version) not in conda
        or not item.place.startswith(prefixes)
    ]
    return tuple(
        sorted(kept, key=lambda item: (item.kind, canonicalize_name(item.name), item.version, item.place, item.build))
    )


def parse_object(content: bytes | bytearray) -> dict[str, Any]:
    """Return the object of a JSON text, {} for anything else."""
    try:
        tree = parse_json(bytes(content))
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


# https://rpm-software-management.github.io/rpm/manual/tags.html
NAME, VERSION, RELEASE, EPOCH, LICENSE, ARCH = 1000, 1001, 1002, 1003, 1014, 1022
STEPS = 50_000_000  # of SQLite's machine; 2000 packages take 10 000
MOST = 20_000  # packages


def read_rpm_packages(database: bytes | bytearray) -> tuple[InstalledPackage, ...] | None:
    """Return the packages of a database, None where it cannot be read."""
    with make_work_folder("recipe-") as folder:
        path = folder / "rpmdb.sqlite"
        path.write_bytes(database)
        try:
            connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error:
            return None
        try:
            # A faulty file may ask for endless work.
            steps = iter(range(STEPS // 100_000))
            connection.set_progress_handler(lambda: next(steps, -1) < 0, 100_000)
            rows = connection.execute("SELECT blob FROM Packages LIMIT ?", (MOST,))
            return tuple(found for (blob,) in rows if isinstance(blob, bytes) and (found := _parse_rpm_header(blob)))
        except sqlite3.Error:
            return None
        finally:
            connection.close()


def _parse_rpm_header(blob: bytes) -> InstalledPackage | None:
    fields = dict(_parse_rpm_fields(blob))
    name, version, epoch = fields.get(NAME, ""), fields.get(VERSION, ""), fields.get(EPOCH, "")
    if not name or name == "gpg-pubkey":
        return None
    full = f"{epoch}:" if epoch else ""
    full += f"{version}-{fields.get(RELEASE, '')}".rstrip("-")
    arch, words = to_word(fields.get(ARCH, "")), to_word(fields.get(LICENSE, ""))
    return InstalledPackage(kind="rpm", name=to_word(name), version=to_word(full), arch=arch, license=words)


def _parse_rpm_fields(blob: bytes) -> Iterator[tuple[int, str]]:
    """Texts and numbers of a header: an index of 16 bytes an entry, then the data."""
    if len(blob) < 8:
        return
    count, size = struct.unpack_from(">II", blob)
    start = 8 + 16 * count
    if count > 10_000 or start + size > len(blob):
        return
    for at in range(8, start, 16):
        tag, kind, offset, _ = struct.unpack_from(">IIiI", blob, at)
        if not 0 <= offset < size:
            continue
        if kind in (6, 9):  # a string; a string in several languages, of which the first is plain
            end = blob.find(b"\0", start + offset, start + offset + 1000)
            yield tag, blob[start + offset : end if end >= 0 else start + offset].decode("utf-8", errors="replace")
        elif kind == 4 and offset + 4 <= size:
            yield tag, str(struct.unpack_from(">I", blob, start + offset)[0])
