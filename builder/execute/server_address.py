"""The address of a server, with its login taken apart from the host: what is asked, shown or logged has none."""

from __future__ import annotations

import base64
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import IO
from urllib.parse import unquote, urlsplit

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """An address of http or https; `login` is the value of the header Authorization, "" without a login."""

    url: str  # without the login
    scheme: str
    host: str
    port: int
    login: str

    def make_request(self, *, method: str) -> urllib.request.Request:
        """Return a request with the login, which a redirect to another server does not take along."""
        request = urllib.request.Request(self.url, method=method)
        if self.login:
            request.add_unredirected_header("Authorization", self.login)
        return request


def parse_server_address(address: str) -> ServerAddress:
    """Take an address of http or https apart; raises ValueError, which repeats no part of the address."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:  # its text may hold a part of the password
        raise ValueError("the address cannot be read") from None
    if parts.scheme not in PORTS or not host or port == 0 or any(char <= " " for char in address):
        raise ValueError("the address is not one of http or https")
    login = ""
    if parts.username is not None:
        words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = f"Basic {base64.b64encode(words.encode()).decode()}"
    name = f"[{host}]" if ":" in host else host
    bare = parts._replace(netloc=name if port is None else f"{name}:{port}").geturl()
    return ServerAddress(url=bare, scheme=parts.scheme, host=host, port=port or PORTS[parts.scheme], login=login)


class LoginRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the login goes along on its own server only."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the next request; None for a code that is no redirect."""
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        login: Mapping[str, str] = req.unredirected_hdrs
        if request is None:
            return None
        request.method = req.get_method()  # before Python 3.13 a redirected HEAD is a GET
        if "Authorization" in login and _is_same_server(req.full_url, newurl):
            request.add_unredirected_header("Authorization", login["Authorization"])
        return request


def _is_same_server(one: str, other: str) -> bool:
    first, second = parse_server_address(one), parse_server_address(other)
    return (first.scheme, first.host, first.port) == (second.scheme, second.host, second.port)
