"""Lines of pip requirements, in a list or in files that name each other, to requirements and options.

Source: pip's documentation "Requirements File Format" (read 2026-11) and PEP 508, which `packaging` reads for us.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from builder.model.finding import ConfigError, Finding, Location, find_typo, make_edit, suggest_name
from builder.model.recipe import PipOptions, PipRequirement
from builder.model.text import CONTROL, check_url, exists, make_config_error, refuse_secrets, sanitize
from builder.parse.requirement import (
    NAME,
    check_exists,
    check_path,
    parse_location,
    parse_requirement,
    redact_line,
    refuse_python,
)
from builder.parse.yaml import read_text

FLAGS = ("no-index", "pre", "prefer-binary", "require-hashes")
VALUED = (
    "constraint", "editable", "extra-index-url", "find-links", "index-url", "no-binary", "only-binary", "requirement",
    "trusted-host",
)  # fmt: skip
SHORT = {"-c": "constraint", "-e": "editable", "-f": "find-links", "-i": "index-url", "-r": "requirement"}
# Options that pip takes on its command line and refuses in a file.
COMMAND_LINE = (
    "-U", "-q", "-v", "-t", "-y", "abi", "break-system-packages", "cache-dir", "cert", "check-build-dependencies",
    "client-cert", "compile", "debug", "disable-pip-version-check", "dry-run", "exists-action", "force-reinstall",
    "ignore-installed", "ignore-requires-python", "implementation", "isolated", "log", "no-build-isolation",
    "no-cache-dir", "no-clean", "no-color", "no-compile", "no-deps", "no-input", "no-user", "no-warn-conflicts",
    "no-warn-script-location", "platform", "prefix", "progress-bar", "proxy", "python", "python-version", "quiet",
    "report", "retries", "root", "root-user-action", "src", "target", "timeout", "upgrade", "upgrade-strategy",
    "use-deprecated", "use-pep517", "user", "verbose",
)  # fmt: skip
SWITCHED_ON = ("", "1", "on", "true", "yes")
PER_REQUIREMENT = ("config-settings", "global-option", "hash", "install-option")

HASH = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?")
COMMENT = re.compile(r"(?:^|\s)#.*$")
LINE_LIMIT = 50_000  # characters; a line with all the hashes of numpy has 5,000
COUNT_LIMIT = 20_000  # lines, of all files together
DEPTH_LIMIT = 10  # files that name files
Inside = tuple[Path, ...]  # the files that are being read, outermost first


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a requirements file under its long name, without dashes; a flag has no value."""

    name: str
    value: str = ""


