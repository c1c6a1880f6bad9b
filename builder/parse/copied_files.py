"""Which of a recipe's own files go into an image: not those with keys, nor those that it excludes.

`.recipeignore` next to the recipe has one pattern a line, as .gitignore: `*.log`, `data/`, `/notes.txt`, `!a.log`.
A `!` line also includes what is excluded by default; lines longer than any name are ignored.
https://git-scm.com/docs/gitignore#_pattern_format
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from builder.model.finding import Finding, Location
from builder.model.recipe import PipRequirement
from builder.model.text import make_config_error, sanitize

IGNORE = ".recipeignore"
LARGEST = 64 * 1024  # bytes of that file
LONGEST = 1000  # characters of a pattern: a name has 255
MANY = 100_000  # files and folders that are checked for a warning
# Where programs keep keys, passwords and tokens; of a `.git` the addresses of its remotes.
SECRET = (
    ".netrc", "_netrc", ".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".git", ".git-credentials",
    ".ssh", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", ".aws", ".azure", ".gcloud",
    ".kube", ".gnupg", ".docker/config.json", ".apptainer/docker-config.json", ".singularity/docker-config.json",
    ".apptainer/remote.yaml", ".pypirc", ".npmrc", ".pgpass", ".my.cnf", ".htpasswd", ".vault-token", ".s3cfg", ".boto",
    ".kaggle", "kaggle.json", ".huggingface/token", "huggingface/token", "*.ppk", "*.p12", "*.pfx", "*.kdbx",
)  # fmt: skip
# What tools write into the folder of a package: no part of what is installed, and new after each of their runs.
CACHES = (
    "__pycache__/", ".venv/", "/build/", "*.egg-info/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".tox/",
    ".nox/",
)  # fmt: skip
MACHINE = ("/dev", "/proc", "/sys")
KEYS = (".pem", ".key")  # certificates and much else are called so too: the file itself tells
PRIVATE = b"PRIVATE KEY-----"


class IgnoreRules:
    """What is excluded from the folders of a recipe; `folder` is the recipe's, `package` whether one is installed."""

    def __init__(self, folder: Path, *, package: bool = False) -> None:
        text, self.package = "", package
        path = folder / IGNORE
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                text = file.read(LARGEST)
        lines = [line.rstrip() for line in text.splitlines()]
        self.own = tuple(line for line in lines if 0 < len(line) <= LONGEST and not line.startswith("#"))

    def find_reason(self, path: Path, *, top: Path) -> str:
        """Return why a file or folder below `top` is excluded: `secret`, `cache`, `asked`, or "" if it is not."""
        name = path.relative_to(top).as_posix() if path != top else path.name
        is_folder = path.is_dir() and not path.is_symlink()
        found = "secret" if _matches(SECRET, name, is_folder) or _is_key(path) else ""
        if self.package and not found and is_folder and _matches(CACHES, name, is_folder):
            found = "" if (path / "__init__.py").exists() else "cache"  # a module may be called `build`
        for pattern in self.own:
            if _matches_pattern(pattern.removeprefix("!"), name, is_folder):
                found = "" if pattern.startswith("!") else "asked"
        return found


def _matches(patterns: tuple[str, ...], name: str, is_folder: bool) -> bool:
    found = False
    for pattern in patterns:
        if _matches_pattern(pattern.removeprefix("!"), name, is_folder):
            found = not pattern.startswith("!")
    return found


def _matches_pattern(pattern: str, name: str, is_folder: bool) -> bool:
    if pattern.endswith("/"):
        return is_folder and _matches_pattern(pattern.rstrip("/"), name, is_folder)
    # One with a slash at its beginning is relative to the copied folder.
    words, parts = pattern.strip("/").split("/"), name.split("/")
    if "**" not in words:
        fits = len(parts) == len(words) if pattern.startswith("/") else len(parts) >= len(words)
        return fits and all(map(fnmatchcase, parts[-len(words) :], words))
    # How many parts of the name the words may match so far: no two ways to the same number are tried.
    taken = {0} if pattern.startswith("/") else set(range(len(parts)))
    for word in words:
        if word == "**":
            taken = set(range(min(taken), len(parts) + (word is not words[-1])))
        else:
            taken = {at + 1 for at in taken if at < len(parts) and fnmatchcase(parts[at], word)}
        if not taken:
            return False
    return words[-1] == "**" or len(parts) in taken


