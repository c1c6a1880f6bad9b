"""YAML text to a small tree of our own, and plain data back to YAML. The only import of yaml.

In the tree (`Text`, `Listing`, `Table`) a scalar keeps the characters the user wrote (3.10 stays 3.10) and a key keeps
its line; duplicate keys, alias bombs, tabs and encodings are refused here, once for recipes and sites alike.
"""

from __future__ import annotations

import errno
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union

import yaml

from builder.model.finding import ConfigError, Finding, Location, find_near_name, make_edit
from builder.model.text import convert_marked, exists, sanitize
from builder.sif.bounded import BoundsError, read_file

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# A real environment file has hundreds of nodes; an alias bomb has millions once its aliases are followed.
NODE_LIMIT = 20_000
DEPTH_LIMIT = 50
DIRECTIVE_LIMIT = 100  # lines that begin with a percent sign
USUAL = ("environment.yml", "environment.yaml", "env.yml", "requirements.txt")  # names of environment files
PROJECTS = ("pixi.toml", "pyproject.toml")
LISTED = 4  # names of files in a message
SIZE_LIMIT = 4 * 1024 * 1024  # bytes

ADDRESS = re.compile(r"^(https?:|ftp:|s3:)/+")  # a path has lost a slash of it
ELSEWHERE = re.compile(r"(?:https?|ftp|s3|ssh|git|github|gitlab|docker):|git@")  # an address, not a path
CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)  # what git leaves where a merge stopped
HARD_SPACE = re.compile(r"^[ \t]*\u00a0|- \u00a0|:\u00a0", re.MULTILINE)

Kind = Literal["text", "number", "bool", "null", "date"]
TAGS: Mapping[str, Kind] = {
    "tag:yaml.org,2002:int": "number",
    "tag:yaml.org,2002:float": "number",
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:null": "null",
    "tag:yaml.org,2002:timestamp": "date",
}


@dataclass(frozen=True, kw_only=True)
class Text:
    """A scalar as it was written; `kind` is what plain YAML would have read it as."""

    raw: str
    line: int
    kind: Kind = "text"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A sequence."""

    items: tuple[Value, ...]
    line: int


@dataclass(frozen=True, kw_only=True)
class Table:
    """A mapping, keys in the order of the file and unique."""

    entries: tuple[tuple[Text, Value], ...]
    line: int

    def get(self, key: str) -> Value | None:
        return next((value for name, value in self.entries if name.raw == key), None)

    def get_line(self, key: str) -> int:
        """Return the line of a key, the table's own when absent."""
        return next((name.line for name, _ in self.entries if name.raw == key), self.line)


Value = Union[Text, Listing, Table]  # noqa: UP007 - a forward reference needs Union on Python 3.10


def describe(value: Value) -> str:
    """Describe a value in the user's words."""
    if isinstance(value, Listing):
        return "a list"
    if isinstance(value, Table):
        return "a table of keys"
    written = sanitize(value.raw, limit=40)
    return {
        "text": f"the text '{written}'",
        "number": f"the number {written}",
        "bool": f"the yes/no value {written}",
        "null": "nothing",
        "date": f"the date {written}",
    }[value.kind]


