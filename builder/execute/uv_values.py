"""The values of the variables that builds and locks hand to uv, checked before one begins: they would stop it halfway.

`recipe doctor` prints the same findings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

from builder.execute.preflight import can_create_folder
from builder.layers.certificates import NAMES, SWITCHES, find_certificates, has_certificates
from builder.layers.uv import INDEXES, SETTINGS
from builder.model.finding import ConfigError, Finding, Location
from builder.model.secrets import redact
from builder.model.text import sanitize

# https://docs.astral.sh/uv/reference/environment/ (uv 0.13)
CHOICES = {
    "UV_INDEX_STRATEGY": ("first-index", "unsafe-first-match", "unsafe-best-match"),
    "UV_KEYRING_PROVIDER": ("disabled", "subprocess"),
    "UV_PRERELEASE": ("disallow", "allow", "if-necessary", "explicit", "if-necessary-or-explicit"),
}
NUMBERS = {  # and the least value: no request is answered in no time
    "UV_HTTP_TIMEOUT": 1,
    "UV_HTTP_CONNECT_TIMEOUT": 1,
    "UV_REQUEST_TIMEOUT": 1,
    "UV_HTTP_RETRIES": 0,
    "UV_CONCURRENT_DOWNLOADS": 1,
}
SWITCH = re.compile(r"(?i)1|0|true|false|yes|no|on|off|y|n|t|f")
# How long ago, as uv 0.13 reads it (no months, no years): `30 days`, `1h30m`, `02:30:00`, `P30D`.
_UNITS = (
    r"w(?:(?:ee)?ks?)?|d(?:ays?)?|h(?:(?:ou)?rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?|ms|millis(?:econds?)?|msecs?"
)
AGO = re.compile(
    rf"(?i)[+-]?(?:(?:\d+(?:\.\d+)?\s*(?:{_UNITS})\s*,?\s*)+(?:ago)?|\d+:\d\d:\d\d"
    r"|P(?=.)(?:\d+W)?(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?)"
)
DAY = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](?P<time>\d\d(?::?\d\d){0,2})(?:\.\d+)?.*)?")
TRUSTED_HOST = re.compile(r"(?:https?://)?(?:\[[0-9A-Fa-f:.]+\]|[\w.*-]+)(?::[0-9]{1,5})?/?")
PATHS = ("APPTAINERENV_PATH", "SINGULARITYENV_PATH")
NAMED = re.compile(r"[A-Za-z0-9_.-]+=(?=.)")  # NAME=ADDRESS


def check_uv_values(environment: Mapping[str, str]) -> None:
    """Raise ConfigError with every variable whose value uv cannot use."""
    findings = tuple(find_uv_faults(environment))
    if findings:
        raise ConfigError(*findings)


def find_uv_faults(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Find each value that uv cannot use."""
    for name in dict.fromkeys((*SETTINGS, *CHOICES, *NUMBERS, *SWITCHES)):
        used = next((key for key in (name, *SETTINGS.get(name, ())) if environment.get(key)), "")
        value = environment.get(used, "")
        if not used:
            continue
        if name in NUMBERS or name in SWITCHES or name in CHOICES:
            yield from _find_wrong_word(name, used, value)
        else:
            yield from _find_wrong_place(name, used, value)
    yield from _find_useless_certificates(environment)
    yield from _find_paths(environment)
    cache = environment.get("UV_CACHE_DIR", "")
    if cache and not can_create_folder(Path(cache)):
        fix = "name a folder of your own"
        yield _make_finding("UV_CACHE_DIR", cache, what="not a folder that you may write to", fix=fix)


