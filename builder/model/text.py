"""Validate foreign text; write numbers with their units.

Patterns keep names, versions and addresses from becoming commands. Values of foreign JSON are converted tolerantly: a
value of another type becomes None or empty. Paths are checked to stay inside their folder. `to_dataclass` reads JSON
strictly: types, choices, numbers, no unknown keys.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import re
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union
from urllib.parse import unquote, urlsplit

from builder.model.finding import ConfigError, Edit, Finding, Location
from builder.model.secrets import find_address_secret, find_host, redact

SLURM_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PATH = re.compile(r"(?!-)[A-Za-z0-9._/+@,=~-]+")  # and not an option
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#@+,=%&\[\]-]+")
# Control characters, and halves of surrogate pairs ("\ud800"), which UTF-8 cannot encode.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Characters that control a terminal or change the direction of a line.
TERMINAL_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Byte order marks, the longer ones first: that of UTF-32 begins as that of UTF-16.
MARKS = {
    b"\xff\xfe\x00\x00": "utf-32-le", b"\x00\x00\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be",
}  # fmt: skip

UNTESTED = "built, not tested"  # the word for an image that was built and in which nothing was checked


def make_config_error(code: str, message: str, *, at: Location, fix: str, edit: Edit | None = None) -> ConfigError:
    return ConfigError(Finding(code=code, message=message, at=at, fix=fix, edit=edit))


def sanitize(text: str, *, limit: int = 60) -> str:
    """Make a text safe for a message: one line, shortened, control characters escaped, credentials redacted."""
    text = redact(text)
    plain = CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def is_misleading(url: str) -> bool:
    """Whether an address, once decoded, contains a control character or a step to a parent folder.

    Readers of an address decode it: `%0A` becomes a line break in a list, `%2E%2E` a step out of a folder.
    """
    plain = unquote(url, errors="surrogateescape")
    return bool(CONTROL.search(plain)) or any(part == ".." for part in re.split(r"[/\\?#]", plain))


def escape_control(text: str) -> str:
    """Escape control characters for a terminal; line breaks and tabs stay."""
    return TERMINAL_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_line(text: str) -> str:
    """Escape a text for one line: a line break in a foreign name must not start a new line."""
    return escape_control(text).replace("\n", "\\n").replace("\t", "\\t")


def exists(path: Path) -> bool:
    """Whether a path exists; a path that is too long or loops does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_folder(path: str | Path) -> bool:
    """Whether a path names a folder; one that is too long, loops or cannot be reached does not."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


def refuse_secrets(text: str, *, at: Location) -> None:
    """Raise ConfigError for a text whose addresses hold a password or a token; no part of it is repeated."""
    found = find_address_secret(text)
    if not found and "trusted-host" in text and "@" in text:
        found = "a login"
    if found:
        what = found if found.startswith(("a port", "a fragment")) else "credentials"
        end = "and they would end up in the image" if what == "credentials" else "which may be a part of a password"
        message = f"the address of '{find_host(text)}' contains {what}, {end}"
        fix = "remove them; give them by the environment (PIP_INDEX_URL, UV_DEFAULT_INDEX) when building"
        raise make_config_error("url-secret", message, at=at, fix=fix)


def check_url(url: str, *, at: Location, schemes: tuple[str, ...]) -> None:
    """Raise ConfigError when an address has characters of a shell, a scheme we do not take, or credentials in it."""
    refuse_secrets(url, at=at)
    # Without a scheme no login is recognised: it may be anywhere.
    shown = "***" if "@" in url and "://" not in url else sanitize(url)
    if "$" in url:
        message = f"the address '{shown}' contains a variable, and variables in a recipe are not expanded"
        fix = "write the address out; give secrets by PIP_INDEX_URL or UV_DEFAULT_INDEX when building"
        raise make_config_error("url-variable", message, at=at, fix=fix)
    if not URL.fullmatch(url):
        message = f"the address '{shown}' is not a URL, or contains characters that a URL cannot have"
        raise make_config_error("url-form", message, at=at, fix="check it; write a special character as %XX")
    try:
        parts = urlsplit(url)
    except ValueError:
        fix = "check it"
        raise make_config_error("url-form", f"the address '{shown}' cannot be read", at=at, fix=fix) from None
    scheme = parts.scheme.lower()
    if scheme not in schemes:
        message = f"the address '{shown}' begins with '{scheme}:'"
        raise make_config_error("url-scheme", message, at=at, fix=f"allowed: {', '.join(schemes)}")
    if not parts.hostname and scheme != "file":
        fix = "write https://HOST/..."
        raise make_config_error("url-form", f"the address '{shown}' names no host", at=at, fix=fix)


MAX_NUMBER = 1e15  # larger than any real time, size or rate
TEXT_LIMIT = 400  # characters


def to_number(value: object) -> float | None:
    """Return a finite number of plausible size, else None; tiny values become 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    if not math.isfinite(found) or abs(found) > MAX_NUMBER:
        return None
    return found if abs(found) > 1 / MAX_NUMBER else 0.0


def to_integer(value: object) -> int | None:
    """Return an integer of plausible size, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else None


def to_text(value: object, *, limit: int = TEXT_LIMIT) -> str:
    """Return a scalar as one printable line, "" for any other type."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) > 10**30:
        return "a huge number"  # str() of one refuses past 4300 digits
    return sanitize(str(value), limit=limit) if isinstance(value, (str, int, float)) else ""


def to_dict(value: object) -> dict[str, Any]:
    """Return an object, {} for any other type."""
    return value if isinstance(value, dict) else {}


def to_list(value: object, *, limit: int = 10_000) -> list[Any]:
    """Return a list cut to `limit` items, [] for any other type."""
    return value[:limit] if isinstance(value, list) else []


