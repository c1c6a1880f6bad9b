"""The proxy to indexes that want a login: what is asked through it, what is answered, and what is not."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from support.rows import rows

from builder.layers.index_proxy import IndexProxy

LOGIN = "Basic " + base64.b64encode(b"me:pa ss").decode()
HTML = '<a href="../../files/a%201.whl#sha256=0">a</a><A HREF=/files/b.whl>b</A><a href="https://elsewhere.example/c">c</a>'
PAGES = {
    "/simple/html/": ("text/html", HTML),
    "/simple/based/": ("text/html", "<base href=\"/files/sub/\"><a href='d.whl'>d</a>"),
    "/simple/json/": ("application/vnd.pypi.simple.v1+json", json.dumps({"files": [{"url": "/files/e.whl"}]})),
    "/files/a%201.whl": ("application/octet-stream", "a"),
    "/files/a%201.whl.metadata": ("application/octet-stream", "metadata"),
    "/files/b.whl": ("application/octet-stream", "b"),
    "/files/sub/d.whl": ("application/octet-stream", "d"),
    "/files/e.whl": ("application/octet-stream", "e"),
    "/simple/bad-json/": ("application/vnd.pypi.simple.v1+json", '{"files": [1]}'),
    "/simple/no-json/": ("application/vnd.pypi.simple.v1+json", "[" * 100_000),
    "/api/projects": ("application/json", "{}"),
}
PAGES |= dict.fromkeys(("/simple/../api/projects", "/simple/%2e%2e/api/projects"), PAGES["/api/projects"])
PAGES |= dict.fromkeys(("/simple/..%2fapi/projects", "/simple/..%5Capi/projects"), PAGES["/api/projects"])


class Private(BaseHTTPRequestHandler):
    """An index that wants a login, beside other things of its server."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != LOGIN:
            self.send_response(401)
        elif self.path == "/simple/moved/":
            self.send_response(302)
            self.send_header("Location", self.headers.get("Host", "") and "/simple/html/")
        elif self.path == "/simple/away/":
            self.send_response(302)
            self.send_header("Location", "https://elsewhere.example/simple/")
        elif self.path in PAGES:
            kind, text = PAGES[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())
            return
        else:
            self.send_response(404)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


TOKEN = "S3CRET-t0ken"
BELOW = "/t/S3CRET-t0ken/simple/"
OTHERS = f'<a href="../../../../t/{TOKEN}/f/a.whl">a</a><a href="/t/S3CRET%2Dt0ken/f/a.whl">b</a><p>{TOKEN}</p>'
OTHERS += f'<a href="https://elsewhere.example/t/{TOKEN}/c">c</a>'
TOKENS = {
    f"{BELOW}html/": ("text/html", OTHERS),
    f"{BELOW}json/": ("application/json", json.dumps({"files": [{"url": f"/t/{TOKEN}/f/a.whl"}], "note": TOKEN})),
    f"/t/{TOKEN}/f/a.whl": ("application/octet-stream", "a"),
}


class Tokens(BaseHTTPRequestHandler):
    """An index whose addresses hold a token."""

    def do_GET(self) -> None:
        assert "Authorization" not in self.headers
        kind, text = TOKENS.get(self.path, ("", ""))
        self.send_response(302 if self.path == f"{BELOW}moved/" else 200 if text else 404)
        if self.path == f"{BELOW}moved/":
            self.send_header("Location", f"{BELOW}html/")
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def tokens() -> Iterator[IndexProxy]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as server:
        Thread(target=server.serve_forever, args=(0.002,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}{BELOW}"
        found = IndexProxy(f"export UV_INDEX={address}\\ https://plain.example/simple\n", environment={})
        yield found
        found.close()
        server.shutdown()


@pytest.fixture
def proxy() -> Iterator[IndexProxy]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Private) as server:
        Thread(target=server.serve_forever, args=(0.002,), daemon=True).start()
        address = f"http://me:pa%20ss@127.0.0.1:{server.server_port}/simple/"
        text = f"export UV_INDEX={address}\\ file:///mnt/0\nexport A='b c'\n"
        text += "export https_proxy=http://p:w@proxy.example:1\n"
        found = IndexProxy(text, environment={})
        yield found
        found.close()
        server.shutdown()


