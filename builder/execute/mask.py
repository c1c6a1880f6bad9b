"""Secrets out of sight: what must not reach a log, a screen or a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

HIDDEN = "***"

_SECRET_NAME = re.compile(r"TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|KEY|AUTH_CONFIG", re.IGNORECASE)
# Names that speak of a secret and hold none: an identifier, or where the secret is kept.
_HARMLESS_NAME = re.compile(r"(_ID|_FILE|_PATH|_DIR|_SOCK|_TYPE|_BACKEND|_PROVIDER)$", re.IGNORECASE)
_URL_USER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^\s/@]+)@")
_URL_PASSWORD = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)")

_SHORTEST = 4  # a shorter value would blank out ordinary words
_SHORTEST_USER = 8  # `git` in ssh://git@host is no secret; a token in its place is long


class Mask:
    """Replace the secrets of an environment, and passwords in any URL, by ***."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = sorted(set(_secrets(environment)), key=lambda value: (-len(value), value))
        self._known = re.compile("|".join(map(re.escape, values))) if values else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return _URL_PASSWORD.sub(HIDDEN, text) if "://" in text and "@" in text else text


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and not _HARMLESS_NAME.search(name):
            # A key may have several lines, and output comes line by line.
            yield from (line for part in value.splitlines() if len(line := part.strip()) >= _SHORTEST)
        for found in _URL_USER.finditer(value):
            yield from _of_url(found.group(1))


def _of_url(user: str) -> Iterator[str]:
    name, colon, password = user.partition(":")
    forms = {user, unquote(user), password, unquote(password)} if colon else {name, unquote(name)}
    shortest = _SHORTEST if colon else _SHORTEST_USER
    yield from (form for form in forms if len(form) >= shortest)