def to_numbers(value: object) -> tuple[float, ...]:
    """Return the finite numbers among the first 2000 items of a list."""
    return tuple(found for item in to_list(value, limit=2000) if (found := to_number(item)) is not None)


def is_plain_path(path: str) -> bool:
    """Whether a path is relative and printable and stays inside its folder."""
    parts = path.split("/")
    return path.isprintable() and not any(part in ("", ".", "..") for part in parts) and len(path) <= 4096


T = TypeVar("T")
MAX_INTEGER = 2**64  # inode numbers have 64 bits


class MismatchError(ValueError):
    """A value has the wrong type; `key` is the path to it."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(f"{message}, at '{key}'" if key else message)
        self.message, self.key = message, key


def to_dataclass(kind: type[T], value: Any, *, schema: int | None = None, what: str = "file", more: bool = False) -> T:
    """Convert plain data to the dataclass `kind`; raises MismatchError with the first fault.

    `schema` is the required version of the table, `what` its name in messages. With `more` unknown keys are ignored,
    for files that shell scripts write.
    """
    table = _expect(isinstance(value, dict), value, "an object", key="")
    if schema is not None:
        found = table.get("schema")
        if found != schema or isinstance(found, bool):
            other = sanitize(repr(found), limit=40)
            raise MismatchError(f"the {what} has schema {other}, this version reads {schema}", key="schema")
        table = {name: item for name, item in table.items() if name != "schema"}
    if more:
        table = {name: item for name, item in table.items() if name in _list_fields(kind)}
    decoded = _dataclass(kind, table, key="", what=what)
    assert isinstance(decoded, kind)
    return decoded


def _list_fields(kind: Any) -> dict[str, Any]:
    return _shape(kind)[0]


@cache
def _shape(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the types of all fields and the names of the required ones."""
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}, frozenset(needed)


def _decode(kind: Any, value: Any, *, key: str, what: str) -> Any:
    """Convert JSON data to a value of one of the types that our dataclasses use."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, key=key, what=what)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _expect(isinstance(value, str) and value in arguments, value, " or ".join(map(repr, arguments)), key=key)
    if origin in (Union, types.UnionType):
        return None if value is None else _decode(arguments[0], value, key=key, what=what)
    if origin is tuple:
        items = _expect(isinstance(value, list), value, "a list", key=key)
        return tuple(_decode(arguments[0], item, key=f"{key}[{at}]", what=what) for at, item in enumerate(items))
    if origin is collections.abc.Mapping:
        table = _expect(isinstance(value, dict), value, "an object", key=key)
        return {name: _decode(arguments[1], item, key=f"{key}.{name}", what=what) for name, item in table.items()}
    return value if kind is Any else _scalar(kind, value, key=key)


def _scalar(kind: Any, value: Any, *, key: str) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is float:
        fits = number and abs(value) <= MAX_NUMBER and math.isfinite(value)
        return float(_expect(fits, value, "a number" if not number else "a number of a sane size", key=key))
    if kind is int:
        whole = number and isinstance(value, int)
        fits = whole and abs(value) < MAX_INTEGER
        return _expect(fits, value, "a whole number" if not whole else "a whole number of a sane size", key=key)
    return _expect(isinstance(value, kind), value, {str: "text", bool: "true or false"}[kind], key=key)


def _dataclass(kind: Any, value: Any, *, key: str, what: str) -> Any:
    table = _expect(isinstance(value, dict), value, "an object", key=key)
    fields, needed = _shape(kind)
    for name in table:
        if name not in fields:
            raise MismatchError(f"'{sanitize(name)}' is not a key of a {what}", key=f"{key}.{name}".lstrip("."))
    for name in fields:
        if name in needed and name not in table:
            raise MismatchError(f"'{name}' is missing", key=key)
    keys = {name: f"{key}.{name}".lstrip(".") for name in table}
    return kind(**{name: _decode(fields[name], item, key=keys[name], what=what) for name, item in table.items()})


def _expect(ok: bool, value: Any, expected: str, *, key: str) -> Any:
    if not ok:
        raise MismatchError(f"expected {expected}, found {_describe(value)}", key=key)
    return value


def _describe(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= MAX_INTEGER:
        return "a number of too many digits"
    return sanitize(json.dumps(value), limit=40)


def format_number(value: float | None, *, digits: int = 3) -> str:
    """Write a number with so many significant digits, "-" for none."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places > 6 or places < -9:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(places, 0)}f}"


def format_tick(value: float) -> str:
    """Write the number of a tick without trailing zeros."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-4):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:.6f}".rstrip("0").rstrip(".")


def format_duration(seconds: float | None) -> str:
    """Write a time in the unit a reader would choose: 32 ms, 4.1 s, 2 min 05 s, 1 h 10 min."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return "0 s" if seconds == 0 else f"{format_number(seconds * 1000, digits=2 if seconds < 0.01 else 3)} ms"
    return format_clock(seconds)


def format_clock(seconds: float) -> str:
    """Write a time that may still grow: 0.3 s, 4.1 s, 2 min 05 s, 1 h 10 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_bytes(count: float | None) -> str:
    """Write bytes in powers of ten, as disks are sold: 512 B, 34 MB, 1.25 GB."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def format_ratio(value: float | None) -> str:
    """Write a quotient of two measurements."""
    return "-" if value is None else f"{format_number(value)}×"


def convert_marked(data: bytes) -> bytes:
    """Convert text with a byte order mark of UTF-16 or UTF-32 to UTF-8; other data is returned as it is.

    Source: pip's `auto_decode` reads requirements files so.
    """
    mark = next((mark for mark in MARKS if data.startswith(mark)), b"")
    try:
        return data[len(mark) :].decode(MARKS[mark]).encode() if mark else data
    except UnicodeError:
        return data
