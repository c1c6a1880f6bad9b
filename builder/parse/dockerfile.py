"""A Dockerfile to steps. Source: docs.docker.com/reference/dockerfile (read 2026-11-23).

`dockerfile-parse` and spython read the same files in tests/unit/test_build_files.py. Neither reads here-documents,
empty lines in a continued one, or `${NAME:-other}`, so none of them is used here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import make_config_error, sanitize
from builder.parse.build_file import ONLY_PACKAGES, BuildFile, BuildStep, Script, StepKind, expand, is_variable

INSTRUCTIONS = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER",
    "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
ESCAPE = re.compile(r"#\s*escape\s*=\s*([\\`])\s*$", re.IGNORECASE)
DIRECTIVE = re.compile(r"#\s*[a-z]+\s*=", re.IGNORECASE)
HERE = re.compile(r"<<(-?)(['\"]?)([A-Za-z_][\w.]*)\2")
FLAG = re.compile(r"--[a-z]+(?:=\S*)?\s+")
UNUSED = "no later stage of the file uses it"
LEFT = {
    "CMD": "`recipe run SITE IMAGE -- COMMAND` runs a command",
    "ENTRYPOINT": "`recipe run SITE IMAGE -- COMMAND` runs a command",
    "EXPOSE": "a job has the network of its node",
    "HEALTHCHECK": "container.smoke checks an image",
    "ONBUILD": "a recipe is no base of others",
    "SHELL": "commands of `run` are for bash",
    "STOPSIGNAL": "a job is stopped by the batch system",
    "USER": "an image runs as the user of the job",
    "VOLUME": "paths are bound when the image runs",
}


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction; `bodies` are its here-documents, each with the line before it."""

    name: str
    value: str
    places: tuple[tuple[int, int], ...]  # of parts of the value: start, line
    bodies: tuple[tuple[int, str], ...] = ()

    @property
    def line(self) -> int:
        return self.places[0][1]

    @property
    def text(self) -> str:
        return f"{self.name} {self.value}"


def is_dockerfile(text: str) -> bool:
    """Whether the first instruction of a text is one that begins a Dockerfile."""
    first = re.search(r"^[ \t]*([^#\s]\S*)[ \t]+\S", text, re.MULTILINE)
    return first is not None and first[1].upper() in ("FROM", "ARG")


def read_dockerfile(text: str, *, file: str) -> BuildFile:
    """Read a Dockerfile; raises ConfigError with all its faults."""
    faults: list[Finding] = []
    found = list(_read_instructions(text, file=file, faults=faults))
    for one in found:
        if one.name not in INSTRUCTIONS:
            message = f"'{sanitize(one.name)}' is no instruction of a Dockerfile"
            fix = "check the spelling, or end the line before it with a backslash"
            faults += make_config_error("init-from", message, at=Location(file=file, line=one.line), fix=fix).findings
    if not any(one.name == "FROM" for one in found) and not faults:
        message = "the Dockerfile has no FROM, and so no image"
        faults += make_config_error("init-from", message, at=Location(file=file), fix="name the base image").findings
    if faults:
        raise ConfigError(*sorted(faults, key=lambda one: (one.at and one.at.line) or 0))
    return _Stages(found).make_build_file(file)


def _read_instructions(text: str, *, file: str, faults: list[Finding]) -> Iterator[Instruction]:
    lines = text.splitlines()
    escape, at = "\\", 0
    while at < len(lines) and DIRECTIVE.match(lines[at].strip()):
        if match := ESCAPE.match(lines[at].strip()):
            escape = match[1]
        at += 1
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        parts, at = _read_logical(lines, at, escape=escape)
        name, _, rest = parts[0][1].lstrip().partition(" ")
        parts[0] = (parts[0][0], rest.lstrip())
        value, places = "", []
        for number, part in parts:
            places.append((len(value), number))
            value += part
        bodies, at = _read_bodies(lines, at, value if name.upper() in ("RUN", "COPY", "ADD") else "")
        if bodies is None:
            message = "a here-document has no end"
            where = Location(file=file, line=parts[0][0])
            faults += make_config_error("init-from", message, at=where, fix="write its last word alone").findings
        yield Instruction(name=name.strip().upper(), value=value.rstrip(), places=tuple(places), bodies=bodies or ())