def join_logical_lines(text: str, *, first: int = 1) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every line with content: continued lines joined, comments removed, as pip does."""
    held: list[str] = []
    start = first
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=first):
        start = start if held else number
        comment = COMMENT.match(raw) is not None
        if raw.endswith("\\") and not comment:
            held.append(raw[:-1])
            continue
        held.append(raw)
        line = COMMENT.sub("", " ".join(held) if comment else "".join(held)).strip()
        held = []
        if line:
            yield start, line
    if held and (line := COMMENT.sub("", "".join(held)).strip()):
        yield start, line


def parse_line(text: str, *, at: Location) -> PipRequirement | tuple[Option, ...]:
    """Read one logical line; raises ConfigError."""
    refuse_secrets(text, at=at)  # before anything of it is shown
    if len(text) > LINE_LIMIT:
        message = f"'{sanitize(text)}' is longer than {LINE_LIMIT} characters"
        raise make_config_error("pip-long", message, at=at, fix="write one package a line")
    if CONTROL.search(text.replace("\t", " ")):
        fix = "remove it"
        raise make_config_error("pip-character", f"'{sanitize(text)}' holds a control character", at=at, fix=fix)
    if "\\" in text:
        message = f"'{sanitize(text)}' holds a backslash"
        raise make_config_error("pip-character", message, at=at, fix="write paths with '/'; '\\' may only end a line")
    if text.startswith("-"):
        return _parse_options(text, at=at)
    body, _, rest = _cut_options(text)
    return parse_requirement(body, hashes=_parse_hashes(rest, at=at), at=at)


def _cut_options(text: str) -> tuple[str, str, str]:
    match = re.search(r"\s(?=--?[A-Za-z])", text)
    return (text[: match.start()].rstrip(), " ", text[match.end() :]) if match else (text, "", "")


def _split_words(text: str, *, at: Location) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        fix = "close it"
        raise make_config_error("pip-quote", f"a quote in '{sanitize(text)}' is never closed", at=at, fix=fix) from None


def _parse_options(text: str, *, at: Location) -> tuple[Option, ...]:
    words = _split_words(text, at=at)
    found: list[Option] = []
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2 and word[:2] in SHORT:
            name, equals, value = word[:2], "=", word[2:].removeprefix("=")
        name = SHORT.get(name, name.removeprefix("--") if name.startswith("--") else name)
        if name in FLAGS:
            if equals:
                raise make_config_error(
                    "pip-option",
                    f"the option '--{name}' takes no value",
                    at=at,
                    fix=f"write '--{name}'"
                    + ("" if value.lower() in SWITCHED_ON else ", or remove it if it is not wanted"),
                    edit=make_edit(at, word, f"--{name}") if value.lower() in SWITCHED_ON else None,
                )
            found.append(Option(name=name))
            continue
        if name not in VALUED:
            raise _make_option_error(name, word=word, at=at)
        if not equals:
            value = words.pop(0) if words else ""
        if not value or value.startswith("--"):
            fix = "write the value after it"
            raise make_config_error("pip-option", f"the option '--{name}' has no value", at=at, fix=fix)
        _check_value(name, value, at=at)
        found.append(Option(name=name, value=value))
    return tuple(found)


def _make_option_error(name: str, *, word: str, at: Location) -> ConfigError:
    plain = name.lstrip("-")
    written = sanitize(word.partition("=")[0])
    if not word.startswith("-"):
        message = f"'{sanitize(word)}' follows an option that is already complete"
        return make_config_error("pip-option", message, at=at, fix="write every requirement in a line of its own")
    known = [f"--{option}" for option in (*FLAGS, *VALUED)]
    others = [option for option in COMMAND_LINE if not option.startswith("-")]
    shortened = len(plain) > 3 and any(option.startswith(plain) for option in others)  # pip takes --no-cache as well
    if name in COMMAND_LINE or plain in COMMAND_LINE or shortened or find_typo(plain, known=others):
        message = f"pip takes the option '{written}' on its command line only"
        fix = f"remove it, or {_suggest_run(at)}"
        return make_config_error("pip-option", message, at=at, fix=fix)
    if plain in PER_REQUIREMENT:
        message = f"the option '--{plain}' belongs behind a requirement"
        return make_config_error("pip-option", message, at=at, fix="write it in the line of its package")
    if word == "-":
        message = "'- ' begins an item of a YAML list"
        return make_config_error("pip-option", message, at=at, fix="remove the '- ', or give the file the ending .yml")
    message = f"unknown pip option '{written}'"
    fix = suggest_name(f"--{plain}", known=known, noun="known options")
    edit = make_edit(at, word.partition("=")[0], find_typo(f"--{plain}", known=known))
    return make_config_error("pip-option", message, at=at, fix=fix, edit=edit)


def _suggest_run(at: Location) -> str:
    """How a package is installed with options of pip's command line, by the kind of file."""
    fix = "install that package by a 'python -m pip install' line below container.run"
    if not at.file.endswith((".yml", ".yaml")):
        fix += " of an environment.yml, which can name this file: - pip: [-r FILE]"
    return f"{fix} (any backend but cotainr)"


