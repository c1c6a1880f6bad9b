"""Detect passwords and tokens, by addresses, names and shapes, and mask them in logs, on the screen and in reports.

Every image contains its recipe, so a recipe must not contain secrets. A detected secret is never printed. Shapes:
https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
# Bounded, because a value of a recipe may have millions of characters.
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
KEY = r"(?:token|auth|authorization|key|apikey|sig|signature|password|passwd|pwd|pass|secret|credentials?|jwt|keyid)"
QUERY_KEY = re.compile(rf"(?:.*[-_.])?{KEY}|.*(?:token|secret|password|signature|apikey|keyid)", re.IGNORECASE)
FRAGMENT = re.compile(r"(?:(?:egg|subdirectory|sha\d+|md5)=[^&]*(?:&|$))*|[0-9a-f]{32}|(?:sha256:)?[0-9a-f]{64}")
PORT = re.compile(r"\d{1,5}(?=[/?#\s,;\])]|$)")
VCS_SCHEMES, VCS_TAG = (
    ("git", "hg", "svn", "bzr"),
    re.compile(r"\d+/(?:[^@\s]*/[^@\s]*|[^@\s]*\.git)@"),
)  # PORT/REPOSITORY@TAG
PATH_TOKEN = re.compile(r"/t/[^/?#\s]+")  # anaconda.org keeps the token of a private channel in the path
ACCOUNT = re.compile(r"[a-z][a-z0-9_-]{0,31}")
VARIABLE = re.compile(r"[$%{<]")  # starts a reference, which is not a secret

# The package indexes of pip and uv.
INDEXES = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS",
    "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
)  # fmt: skip

PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy")  # as builds read them

USER = re.compile(r"://[^/\s]*@")  # in an address with a scheme
PROXY_USER = re.compile(r"(?:\S*?://)?[^/\s]*@")  # a proxy may have no scheme

ANY_USER = re.compile(r"//[^/@\s]+@")  # of every address in a text
ANY_PATH_TOKEN = re.compile(r"/t/[^/]+/")
FILE_ADDRESS = re.compile(r"(file://(?:(?!://)[^\s'\"])*)", re.IGNORECASE)  # a path of a machine: /t/ is a folder
LOGIN = re.compile(r"//[^/@\s:]*:(?!\d{1,5}(?:[/?#]|$)).*@|//[^/@\s]*@", re.DOTALL)
QUERY = re.compile(
    rf"(?<=[?&;])((?:[\w.-]*[-_.])?{KEY}|[\w.-]*(?:token|signature|secret))=([^&#\s'\"]+)", re.IGNORECASE
)

SECRET_NAME = re.compile(
    r"(?:.*[_.-])?(?:PASS|PWD|PASSPHRASE|SECRETS?|CREDENTIALS?)|.*(?:PASSWORD|PASSWD)|SSHPASS", re.I
)
TOKEN_NAME = re.compile(r"(?:.*[_.-])?(?:TOKEN|APIKEY)|.+[_.-](?:API|ACCESS)?KEY(?:_ID)?", re.IGNORECASE)
HARMLESS_VALUE = re.compile(
    r"|true|false|yes|no|on|off|none|null|[-+]?[0-9]{1,6}(?:\.[0-9]+)?|(?:\.{0,2}|~)/.*|file:.*|<.*>|\[.*\]",
    re.I | re.S,
)
WORD = re.compile(r"[a-z]+(?:[_-][a-z]+)*")
ASSIGNMENT = re.compile(r"(?<![\w$.-])([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;&|)]+)")
OPTION = re.compile(
    r"--([a-z-]{0,40}(?:password|token|api-key|secret|secret-key))(?:=|\s+)(\"[^\"]*\"|'[^']*'|[^\s-]\S*)"
)
HEADER = re.compile(r"authorization:\s*(?:bearer|basic|token)\s+(?![$%{<])[\w.~+/=-]{6,}", re.IGNORECASE)


# A fixed part of each shape: the long pattern is searched only in texts that contain one of them.
_PARTS = ("hf_", "gh", "gl", "AKIA", "ASIA", "xox", "sk-", "npm_", "pypi-AgE", "dckr_pat_", "nvapi-", "AIza", "hvs.",
          "ya29.", "eyJ", "PRIVATE KEY")  # fmt: skip


@cache
def _compile_shapes() -> re.Pattern[str]:
    return re.compile(
        r"(?<![A-Za-z0-9_])(?:"
        r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w-]{16,}"
        r"|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abeprs]-[A-Za-z0-9-]{10,}|sk-(?:proj-|ant-\w+-|or-)?[A-Za-z0-9_]{20,}"
        r"|npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{16,}|dckr_pat_[\w-]{16,}|nvapi-[\w-]{16,}|AIza[\w-]{35}|hvs\.[\w-]{20,}"
        r"|ya29\.[\w-]{20,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"
        r")|-----BEGIN [A-Z ]*PRIVATE KEY"
    )


def has_token(text: str) -> bool:
    """Whether a text contains a string with the shape of a token."""
    return any(map(text.__contains__, _PARTS)) and _compile_shapes().search(text) is not None


def redact_tokens(text: str) -> str:
    return _compile_shapes().sub(MASK, text) if any(map(text.__contains__, _PARTS)) else text


def redact(text: str) -> str:
    """Redact everything that looks like a secret; in doubt, redact more."""
    if "//" in text:
        head, at, tail = text.rpartition("@")  # cut after the last @: no login follows it
        text = LOGIN.sub(f"//{MASK}@", head + at) + tail
        text = _replace_path_tokens(PATH_TOKEN, f"/t/{MASK}", text)
    if "=" in text:
        text = QUERY.sub(rf"\1={MASK}", text)
    text = redact_tokens(text)
    bare = text.replace(f"{MASK}@", "").replace(f"/t/{MASK}", "").replace(f"={MASK}", "=")
    if find_address_secret(bare):  # no pattern matches its form: show the scheme only
        return f"{text.partition('://')[0]}://{MASK}"
    return text


def strip_credentials(address: str) -> str:
    """Return the address of a file without user, token and signature; the hash of the file identifies its content."""
    address = re.sub(r"//[^/@\s]+@", "//", address) if "ssh://" not in address else address
    address = _replace_path_tokens(PATH_TOKEN, "", address)
    return re.split(r"[?#]", address, maxsplit=1)[0] if find_address_secret(address) else address


def strip_all_credentials(text: str) -> str:
    """Remove users, passwords and tokens from every address of a text."""
    text = re.sub(r"(\.(?:conda|tar\.bz2))\?[^\s'\"#]+", r"\1", text)
    return _replace_path_tokens(ANY_PATH_TOKEN, "/", ANY_USER.sub("//", text))


def _replace_path_tokens(pattern: re.Pattern[str], by: str, text: str) -> str:
    """Replace the tokens in the paths of a text, but not in addresses of files of this machine."""
    parts = FILE_ADDRESS.split(text)  # the addresses are at the odd places
    parts[::2] = [pattern.sub(by, part) for part in parts[::2]]
    return "".join(parts)


def has_login(addresses: str) -> bool:
    """Whether one of several index addresses contains a user name or a token in its path."""
    return bool(USER.search(addresses) or PATH_TOKEN.search(re.sub(r"(?<!\S)(?:file://)?/\S*", "", addresses)))


def looks_random(text: str, *, least: int) -> bool:
    """Whether a word looks generated: letters of both cases and digits, in pieces too short to read."""
    if len(text) < least or not re.fullmatch(r"[A-Za-z0-9]+", text):
        return False
    pieces = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)
    kinds = [any(map(kind, text)) for kind in (str.isupper, str.islower, str.isdigit)]
    return all(kinds) and len(text) < 3 * len(pieces)


def find_address_secret(text: str, *, words: bool = False) -> str:
    """Return the kind of secret that the addresses of a text contain, "" if none.

    The text is one address with its attributes, and a blank may be part of a password; with `words` it is a command,
    and an address ends with its word.
    """
    starts = list(ADDRESS.finditer(text))
    for at, match in enumerate(starts):
        rest = text[match.end() : starts[at + 1].start() if at + 1 < len(starts) else None]
        rest = re.split(r"[\s'\"`;|<>]", rest, maxsplit=1)[0] if words else rest
        found = _find_user_secret(rest, scheme=match[1].lower()) or _find_path_secret(
            rest, strict=not words, on_server=not match[1].lower().endswith("file")
        )
        if found:
            return found
    return "a token" if has_token(text) else ""


def _find_user_secret(rest: str, *, scheme: str) -> str:
    """Check the part before the host; with an @ in the password the host begins after the last one."""
    if scheme in ("docker", "oras", "library"):  # NAME:TAG@DIGEST
        return ""
    user, colon, behind = re.sub(r"^\[[0-9a-fA-F:.]+\]", "host", rest).partition(":")
    if colon and behind and not VARIABLE.match(behind) and not re.search(r"[/@?#\s]", user):
        port = PORT.match(behind)
        if port is None:
            return "a password" if "@" in behind else "a port that is no number"
        if "@" in re.split(r"\s", behind, maxsplit=1)[0] and not (
            scheme.startswith(VCS_SCHEMES) and VCS_TAG.match(behind)
        ):
            return "a password"
    name, at, _ = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    if not at or VARIABLE.match(name):
        return ""
    if not scheme.endswith("ssh"):
        return "a user"
    known = ACCOUNT.fullmatch(name) and not has_token(name) and not (len(name) > 15 and re.search(r"\d", name))
    return "" if known else "a token in the place of the user"


def _find_path_secret(rest: str, *, strict: bool, on_server: bool) -> str:
    """Check the path, the query and the fragment; in a path of this machine /t/ is a folder."""
    body, _, fragment = rest.partition("#")
    path, _, query = body.partition("?")
    if on_server and PATH_TOKEN.search(path):
        return "a token in its path"
    for pair in re.split(r"[&;]", query.split(" ")[0]):
        name, _, value = pair.partition("=")
        secret = QUERY_KEY.fullmatch(unquote(name)) and value and not VARIABLE.match(value)
        if secret or any(looks_random(unquote(word), least=6 if word is name else 16) for word in (name, value)):
            return "a token in its query"
    fragment = re.split(r"[\s\]]", fragment, maxsplit=1)[0]
    pairs = [pair.partition("=") for pair in fragment.split("&")]
    if any(QUERY_KEY.fullmatch(unquote(name)) and value for name, _, value in pairs):
        return "a token in its fragment"
    return "a fragment that no installer reads" if strict and not FRAGMENT.fullmatch(fragment) else ""


def find_host(text: str) -> str:
    """Return the host of an address with a secret, for a message: the name after the last @, else after ://."""
    found = re.match(r".*@([A-Za-z0-9.-]+)", text, re.DOTALL) or re.search(r"://([A-Za-z0-9.-]+)", text)
    return found[1] if found else "an index"


