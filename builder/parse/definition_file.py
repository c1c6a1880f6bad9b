"""An Apptainer definition file to steps. Source: apptainer.org/docs/user/latest/definition_files.html.

spython reads the same files in tests/unit/test_build_files.py. It takes the indentation from lines, the capitals from
the image's name, and adds the lines of %test to those of %post, so it is not used here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from builder.model.finding import Location
from builder.model.text import make_config_error, sanitize
from builder.parse.build_file import ONLY_PACKAGES, BuildFile, BuildStep, Script
from builder.parse.shell_text import split_commands

HEADER = re.compile(r"^\s*([A-Za-z][A-Za-z0-9]*)\s*:\s*(.*?)\s*$")
SECTION = re.compile(r"^%([A-Za-z]+)(?:\s+(.*?))?\s*$")
FIRST = re.compile(r"^bootstrap\s*:", re.IGNORECASE)
ARGUMENT = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
LEFT = {
    "help": "a comment of the recipe has room for it",
    "runscript": "`recipe run SITE IMAGE -- COMMAND` runs a command",
    "startscript": "an instance is no job",
    "setup": "it runs on the machine that builds: do it before the build",
    "pre": "it runs on the machine that builds: do it before the build",
    "test": "container.smoke checks an image",
}
SECTIONS = (*LEFT, "arguments", "environment", "files", "labels", "post")
AGENTS = {"docker": "docker://", "library": "library://", "oras": "oras://", "localimage": ""}


@dataclass(kw_only=True)
class DefinitionStage:
    """One stage: its header, and its sections with the number of the first line of each."""

    line: int
    header: dict[str, str] = field(default_factory=dict)
    sections: list[tuple[str, str, int, list[str]]] = field(default_factory=list)


def is_definition(text: str) -> bool:
    """Whether a text has the header of a definition file."""
    return re.search(r"^\s*bootstrap\s*:", text[:65536], re.IGNORECASE | re.MULTILINE) is not None


def read_definition(text: str, *, file: str) -> BuildFile:
    """Read a definition file; raises ConfigError."""
    stages = _split_stages(_fill_arguments(text))
    last = stages[-1]
    agent, image = last.header.get("bootstrap", "").lower(), last.header.get("from", "")
    if not agent:
        message = "the definition file has no 'Bootstrap:', and so no image"
        fix = "write 'Bootstrap: docker' and 'From: NAME:TAG' first"
        raise make_config_error("init-from", message, at=Location(file=file), fix=fix)
    by_name = {stage.header.get("stage", "").lower(): stage for stage in stages[:-1]}
    steps: list[BuildStep] = []
    if agent not in AGENTS:
        why = "a base image is one of a registry or a file; the site's is taken"
        steps.append(BuildStep(kind="left", line=last.line, text=f"Bootstrap: {agent} {image}".rstrip(), why=why))
    for word in dict.fromkeys(_list_copied(last)):
        other = by_name.get(word.lower())
        if other is not None:
            steps += [replace(step, packages=True) for step in _make_steps(other) if step.kind == "run"]
            steps.append(BuildStep(kind="left", line=other.line, text=f"Stage: {word}", why=ONLY_PACKAGES))
    steps += _make_steps(last)
    return BuildFile(
        file=file,
        what="a definition file", base=f"{AGENTS[agent]}{image}" if agent in AGENTS else "",
        base_line=last.line, steps=tuple(steps), alone=False,
    )  # fmt: skip


def _fill_arguments(text: str) -> str:
    """Put the values of %arguments where their names are."""
    section = re.search(r"^%arguments[^\n]*\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    pairs = re.findall(r"^\s*([A-Za-z_]\w*)=(.*?)\s*$", section[1], re.MULTILINE) if section else []
    values = {name: value.strip("\"'") for name, value in pairs}
    return ARGUMENT.sub(lambda match: values.get(match[1], match[0]), text)


def _split_stages(text: str) -> list[DefinitionStage]:
    stages: list[DefinitionStage] = []
    section: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        begins = FIRST.match(line) is not None
        if not stages and not begins and (not line.strip() or line.lstrip().startswith("#")):
            continue
        if not stages or (begins and "bootstrap" in stages[-1].header):
            stages.append(DefinitionStage(line=number))
            section = None
        match = SECTION.match(line)
        if match and (match[1].lower() in SECTIONS or match[1].lower().startswith("app")):
            section = []
            stages[-1].sections.append((match[1].lower(), (match[2] or "").partition("#")[0].strip(), number, section))
        elif section is not None:
            section.append(line)
        elif header := HEADER.match(line.partition("#")[0]):
            stages[-1].header[header[1].lower()] = header[2]
            if header[1].lower() == "from":
                stages[-1].line = number
    return stages or [DefinitionStage(line=1)]


def _list_copied(stage: DefinitionStage) -> Iterator[str]:
    for name, words, _, _ in stage.sections:
        if name == "files" and words.lower().startswith("from "):
            yield words[5:].strip()


def _make_steps(stage: DefinitionStage) -> Iterator[BuildStep]:
    for name in ("labels", "environment", "files", "post"):  # files are there before %post
        for found, words, number, lines in stage.sections:
            if found == name:
                yield from _read_section(name, words, number, lines)
    for name, _, number, lines in stage.sections:
        if name in LEFT and any(line.strip() for line in lines):
            yield BuildStep(kind="left", line=number, text=f"%{name}", why=LEFT[name])
        elif name.startswith("app"):
            yield BuildStep(kind="left", line=number, text=f"%{name}", why="an image of recipe has no apps")
    for name in set(stage.header) - {"bootstrap", "from", "stage"}:
        text = f"{name}: {stage.header[name]}"
        yield BuildStep(kind="left", line=stage.line, text=text, why="a recipe has no such setting")


def _read_section(name: str, words: str, number: int, lines: list[str]) -> Iterator[BuildStep]:
    if name == "post":
        text, places, start = "\n".join(lines), [], 0
        for index, line in enumerate(lines):
            places.append((start, number + 1 + index))
            start += len(line) + 1
        script = Script(text=text, places=tuple(places) or ((0, number),))
        yield BuildStep(kind="run", line=number, text="%post", script=script)
        return
    for line_number, line in enumerate(lines, start=number + 1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        if name == "labels":
            match = re.match(r"([^\s=:]+)[\s=:]*(.*)", plain)
            key, value = match.groups() if match else (plain, "")
            yield BuildStep(kind="label", line=line_number, text=plain, name=key, value=value.strip("\"'"))
        elif name == "files":
            yield _make_copy(plain, line_number, stage=words)
        else:
            yield from _read_variables(plain, line_number)


def _make_copy(text: str, line: int, *, stage: str) -> BuildStep:
    if stage:
        why = f"what the stage '{sanitize(stage[5:])}' holds is no file of this machine"
        return BuildStep(kind="left", line=line, text=text, why=why)
    try:
        words = shlex.split(text)
    except ValueError:
        return BuildStep(kind="left", line=line, text=text, why="its quotes are not closed")
    target = words[1] if len(words) > 1 else words[0]
    if len(words) > 2 or not target.startswith("/"):
        target = f"/{target.removeprefix('./')}"
    if len(words) > 2:
        return BuildStep(kind="left", line=line, text=text, why="it has more than a source and a target")
    return BuildStep(kind="copy", line=line, text=text, sources=(words[0],), target=target)


def _read_variables(text: str, line: int) -> Iterator[BuildStep]:
    """`export NAME=value` and `NAME=value` of %environment; what else a shell does there is left."""
    for command in split_commands(text):
        try:
            words = shlex.split(command.text)
        except ValueError:
            words = []
        pairs = [word.partition("=") for word in (words[1:] if words[:1] == ["export"] else words)]
        if words[:1] == ["export"] and pairs and not any(equals for _, equals, _ in pairs):
            continue  # it was set before
        if not pairs or not all(equals and name.isidentifier() for name, equals, _ in pairs):
            why = "variables are fixed values, below container.env"
            yield BuildStep(kind="left", line=line, text=command.text, why=why)
            continue
        for name, _, value in pairs:
            yield BuildStep(kind="variable", line=line, text=command.text, name=name, value=value)