def _read_logical(lines: list[str], at: int, *, escape: str) -> tuple[list[tuple[int, str]], int]:
    """Join continued lines, without comments and empty lines between them; parts with their numbers."""
    parts: list[tuple[int, str]] = []
    while at < len(lines):
        line = lines[at].expandtabs(1)
        at += 1
        if parts and (not line.strip() or line.lstrip().startswith("#")):
            continue
        bare = line.rstrip()
        goes_further = bare.endswith(escape)
        parts.append((at, bare[:-1] if goes_further else bare))
        if not goes_further:
            break
    return parts, at


def _read_bodies(lines: list[str], at: int, value: str) -> tuple[tuple[tuple[int, str], ...] | None, int]:
    """Read the here-documents of an instruction; None where one has no end."""
    bodies: list[tuple[int, str]] = []
    if value.startswith("["):
        return (), at
    for tabs, _, word in HERE.findall(value):
        start = at
        while at < len(lines) and (lines[at].lstrip("\t") if tabs else lines[at]) != word:
            at += 1
        if at >= len(lines):
            return None, at
        bodies.append((start, "\n".join(lines[start:at])))
        at += 1
    return tuple(bodies), at


class _Stages:
    """The stages of a Dockerfile; the last one is the image."""

    def __init__(self, found: list[Instruction]) -> None:
        first = next(index for index, one in enumerate(found) if one.name == "FROM")
        self.values: dict[str, str] = {}
        for one in found[:first]:
            if one.name == "ARG":
                with suppress(ValueError):  # quotes that are not closed
                    self.values |= dict(_read_pairs(one.value, self.values))
        self.stages: list[tuple[str, list[Instruction]]] = []
        for one in found[first:]:
            if one.name == "FROM":
                alias = re.search(r"\s+as\s+(\S+)\s*$", one.value, re.IGNORECASE)
                self.stages.append((alias[1].lower() if alias else "", []))
            self.stages[-1][1].append(one)

    def _find(self, word: str) -> int | None:
        """The number of a stage by its name or number."""
        names = [name for name, _ in self.stages]
        if word.isdigit() and int(word) < len(names):
            return int(word)
        return names.index(word.lower()) if word and word.lower() in names else None

    def _base(self, number: int) -> str:
        value = FLAG.sub("", self.stages[number][1][0].value)
        return expand(re.split(r"\s+as\s+", value, flags=re.IGNORECASE)[0].strip(), self.values)

    def make_build_file(self, file: str) -> BuildFile:
        chain = [len(self.stages) - 1]
        while (before := self._find(self._base(chain[0]))) is not None and before < chain[0]:
            chain.insert(0, before)
        steps: list[BuildStep] = []
        copied = {found for number in chain for found in self._list_copied(number)} - set(chain)
        for number in range(len(self.stages)):
            taken = list(_make_steps(self.stages[number][1][1:], self.values)) if number in {*chain, *copied} else []
            first = self.stages[number][1][0]
            if number in copied:
                taken = [replace(step, packages=True) for step in taken if step.kind in ("run", "argument", "variable")]
                taken.append(BuildStep(kind="left", line=first.line, text=first.text, why=ONLY_PACKAGES))
            elif number not in chain:
                taken = [BuildStep(kind="left", line=first.line, text=first.text, why=UNUSED)]
            steps += taken
        return BuildFile(
            file=file,
            what="a Dockerfile", base=self._base(chain[0]), base_line=self.stages[chain[0]][1][0].line,
            steps=tuple(steps), alone=True, values=self.values,
        )  # fmt: skip

    def _list_copied(self, number: int) -> Iterator[int]:
        for one in self.stages[number][1]:
            match = re.search(r"--from=(\S+)", one.value) if one.name in ("COPY", "RUN", "ADD") else None
            found = self._find(match[1]) if match else None
            if found is not None:
                yield found


