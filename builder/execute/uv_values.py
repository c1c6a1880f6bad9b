"""The values of the variables that a build hands to uv, checked before it begins: a wrong one stops uv halfway."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from builder.execute.preflight import can_create_folder
from builder.layers.uv import SETTINGS
from builder.model.finding import ConfigError, Finding, Location
from builder.model.secrets import redact
from builder.model.text import sanitize

# https://docs.astral.sh/uv/reference/environment/ (uv 0.13)
CHOICES = {
    "UV_INDEX_STRATEGY": ("first-index", "unsafe-first-match", "unsafe-best-match"),
    "UV_PRERELEASE": ("disallow", "allow", "if-necessary", "explicit", "if-necessary-or-explicit"),
}
NUMBERS = ("UV_HTTP_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT", "UV_REQUEST_TIMEOUT", "UV_HTTP_RETRIES")
ADDRESSES = ("UV_DEFAULT_INDEX", "UV_INDEX")
NAMED = re.compile(r"[A-Za-z0-9_.-]+=(?=.)")  # NAME=ADDRESS


def check_uv_values(environment: Mapping[str, str]) -> None:
    """Raise ConfigError with every variable whose value uv cannot use."""
    findings = tuple(_find_wrong_values(environment))
    if findings:
        raise ConfigError(*findings)


def _find_wrong_values(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name in (*SETTINGS, *NUMBERS[1:]):
        used = next((key for key in (name, *SETTINGS.get(name, ())) if environment.get(key)), "")
        value = environment.get(used, "")
        if not used:
            continue
        if name in NUMBERS and not re.fullmatch(r"[0-9]{1,9}", value):
            yield _make_finding(used, value, what="not a whole number", fix=f"write one, as in {used}=60")
        elif name in CHOICES and value not in CHOICES[name]:
            fix = f"write one of {', '.join(CHOICES[name])}"
            yield _make_finding(used, value, what="not a value that uv knows", fix=fix)
        elif name in ADDRESSES:
            for word in value.split():
                if not _is_place(NAMED.sub("", word, count=1)):
                    fix = "write https://HOST/... or a folder that exists, special characters of a login as %XX"
                    yield _make_finding(used, word, what="not an address or a folder that can be used", fix=fix)
        elif name == "UV_FIND_LINKS":
            for word in value.replace(",", " ").split():
                if not _is_place(word):
                    yield _make_finding(used, word, what="not a folder that exists", fix="make it, or name another")
    cache = environment.get("UV_CACHE_DIR", "")
    if cache and not can_create_folder(Path(cache)):
        fix = "name a folder of your own"
        yield _make_finding("UV_CACHE_DIR", cache, what="not a folder that you may write to", fix=fix)


def _is_place(word: str) -> bool:
    """Whether a word is an address of http, https or file, or a path that exists."""
    if word.startswith("file:"):
        return True
    if "://" not in word:
        return Path(word).expanduser().exists()
    from builder.layers.server_address import parse_server_address

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