def read_text(
    path: Path,
    *,
    what: str,
    name: str | None = None,
    at: Location | None = None,
    limit: int = SIZE_LIMIT,
    marked: bool = False,
) -> str:
    """Read a small UTF-8 text file; raises ConfigError with the reason and the fix when it cannot.

    `name` is the file's name in messages, `at` the place that names the file; `limit` is in bytes; with `marked` UTF-16
    and UTF-32 are read by their byte order marks, as pip does.
    """
    name = ADDRESS.sub(r"\1//", name or str(path))

    def fault(code: str, message: str, fix: str) -> ConfigError:
        return ConfigError(Finding(code=code, message=message, at=at or Location(file=name), fix=fix))

    try:
        if path.is_dir():
            raise fault("file-folder", f"the {what} '{name}' is a folder", _suggest_inside(path))
        if path.exists() and not path.is_file():
            raise fault("file-special", f"the {what} '{name}' is not a regular file", "save it to a file first")
        data = read_file(path, limit=limit)
    except FileNotFoundError:
        if name == "-" or ELSEWHERE.match(name):
            here = "standard input is not read" if name == "-" else "files are read from this machine only"
            fix = f"save the {what} first, and name that file"
            raise fault("file-missing", f"'{sanitize(name)}' is no file: {here}", fix) from None
        raise fault("file-missing", f"the {what} '{name}' does not exist", _missing(path, at=at)) from None
    except BoundsError:
        message = f"the {what} '{name}' is larger than {limit // 1024**2} MiB"
        raise fault("file-large", message, f"this is hardly a {what}: check it") from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        fix = f"`chmod u+r {shlex.quote(name)}` where it is your own, else ask its owner for the right to read it"
        if getattr(error, "errno", None) == errno.ELOOP:
            fix = "it is a link that leads back to itself: remove it, and name the file itself"
        elif getattr(error, "errno", None) == errno.ENOTDIR:
            above = next((one for one in path.parents if one.is_file()), path.parent)
            reason, fix = f"'{above}' is a file, and no folder", f"name the {what}: {shlex.quote(str(above))}?"
        raise fault("file-unreadable", f"the {what} '{name}' cannot be read: {reason}", fix) from None
    return _decode(convert_marked(data) if marked else data, what=what, name=name)


def _missing(path: Path, *, at: Location | None) -> str:
    """The fix for a file that does not exist; `at` is the line that names it, if one does."""
    if at is None or at.line is None:
        return suggest_path(path)
    return suggest_path(path, other="make it, or remove the line that names it", but=Path(at.file).name)


def suggest_path(path: Path, *, other: str = "", but: str = "") -> str:
    """Return the fix for a path that does not exist: the nearest name, else what the folder has of that kind.

    `other` is what else helps, instead of "check the path", `but` a name that is not meant.
    """
    with suppress(OSError, ValueError):
        return f"it is a link to nothing: make '{sanitize(str(path.readlink()), limit=200)}', or remove it"
    near = find_near_path(path)
    if near:
        return f"did you mean '{sanitize(near)}'?"
    missing = next((folder for folder in path.parents if not exists(folder)), None)
    if missing is not None:
        near = find_near_path(missing)
        if not near and not but and exists(Path(path.name)):
            return f"did you mean '{sanitize(path.name)}'?"
        end = f": did you mean '{sanitize(near)}'?" if near else ""
        return f"its folder '{sanitize(str(missing), limit=200)}' does not exist{end}" + (f"; {other}" * bool(other))
    names = [name for name in _names(path.parent) if Path(name).suffix == path.suffix and name != but]
    there = [sanitize(str(path.parent / name)) for name in names]
    listed = f"there {'is' if len(there) == 1 else 'are'} {', '.join(sorted(there)[:LISTED])}" if there else ""
    return "; ".join(filter(None, [listed if path.suffix else "", other])) or "check the path"


def find_near_path(path: Path, *, fits: Callable[[Path], bool] | None = None) -> str:
    """Return the path with the nearest name in the folder of one that does not exist, "" if none is near or `fits`."""
    known = [name for name in _names(path.parent) if fits is None or fits(path.parent / name)]
    return str(path.parent / near) if (near := find_near_name(path.name, known=known)) else ""


def _names(folder: Path) -> list[str]:
    try:
        return [item.name for item in folder.iterdir() if not item.name.startswith(".")]
    except (OSError, ValueError):
        return []


def _suggest_inside(folder: Path) -> str:
    """Return the fix for a folder: the environment file in it."""
    found = next((name for name in (*USUAL, *PROJECTS) if (folder / name).is_file()), "")
    return f"give the file in it: {sanitize(str(folder / found))}" if found else "give the file inside it"