def _read_pairs(value: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """NAME=VALUE words of ENV, ARG and LABEL; the older form of ENV is one name and its value."""
    first = value.split(maxsplit=1)
    if len(first) == 2 and "=" not in first[0]:
        yield first[0], expand(first[1].strip("\"'"), values)
        return
    known = dict(values)
    for word in shlex.split(value):
        name, equals, text = word.partition("=")
        if equals:
            known[name] = expand(text, values)
            yield name, known[name]


def _make_steps(found: Iterable[Instruction], values: Mapping[str, str]) -> Iterator[BuildStep]:
    """The steps of a stage, with the values of arguments and variables so far in them."""
    known: dict[str, str] = {}
    for one in found:
        if one.name in ("ENV", "LABEL", "ARG"):
            for step in _read_variables(one, known=known, values=values):
                if step.kind != "label":
                    known[step.name] = step.value
                yield step
        elif one.name == "RUN":
            yield _make_run(one)
        elif one.name in ("COPY", "ADD"):
            yield _make_copy(one, values=known)
        elif one.name == "WORKDIR":
            folder = expand(one.value.strip("\"'"), known)
            yield BuildStep(kind="folder", line=one.line, text=one.text, value=folder)
        elif one.name == "MAINTAINER":
            name = "org.opencontainers.image.authors"
            yield BuildStep(kind="label", line=one.line, text=one.text, name=name, value=one.value.strip("\"'"))
        elif one.name in LEFT:
            yield BuildStep(kind="left", line=one.line, text=one.text, why=LEFT[one.name])


def _read_variables(one: Instruction, *, known: Mapping[str, str], values: Mapping[str, str]) -> Iterator[BuildStep]:
    try:
        pairs = list(_read_pairs(one.value, known))
    except ValueError:
        yield BuildStep(kind="left", line=one.line, text=one.text, why="its quotes are not closed")
        return
    if one.name == "ARG":  # one without a value has that of before the first stage
        bare = [word for word in one.value.split() if "=" not in word and is_variable(word)]
        pairs += [(name, values[name]) for name in bare if name in values]
    kinds: dict[str, StepKind] = {"ENV": "variable", "LABEL": "label", "ARG": "argument"}
    kind = kinds[one.name]
    for name, value in pairs:
        yield BuildStep(kind=kind, line=one.line, text=one.text, name=name, value=value)


def _make_run(one: Instruction) -> BuildStep:
    flags = re.match(rf"(?:{FLAG.pattern})*", one.value)
    start = flags.end() if flags else 0
    value = one.value[start:]
    if flags and re.search(r"type=(?:secret|ssh)", flags[0]):
        why = "it needs a secret while the image is built"
        return BuildStep(kind="left", line=one.line, text=one.text, why=why)
    if value.startswith("["):
        try:
            words = json.loads(value)
            value = shlex.join(str(word) for word in words)
        except ValueError:
            return BuildStep(kind="left", line=one.line, text=one.text, why="its list is not JSON")
    places = [(max(at - start, 0), line) for at, line in one.places]
    if one.bodies and HERE.fullmatch(value.strip()):  # the body is the script
        first, body = one.bodies[0]
        value, places = body, _number_lines(body, first=first + 1)
    elif one.bodies:
        words_of = [match[2] for match in HERE.findall(one.value)]
        for word, (_, body) in zip(words_of, one.bodies, strict=False):
            value += f"\n{body}\n{word}"
    return BuildStep(kind="run", line=one.line, text=one.text, script=Script(text=value, places=tuple(places)))


def _number_lines(text: str, *, first: int) -> list[tuple[int, int]]:
    """Where each line of a text begins, and its number in the file."""
    places, start = [], 0
    for index, line in enumerate(text.split("\n")):
        places.append((start, first + index))
        start += len(line) + 1
    return places


def _make_copy(one: Instruction, *, values: Mapping[str, str]) -> BuildStep:
    def leave(why: str) -> BuildStep:
        return BuildStep(kind="left", line=one.line, text=one.text, why=why)

    if match := re.search(r"--from=(\S+)", one.value):
        return leave(f"what '{sanitize(match[1])}' holds is no file of this machine")
    if one.bodies:
        return leave("its text is in the Dockerfile: save it as a file, and name that below container.files")
    value = expand(FLAG.sub("", one.value), values)
    try:
        words = json.loads(value) if value.startswith("[") else shlex.split(value)
    except ValueError:
        return leave("its quotes are not closed")
    if not isinstance(words, list) or len(words) < 2 or not all(isinstance(word, str) for word in words):
        return leave("it has no source and target")
    if any(re.match(r"[a-z]+://|git@", word) for word in words[:-1]):
        return leave("it is an address: download it in a command of container.run")
    return BuildStep(kind="copy", line=one.line, text=one.text, sources=tuple(words[:-1]), target=words[-1])