def _check_value(name: str, value: str, *, at: Location) -> None:
    """Raise ConfigError if the value of an option is invalid."""
    if name in ("index-url", "extra-index-url") or (name == "find-links" and "://" in value):
        check_url(value, at=at, schemes=("https", "http", "file"))
    elif name in ("requirement", "constraint"):
        if "://" in value:
            message = f"'{sanitize(value)}' is read from the network, so its content is unknown"
            raise make_config_error("pip-remote", message, at=at, fix="download it and name the file")
        check_path(value, at=at)
    elif name == "find-links":
        check_path(value, at=at)
    elif name == "trusted-host" and not HOST.fullmatch(value):
        raise make_config_error("pip-value", f"'{sanitize(value)}' is not a host", at=at, fix="write HOST or HOST:PORT")
    elif name in ("no-binary", "only-binary"):
        words = value.split(",")
        if not all(word in (":all:", ":none:") or NAME.fullmatch(word) for word in words):
            message = f"'{sanitize(value)}' is not a list of packages"
            fix = "write ':all:', ':none:' or NAME,NAME without spaces"
            raise make_config_error("pip-value", message, at=at, fix=fix)


def _parse_hashes(text: str, *, at: Location) -> tuple[str, ...]:
    """Read the options after a requirement: `--hash=sha256:...` and nothing else."""
    found: list[str] = []
    words = _split_words(text, at=at)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name != "--hash":
            plain = name.lstrip("-")
            if plain in COMMAND_LINE or name in COMMAND_LINE or plain in PER_REQUIREMENT:
                fix = f"remove it, or {_suggest_run(at)}"
            elif plain in (*FLAGS, *VALUED) or name in SHORT:
                fix = "write it in a line of its own"
            else:
                fix = suggest_name(name, known=("--hash",), noun="known here")
            message = f"the option '{sanitize(name)}' cannot stand behind a package"
            raise make_config_error("pip-option", message, at=at, fix=fix)
        value = value if equals else (words.pop(0) if words else "")
        if not HASH.fullmatch(value):
            message = f"'{sanitize(value)}' is not a hash that pip takes"
            raise make_config_error("pip-hash", message, at=at, fix="write sha256: and its 64 digits (0-9, a-f)")
        found.append(value)
    return tuple(found)