def index(proxy: IndexProxy) -> str:
    found = re.search(r"http://127.0.0.1:\d+/[\w-]+/0/simple/", proxy.text)
    assert found is not None
    return found[0]


def asked(address: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=120) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        error.close()
        raise


def test_security_04_settings_name_the_door_and_no_login(proxy: IndexProxy) -> None:
    assert f"export UV_INDEX='{index(proxy)} file:///mnt/0'\n" in proxy.text
    assert "export https_proxy=http://p:w@proxy.example:1\n" in proxy.text  # a proxy is no index
    assert "export A='b c'\n" in proxy.text
    assert not [word for word in ("me:", "pa%20ss", "pa ss") if word in proxy.text]
    assert 'export no_proxy="${no_proxy:+$no_proxy,}127.0.0.1"\n' in proxy.text


@rows(
    ("page", "files"),
    [("html", {"a": "a", "b": "b"}), ("based", {"d": "d"}), ("json", {"e": "e"}), ("moved", {"a": "a"})],
)
def test_security_04_what_a_page_of_the_index_names_is_passed_on(
    proxy: IndexProxy, page: str, files: dict[str, str]
) -> None:
    text = asked(f"{index(proxy)}{page}/")
    links = re.findall(r"http://127[^\"]*", text)
    assert {"".join(asked(link)) for link in links} >= set(files.values())
    if page == "html":
        assert "https://elsewhere.example/c" in text
        assert asked(links[0].partition("#")[0] + ".metadata") == "metadata"  # PEP 658


@rows(
    "path",
    [
        "0/api/projects", "0/files/b.whl", "0/simple/../api/projects", "0/simple/%2e%2e/api/projects",
        "0/simple/..%2fapi/projects", "0/simple/..%5Capi/projects", "1/simple/html/",
        "0/simple", "-1/simple/html/", "x", "", "0/simplex/html/",
    ],
)  # fmt: skip
def test_security_04_the_door_leads_to_the_index_alone(proxy: IndexProxy, path: str) -> None:
    top = index(proxy).removesuffix("0/simple/")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        asked(top + path)


@pytest.mark.parametrize("page", ["bad-json", "no-json"])
def test_security_04_a_page_that_is_none_is_not_passed_on(
    proxy: IndexProxy, page: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(urllib.error.HTTPError, match="502"):
        asked(f"{index(proxy)}{page}/")
    assert "Traceback" not in capfd.readouterr().err


def test_security_04_who_does_not_know_the_word_gets_nothing(proxy: IndexProxy) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        asked(index(proxy).replace(proxy.word, "x" * len(proxy.word)) + "html/")


def test_security_04_no_redirect_carries_the_login_away(proxy: IndexProxy) -> None:
    """A redirect to another server is the asker's own to follow, which has no login."""
    request = urllib.request.Request(f"{index(proxy)}away/")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)
    with pytest.raises(urllib.error.HTTPError) as caught:
        opener.open(request, timeout=120)
    assert caught.value.code == 302
    assert caught.value.headers["Location"] == "https://elsewhere.example/simple/"
    caught.value.close()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: object, **_options: object) -> None:
        return None


@pytest.mark.parametrize("page", ["html", "json", "moved"])
def test_security_04_a_token_in_the_path_stays_behind_the_door(tokens: IndexProxy, page: str) -> None:
    found = re.search(
        r"'(http://127\.0\.0\.1:\d+/[\w-]+/0/t/token-0/simple/) https://plain\.example/simple'", tokens.text
    )
    assert found is not None, tokens.text
    text = asked(f"{found[1]}{page}/")
    links = re.findall(r"http://127[^\"]*", text)
    assert links
    assert {asked(link) for link in links} == {"a"}
    assert "S3CRET" not in tokens.text + text


def test_security_04_a_short_token_is_replaced_behind_its_t_alone() -> None:
    proxy = IndexProxy("export UV_INDEX=https://index.example/t/ab/simple\n", environment={})
    try:
        page = proxy.rewrite_page(
            b"<a href='/dist/ab/x.whl'>x</a><a href='/t/ab/y.whl'>ab</a>",
            kind="text/html",
            address="https://index.example/",
        )
    finally:
        proxy.close()
    links = re.findall(r"http://127[^\"]*", page.decode())
    assert [link.partition("/0/")[2] for link in links] == ["dist/ab/x.whl", "t/token-0/y.whl"]