def find_random_parts(address: str) -> Iterator[str]:
    """Find the parts of an address's path that look generated: some indexes put a token there."""
    path = re.split(r"[?#]", address.partition("://")[2], maxsplit=1)[0]
    yield from (part for part in path.split("/")[1:] if looks_random(part, least=10))


def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable or label holds a secret, by its name and its value."""
    if HARMLESS_VALUE.fullmatch(value.strip()) or VARIABLE.match(value.strip()):
        return False
    return bool(SECRET_NAME.fullmatch(name)) or bool(TOKEN_NAME.fullmatch(name) and not WORD.fullmatch(value.strip()))


def find_value_secret(name: str, value: str) -> str:
    """Return the kind of secret that a variable or label holds, "" if none."""
    if is_secret_variable(name, value):
        return "a value whose name says that it is a secret"
    return find_address_secret(value, words=True)


def find_command_secret(text: str) -> str:
    """Return the kind of secret that a shell command contains, "" if none."""
    if HEADER.search(text):
        return "a login"
    for match in (*ASSIGNMENT.finditer(text), *OPTION.finditer(text)):
        name, value = match[1], match[2].strip("'\"")
        exported = name.isupper() or re.fullmatch(r"(?=.*\d)[\w.~+/=@!-]{6,}", value)
        if exported and is_secret_variable(name, value):
            return "a value whose name says that it is a secret"
    if re.search(r"--trusted-host[= ]\S*@", text):
        return "a login"
    return find_address_secret(text, words=True)


_SECRET_PART = re.compile(r"TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|KEY|AUTH_CONFIG", re.IGNORECASE)
# Names like those of secrets that are none: an identifier, or the place of the secret.
_HARMLESS_NAME = re.compile(r"(_ID|_FILE|_PATH|_DIR|_SOCK|_TYPE|_BACKEND|_PROVIDER)$", re.IGNORECASE)
_PROXY_NAME = re.compile(r"_proxy$", re.IGNORECASE)
# Before the host, which begins behind the last @ where a password holds one; a port is no password.
_USER = r"[^\s/@:]*:(?!\d{1,5}(?:[/?#]|$))"
_URL_USER = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://({_USER}.*|[^\s/@]+)@")
_URL_PASSWORD = re.compile(rf"(?<=://){_USER}[^\s'\"<>]*(?=@(?!sha256:))")
_URL_TOKEN = re.compile(r"((?<!file)://[^\s'\"]*?/t/)([^/?#\s'\"]+)")
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