def _from_folder(path: Path, *, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


class RequirementsReader:
    """Collects the requirements, constraints and options of lines, and of the files that they name."""

    def __init__(self, *, file: str, folder: Path) -> None:
        self.file = file
        self.folder = folder  # of the recipe: what a path of a package is relative to
        self.requirements: list[PipRequirement] = []
        self.constraints: list[PipRequirement] = []
        self.texts: list[str] = []  # of the files read, for the recipe's digest
        self.findings: list[Finding] = []
        self._options: list[Option] = []
        self.count = 0  # lines read
        self._read: set[tuple[Path, bool]] = set()

    def add_text(self, text: str, *, at: Location, base: Path, constraint: bool = False, inside: Inside = ()) -> None:
        """Read the lines of a text; `base` is the folder that `-r` and `-c` in it are relative to."""
        own = at.file == self.file or not inside or inside[-1].is_relative_to(self.folder.resolve())
        for line, part in join_logical_lines(text, first=at.line or 1):
            self.count += 1
            if self.count > COUNT_LIMIT:
                message = f"more than {COUNT_LIMIT} lines of requirements"
                self.findings += make_config_error(
                    "pip-long", message, at=at, fix="check that it is the right file"
                ).findings
                return
            place = at if at.key else replace(at, line=line)  # an item of a list is one place
            try:
                found = parse_line(part, at=place)
                if isinstance(found, PipRequirement):
                    self._keep(found, at=place, constraint=constraint)
                    continue
                for option in found:
                    self._apply(option, at=place, base=base, constraint=constraint, inside=inside)
            except ConfigError as error:
                self.findings += error.findings if own else [redact_line(one, at=place) for one in error.findings]

    def add_requirement(self, requirement: PipRequirement, *, at: Location, constraint: bool = False) -> None:
        """Add what was read elsewhere; raises ConfigError for Python itself, and for a path that does not exist."""
        self._keep(requirement, at=at, constraint=constraint)

    def add_option(self, name: str, value: str = "", *, at: Location, base: Path) -> None:
        """Add an option that is not written as one (`index-url`); raises ConfigError for an invalid value."""
        if value:
            refuse_secrets(value, at=at)
            _check_value(name, value, at=at)
        self._apply(Option(name=name, value=value), at=at, base=base, constraint=False, inside=())

    def _keep(self, requirement: PipRequirement, *, at: Location, constraint: bool) -> None:
        if requirement.name == "python":
            raise refuse_python(requirement.text, at=at)
        if requirement.url:
            check_exists(requirement.url, folder=self.folder, at=at)
            self._check_sources(requirement, at=at)
        file = at.file if at.file != self.file else ""
        kept = self.constraints if constraint else self.requirements
        kept.append(replace(requirement, file=file))

    def _apply(self, option: Option, *, at: Location, base: Path, constraint: bool, inside: Inside) -> None:
        if option.name == "editable":
            self._keep(parse_location(option.value, editable=True, at=at), at=at, constraint=constraint)
        elif option.name in ("requirement", "constraint"):
            constraint = constraint or option.name == "constraint"
            self._add_file(option.value, at=at, base=base, constraint=constraint, inside=inside)
        else:
            if option.name == "find-links":
                # pip looks in the folder of the file first, then in the current folder
                here = base != self.folder and "://" not in option.value and exists(base / option.value)
                if here:
                    option = replace(option, value=_from_folder(base / option.value, folder=self.folder))
                check_exists(option.value, folder=self.folder, at=at, package=False)
            self._options.append(option)
            for requirement in self.requirements if option.name == "no-binary" else ():
                self._check_sources(requirement, at=at)

    def _check_sources(self, requirement: PipRequirement, *, at: Location) -> None:
        """Raise ConfigError for a wheel that is given by its place, whose sources alone may be used."""
        words = {word for one in self._options if one.name == "no-binary" for word in one.value.split(",")}
        if not requirement.url.partition("#")[0].endswith(".whl") or ":none:" in words:
            return
        if ":all:" in words or requirement.name in {str(canonicalize_name(word)) for word in words}:
            message = f"'--no-binary' asks for the sources of '{requirement.name}', and its line gives a wheel"
            raise make_config_error("pip-option", message, at=at, fix="remove the option, or name the sources")

    def _add_file(self, name: str, *, at: Location, base: Path, constraint: bool, inside: Inside) -> None:
        path = base / name
        place = Location(file=str(Path(at.file).parent / name), line=1)
        text = read_text(path, what="requirements file", name=place.file, at=at, marked=True)
        if (resolved := path.resolve()) in inside:
            message = f"'{name}' includes itself in a circle"
            raise make_config_error("pip-circle", message, at=at, fix="remove one of the '-r' and '-c' lines")
        if len(inside) >= DEPTH_LIMIT:
            message = f"'{name}' is the {DEPTH_LIMIT + 1}th file in a chain of '-r'"
            raise make_config_error("pip-depth", message, at=at, fix="write the requirements into fewer files")
        if (resolved, constraint) in self._read:
            return
        self._read.add((resolved, constraint))
        self.texts.append(text)
        self.add_text(text, at=place, base=path.parent, constraint=constraint, inside=(*inside, resolved))

    def make_options(self) -> PipOptions:
        """Return the options of all lines; of several index URLs the last one is used, as in pip."""

        def values(name: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(option.value for option in self._options if option.name == name))

        def words(name: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(word for value in values(name) for word in value.split(",")))

        flags = {option.name for option in self._options}
        return PipOptions(
            index_url=next((option.value for option in reversed(self._options) if option.name == "index-url"), ""),
            extra_index_urls=values("extra-index-url"),
            find_links=values("find-links"),
            no_index="no-index" in flags,
            pre="pre" in flags,
            require_hashes="require-hashes" in flags,
            no_binary=words("no-binary"),
            only_binary=words("only-binary"),
            prefer_binary="prefer-binary" in flags,
            trusted_hosts=values("trusted-host"),
            constraints=tuple(self.constraints),
        )