def _find_wrong_place(name: str, used: str, value: str) -> Iterator[Finding]:
    """Addresses, hosts, folders and a time; `used` is the variable that gives them."""
    if name in INDEXES:
        words = value.split()
        if name == "UV_DEFAULT_INDEX" and len(words) > 1:
            fix = "write one address, and the others in UV_INDEX"
            yield _make_finding(used, value, what="more than one address", fix=fix)
        for word in words:
            if not _is_place(NAMED.sub("", word, count=1)):
                fix = "write https://HOST/... or a folder that exists, special characters of a login as %XX"
                yield _make_finding(used, word, what="not an address or a folder that can be used", fix=fix)
    elif name == "UV_EXCLUDE_NEWER" and not _is_time(value):
        fix = f"write a day, as in {used}=2026-01-31"
        yield _make_finding(used, value, what="not a time that uv knows", fix=fix)
    elif name == "UV_INSECURE_HOST":
        for word in value.replace(",", " ").split():
            if not TRUSTED_HOST.fullmatch(word):
                yield _make_finding(used, word, what="not the name of a host", fix="write HOST or HOST:PORT")
    elif name == "UV_FIND_LINKS":
        for word in value.replace(",", " ").split():
            if not _is_place(word):
                yield _make_finding(used, word, what="not a folder that exists", fix="make it, or name another")


def _find_paths(environment: Mapping[str, str]) -> Iterator[Finding]:
    """The variables by which a container engine replaces the PATH in its containers."""
    for name in PATHS:
        if environment.get(name):
            what = "the only PATH in every container, where a build's own programs are not found"
            fix = f"set {name.removesuffix('PATH')}PREPEND_PATH instead"
            yield _make_finding(name, environment[name], what=what, fix=fix)


def _find_wrong_word(name: str, used: str, value: str) -> Iterator[Finding]:
    """A number, a switch or a choice; `used` is the variable that gives it."""
    if name in NUMBERS and not (re.fullmatch(r"[0-9]{1,9}", value) and int(value) >= NUMBERS[name]):
        least = f" from {NUMBERS[name]} on" if value.isdecimal() else ""
        yield _make_finding(used, value, what=f"not a whole number{least}", fix=f"write one, as in {used}=60")
    elif name in SWITCHES and not SWITCH.fullmatch(value):
        yield _make_finding(used, value, what="not true or false", fix=f"write {used}=true")
    elif name in CHOICES and value not in CHOICES[name]:
        fix = f"write one of {', '.join(CHOICES[name])}"
        yield _make_finding(used, value, what="not a value that uv knows", fix=fix)


def _is_time(value: str) -> bool:
    """Whether uv reads a value as a day, as a time or as how long ago."""
    found = DAY.fullmatch(value)
    if not found:
        return AGO.fullmatch(value) is not None
    try:
        date.fromisoformat(found[1])
    except ValueError:
        return False
    digits = (found["time"] or "").replace(":", "")
    return all(int(digits[at : at + 2]) < most for at, most in ((0, 24), (2, 60), (4, 61)) if digits[at:])


def _find_useless_certificates(environment: Mapping[str, str]) -> Iterator[Finding]:
    """The file or folder that decides which certificates a build trusts, where it has none."""
    name = next((name for name in NAMES if environment.get(name)), "")
    if not name:
        return
    place, fix = Path(environment[name]), "name the file of certificates"
    if not place.exists():
        yield _make_finding(name, environment[name], what="not a file that exists", fix=fix)
    elif not os.access(place, os.R_OK):
        yield _make_finding(name, environment[name], what="not a file that you may read", fix="check its rights")
    elif not has_certificates(find_certificates({name: environment[name]})):
        kind = "a folder" if place.is_dir() else "a file"
        fix = "name a file in PEM that begins with -----BEGIN CERTIFICATE-----"
        yield _make_finding(name, environment[name], what=f"{kind} without a certificate that can be read", fix=fix)


def _is_place(word: str) -> bool:
    """Whether a word is an address of http or https, or a path or an address of one that exists."""
    if word.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        return Path(unquote(urlsplit(word).path)).exists()
    if "://" not in word:
        return Path(word).expanduser().exists()
    from builder.execute.server_address import parse_server_address

    try:
        parse_server_address(word)
    except ValueError:
        return False
    return True


def _make_finding(name: str, value: str, *, what: str, fix: str) -> Finding:
    # A login that is not written as an address writes it may be anywhere in the word.
    shown = "***" if "@" in value else sanitize(redact(value), limit=200)
    message = f"the value '{shown}' of {name} is {what}"
    return Finding(code="variable", message=message, at=Location(key=name), fix=f"{fix}, or unset {name}")