def _decode(data: bytes, *, what: str, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = Location(file=name, line=data[: error.start].count(b"\n") + 1)
        message = f"the {what} is not UTF-8 text"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            message = f"the {what} is UTF-16 text, as PowerShell writes it"
        raise ConfigError(Finding(code="file-encoding", message=message, at=at, fix="save it as UTF-8")) from None
    if len(data) < 4 * max(data[::2].count(0), data[1::2].count(0)):  # every other byte, of most letters
        message = f"the {what} is UTF-16 text, as Windows programs write it"
        at = Location(file=name)
        raise ConfigError(Finding(code="file-encoding", message=message, at=at, fix="save it as UTF-8"))
    if "\x00" in text:
        message = f"the {what} holds a NUL byte: it is not text"
        fix = "check that it is the right file"
        raise ConfigError(Finding(code="file-binary", message=message, at=Location(file=name), fix=fix))
    for form, message, fix in (
        (CONFLICT, "a conflict mark of a git merge is here", "choose one side, and remove the marks"),
        (HARD_SPACE, "a no-break space is here, as copied from a web page", "write a space in its place"),
    ):
        if found := form.search(text):
            at = Location(file=name, line=text.count("\n", 0, found.start()) + 1)
            raise ConfigError(Finding(code="file-character", message=message, at=at, fix=fix))
    return text


def parse_yaml(
    text: str, *, file: str, faults: list[Finding] | None = None, nodes: int = NODE_LIMIT, bundled: bool = False
) -> Value | None:
    """Parse one YAML document, None if it is empty; raises ConfigError if it is invalid.

    Duplicate keys are added to `faults`, so that they are reported with the other faults of the file; without it they
    are raised. A file that comes with the program (`bundled`) is no bomb: it is read once.
    """
    try:
        if not bundled:
            _refuse_bombs(text, file=file, nodes=nodes)
        loader = Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_make_syntax_finding(error, text=text, file=file)) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1 if isinstance(error.position, int) else None
        message = "the file holds a character that YAML does not allow"
        raise ConfigError(
            Finding(code="yaml-character", message=message, at=Location(file=file, line=line), fix="remove it")
        ) from None
    except RecursionError:
        raise ConfigError(_make_depth_finding(file)) from None
    if node is None:
        return None
    converter = _Converter(file, limit=nodes)
    value = converter.convert(node)
    if converter.duplicates and faults is None:
        raise ConfigError(*converter.duplicates)
    if faults is not None:
        faults.extend(converter.duplicates)
    return value


def _make_syntax_finding(error: yaml.MarkedYAMLError, *, text: str, file: str) -> Finding:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark else None
    lines = text.splitlines()
    written = lines[number - 1] if number is not None and number <= len(lines) else ""
    at = Location(file=file, line=number)
    indent = written[: len(written) - len(written.lstrip())]
    if "\t" in indent or "'\\t'" in str(error.problem):
        message, fix = "a tab is used for indentation", "use spaces in its place"
        return Finding(code="yaml-tab", message=message, at=at, fix=fix, edit=make_edit(at, "\t", "  "))
    if "expected a single document" in str(error.context):
        message = "the file holds more than one YAML document"
        marks = sum(line.rstrip() == "---" for line in lines)
        fix = f"remove the {'second ' if marks > 1 else ''}'---' and what follows it"
        return Finding(code="yaml-documents", message=message, at=at, fix=fix)
    if "undefined alias" in str(error.problem):
        message = str(error.problem).replace("found ", "").replace('"', "'")
        fix = "put quotes round it"
        return Finding(code="yaml-alias", message=f"{message} (a word that starts with *)", at=at, fix=fix)
    if "quoted scalar" in str(error.context) and "end of stream" in str(error.problem) and error.context_mark:
        opened = error.context_mark
        quote = text[opened.index] if opened.index < len(text) else "'"
        message = f"a quote is opened here and not closed: {sanitize(lines[opened.line].strip(), limit=60)}"
        fix = f"close it with {quote} at the end of the line, or remove it"
        return Finding(code="yaml-quote", message=message, at=Location(file=file, line=opened.line + 1), fix=fix)
    problem = (error.problem or error.context or "it cannot be parsed").replace("\n", " ")
    fix = "check quotes, colons and indentation"
    return Finding(code="yaml-syntax", message=f"this is not YAML: {problem}", at=at, fix=fix)


