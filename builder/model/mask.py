"""Mask the secrets of an environment in logs, on the screen and in reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

from builder.model.secrets import MASK, QUERY, redact_tokens

_SECRET_PART = re.compile(r"TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|KEY|AUTH_CONFIG", re.IGNORECASE)
# Names like those of secrets that are none: an identifier, or the place of the secret.
_HARMLESS_NAME = re.compile(r"(_ID|_FILE|_PATH|_DIR|_SOCK|_TYPE|_BACKEND|_PROVIDER)$", re.IGNORECASE)
_PROXY_NAME = re.compile(r"_proxy$", re.IGNORECASE)
# Before the host, which begins behind the last @ where a password holds one; a port is no password.
_USER = r"[^\s/@:]*:(?!\d{1,5}(?:[/?#]|$))"
_URL_USER = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://({_USER}.*|[^\s/@]+)@")
_URL_PASSWORD = re.compile(rf"(?<=://){_USER}[^\s'\"<>]*(?=@(?!sha256:))")
_URL_TOKEN = re.compile(r"(://[^\s'\"]*?/t/)([^/?#\s'\"]+)")
_LOGIN = re.compile(r"((?:Basic|Bearer)\s+)[A-Za-z0-9._~+/=-]{8,}")

_SHORTEST = 4  # a shorter value would blank out ordinary words
_SHORTEST_USER = 8  # `git` in ssh://git@host is no secret; a token in its place is long


class Mask:
    """Replace the secrets of an environment, passwords and tokens in any URL, and known shapes of tokens by ***."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = sorted(set(_list_secrets(environment)), key=lambda value: (-len(value), value))
        self._known = re.compile("|".join(map(re.escape, values))) if values else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        if "://" in text:
            text = _URL_TOKEN.sub(rf"\1{MASK}", _URL_PASSWORD.sub(MASK, text) if "@" in text else text)
        if "?" in text or "&" in text:
            text = QUERY.sub(rf"\1={MASK}", text)
        return redact_tokens(_LOGIN.sub(rf"\1{MASK}", text) if "uthorization" in text else text)


def _list_secrets(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if _SECRET_PART.search(name) and not _HARMLESS_NAME.search(name):
            # A key may have several lines, and output comes line by line.
            for part in value.splitlines():
                yield from _list_forms(part.strip(), shortest=_SHORTEST)
        if _PROXY_NAME.search(name) and "://" not in value:
            value = f"http://{value}"  # what reads it adds that too
        for word in [value] if value.count("://") == 1 else value.split():
            for found in _URL_USER.finditer(word):
                yield from _list_url_secrets(found.group(1))
            for found in (*_URL_TOKEN.finditer(word), *QUERY.finditer(word)):
                yield from _list_forms(found[2], shortest=_SHORTEST)


def _list_url_secrets(user: str) -> Iterator[str]:
    name, colon, password = user.partition(":")
    if colon:
        yield from (*_list_forms(user, shortest=_SHORTEST), *_list_forms(password, shortest=_SHORTEST))
    else:
        yield from _list_forms(name, shortest=_SHORTEST_USER)


def _list_forms(secret: str, *, shortest: int) -> Iterator[str]:
    """Return a secret as it is, and as it is quoted in an address."""
    plain = unquote(secret)
    forms = {secret, plain, quote(plain, safe=""), quote(plain), quote_plus(plain)}
    yield from (form for form in forms if len(form) >= shortest)