def _is_key(path: Path) -> bool:
    """Whether a file is a private key, by its content."""
    if not path.name.endswith(KEYS) or path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return PRIVATE in file.read(4096)
    except OSError:
        return False


def is_kernel_path(path: Path) -> bool:
    """Whether a path leads to kernel files of this machine: `/proc/self/environ` has the user's passwords."""
    return any(path.resolve().is_relative_to(top) for top in MACHINE)


def find_source_fault(source: str, *, folder: Path) -> str:
    """Return what is wrong with copying a file or folder that a recipe names, "" for nothing."""
    left, home = IgnoreRules(folder), folder.resolve()
    for path in (home / source, (home / source).resolve()):
        own = [part for part in (path, *path.parents) if part.name and part != home and part not in home.parents]
        top = home if path.is_relative_to(home) else Path("/")
        if any(left.find_reason(part, top=top) == "secret" for part in own):
            return "is where keys or passwords are kept"
    return ""


def check_own_folders(lines: Iterable[PipRequirement], *, folder: Path, file: str) -> Iterator[Finding]:
    """Refuse folders of keys and of the kernel as packages, and warn of what is left out of the others."""
    for line in lines:
        if line.url and "://" not in line.url:
            at = Location(file=line.file or file, line=line.line)
            fault = find_source_fault(line.url, folder=folder)
            if fault or is_kernel_path(folder / line.url):
                message = f"'{sanitize(line.url)}' {fault or 'is a part of this machine and its processes'}"
                yield from make_config_error("file-source", message, at=at, fix="name another folder").findings
                continue
            if _is_damaged(folder / line.url):
                message = f"the wheel '{sanitize(line.url)}' is damaged: it does not end as a zip file does"
                fix = "copy or download it again"
                yield from make_config_error("file-source", message, at=at, fix=fix).findings
                continue
            found = check_copied_files({line.url: ""}, folder=folder, file=file, package=True)
            yield from (replace(one, at=at) for one in found)


def _is_damaged(path: Path) -> bool:
    """Whether a wheel has no list of its files, which is at its end."""
    if path.suffix != ".whl" or not path.is_file():
        return False
    from zipfile import is_zipfile

    try:
        with path.open("rb") as file:
            return not is_zipfile(file)
    except OSError:
        return False  # another finding


def check_copied_files(
    files: Mapping[str, str], *, folder: Path, file: str, package: bool = False
) -> Iterator[Finding]:
    """Warn of files outside the recipe's folder, and of files that are excluded from copied folders."""
    left, home = IgnoreRules(folder, package=package), folder.resolve()
    for source in files:
        at = Location(file=file, key=f"container.files.{sanitize(source)}")
        path = (folder / source).resolve()
        if not path.is_relative_to(home):
            message = f"'{sanitize(source)}' is outside the recipe's folder"
            fix = "check what it is: every user of the image can read it; or copy it to the recipe's folder"
            yield Finding(code="file-outside", message=message, at=at, fix=fix, level="warning")
        names = sorted(_list_left_out(path, left=left)) if path.is_dir() else []
        if names:
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            message = f"left out of '{sanitize(source)}', since keys and passwords are kept there: "
            message += f"{', '.join(map(sanitize, names[:4]))}{more}"
            fix = f"no action needed; to include it, write '!{sanitize(names[0])}' into {IGNORE} next to the recipe"
            yield Finding(code="file-secret", message=message, at=at, fix=fix, level="warning")


def _list_left_out(top: Path, *, left: IgnoreRules) -> Iterator[str]:
    folders, seen = [top], 0
    while folders and seen < MANY:
        try:
            inside = sorted(folders.pop().iterdir())
        except OSError:
            continue  # reported when it is copied
        seen += len(inside)
        for path in inside:
            why = left.find_reason(path, top=top)
            if why == "secret":
                yield path.relative_to(top).as_posix()
            elif not why and path.is_dir() and not path.is_symlink():
                folders.append(path)