def _refuse_bombs(text: str, *, file: str, nodes: int) -> None:
    """Raise before nodes are composed: LibYAML's binding recurses in C, and a hostile depth kills the process there.

    It also compares each directive with all before it, and needs half a kilobyte for every node.
    """
    if text.count("\n%") > DIRECTIVE_LIMIT:
        message = f"the file holds more than {DIRECTIVE_LIMIT} YAML directives"
        raise ConfigError(_make_bomb_finding(message, file, "remove them"))
    depth = count = 0
    for event in yaml.parse(text, Loader=Loader):
        count += isinstance(event, yaml.NodeEvent)
        if count > nodes:
            line = event.start_mark.line + 1 if event.start_mark else None
            message = f"the file holds more than {nodes} values"
            raise ConfigError(_make_bomb_finding(message, file, "write less into it", line=line))
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            depth += 1
            if depth > DEPTH_LIMIT:
                raise ConfigError(
                    _make_depth_finding(file, line=event.start_mark.line + 1 if event.start_mark else None)
                )
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            depth -= 1


def _make_bomb_finding(message: str, file: str, fix: str, *, line: int | None = None) -> Finding:
    return Finding(code="yaml-bomb", message=message, at=Location(file=file, line=line), fix=fix)


def _make_depth_finding(file: str, *, line: int | None = None) -> Finding:
    message = f"the file is nested more than {DEPTH_LIMIT} levels deep"
    return Finding(code="yaml-deep", message=message, at=Location(file=file, line=line), fix="write it flat")


class _Converter:
    """yaml nodes to our tree, with a limit on the nodes that aliases may unfold to."""

    def __init__(self, file: str, *, limit: int) -> None:
        self.file, self.limit = file, limit
        self.count = 0
        self.duplicates: list[Finding] = []

    def convert(self, node: yaml.Node) -> Value:
        return self._convert(node, depth=0)

    def _convert(self, node: yaml.Node, *, depth: int) -> Value:
        line = node.start_mark.line + 1
        self.count += 1
        if self.count > self.limit:
            message = f"the file unfolds to more than {self.limit} values (aliases of aliases?)"
            raise ConfigError(_make_bomb_finding(message, self.file, "write it without aliases", line=line))
        if depth > DEPTH_LIMIT:
            raise ConfigError(_make_depth_finding(self.file))
        if isinstance(node, yaml.ScalarNode):
            return Text(raw=node.value, line=line, kind=TAGS.get(node.tag, "text") if not node.style else "text")
        if isinstance(node, yaml.SequenceNode):
            return Listing(items=tuple(self._convert(item, depth=depth + 1) for item in node.value), line=line)
        assert isinstance(node, yaml.MappingNode)
        return self._convert_table(node, line=line, depth=depth)

    def _convert_table(self, node: yaml.MappingNode, *, line: int, depth: int) -> Table:
        entries: dict[str, tuple[Text, Value]] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            at = Location(file=self.file, line=key_line)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a key must be a word, found a list or a table"
                self.duplicates.append(
                    Finding(code="yaml-key", message=message, at=at, fix="put quotes round text with { or [")
                )
                continue
            key = Text(raw=key_node.value, line=key_line)
            value = self._convert(value_node, depth=depth + 1)
            if key.raw in entries:
                first = entries[key.raw][0].line
                message = f"the key '{sanitize(key.raw)}' occurs twice, first in line {first}"
                self.duplicates.append(Finding(code="yaml-duplicate", message=message, at=at, fix="keep one of them"))
            else:
                entries[key.raw] = (key, value)
        return Table(entries=tuple(entries.values()), line=line)


def walk(value: Value) -> Iterator[Text]:
    """Yield every scalar below a value, in the order of the file."""
    if isinstance(value, Text):
        yield value
    elif isinstance(value, Listing):
        for item in value.items:
            yield from walk(item)
    else:
        for _, item in value.entries:
            yield from walk(item)


def to_yaml(document: Mapping[str, Any]) -> str:
    """Write plain data as YAML, keys in the given order; a string that YAML would read as another type is quoted."""
    return yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False
    )


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, as people write environment files; aliases are never used."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True
