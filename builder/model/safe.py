"""What a text of a recipe may hold: patterns that keep names, versions and addresses from becoming commands."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from builder.model.finding import ConfigError, Edit, Finding, Place
from builder.model.secrets import hidden, host_in, in_addresses

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PATH = re.compile(r"(?!-)[A-Za-z0-9._/+@,=~-]+")  # no option either
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#@+,=%&\[\]-]+")
# Control characters and what no UTF-8 file can hold (half a surrogate pair, from an escape such as "\ud800").
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# What a terminal obeys, and what turns the direction of a line, so that it reads otherwise than it is.
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
USER = re.compile(r"//[^/@\s]+@")
TOKEN = re.compile(r"/t/[^/]+/")  # anaconda.org keeps the token of a private channel in the path


def refusal(code: str, message: str, *, at: Place, fix: str, edit: Edit | None = None) -> ConfigError:
    """Make the error for one fault."""
    return ConfigError(Finding(code=code, message=message, at=at, fix=fix, edit=edit))


def shown(text: str, *, limit: int = 60) -> str:
    """Return a text as it can stand in a message: one line, cut, control characters escaped, credentials left out."""
    text = hidden(text)
    plain = CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def misleads(url: str) -> bool:
    """Say whether an address, decoded, holds a control character or a step to a parent folder.

    What reads an address decodes it: `%0A` is then a line of a list, `%2E%2E` a step out of a folder.
    """
    plain = unquote(url, errors="surrogateescape")
    return bool(CONTROL.search(plain)) or any(part == ".." for part in re.split(r"[/\\?#]", plain))


def visible(text: str) -> str:
    """Return a text as a terminal may have it: control characters written out; its lines and tabs stay."""
    return UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str) -> str:
    """Return a text as a part of a line: no line break of a foreign name begins a line of ours."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def is_there(path: Path) -> bool:
    """Say whether a path exists; one that is too long or loops does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def refuse_secrets(text: str, *, at: Place) -> None:
    """Raise ConfigError for a text whose addresses hold a password or a token; no part of it is repeated."""
    found = in_addresses(text)
    if not found and "trusted-host" in text and "@" in text:
        found = "a login"
    if found:
        what = found if found.startswith(("a port", "a fragment")) else "credentials"
        end = "and they would end up in the image" if what == "credentials" else "which may be a part of a password"
        message = f"the address of '{host_in(text)}' has {what} in it, {end}"
        fix = "remove them; give them by the environment (PIP_INDEX_URL, UV_DEFAULT_INDEX) when building"
        raise refusal("url-secret", message, at=at, fix=fix)


def check_url(url: str, *, at: Place, schemes: tuple[str, ...]) -> None:
    """Raise ConfigError when an address has characters of a shell, a scheme we do not take, or credentials in it."""
    refuse_secrets(url, at=at)
    if "$" in url:
        message = f"the address '{shown(url)}' holds a variable, and a recipe is read as it stands"
        fix = "write the address out; give secrets by PIP_INDEX_URL or UV_DEFAULT_INDEX when building"
        raise refusal("url-variable", message, at=at, fix=fix)
    if not URL.fullmatch(url):
        message = f"the address '{shown(url)}' is not a URL, or holds characters that a URL cannot have"
        raise refusal("url-form", message, at=at, fix="check it; write a special character as %XX")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise refusal("url-form", f"the address '{shown(url)}' cannot be read", at=at, fix="check it") from None
    scheme = parts.scheme.lower()
    if scheme not in schemes:
        message = f"the address '{shown(url)}' begins with '{scheme}:'"
        raise refusal("url-scheme", message, at=at, fix=f"allowed: {', '.join(schemes)}")
    if not parts.hostname and scheme != "file":
        raise refusal("url-form", f"the address '{shown(url)}' names no host", at=at, fix="write https://HOST/...")
