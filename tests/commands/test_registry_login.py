"""A login for a registry goes to that registry alone, whatever it answers: small stand-ins play the attackers."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.registry_stand_ins import DIGEST, Reply, StandIn, certificate, found, leads_to, serving, wants

from builder.compile.compile import compile_plan
from builder.compile.render import read_template
from builder.layers import registry as client
from builder.layers.registry import Login, RegistryError, fetch_manifest_digest, find_login
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

NAME, WORD = "reader", "S3CRETpass"
BASIC = "Basic " + base64.b64encode(f"{NAME}:{WORD}".encode()).decode()
Serve = Callable[..., StandIn]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def serve(tls: tuple[Path, Path]) -> Iterator[Serve]:
    """Start a stand-in; with TLS unless `plain`."""
    with ExitStack() as stack:
        yield lambda host="127.0.0.1", plain=False: stack.enter_context(serving(host, tls=None if plain else tls))


@pytest.fixture
def ask(tls: tuple[Path, Path]) -> Callable[[StandIn], str]:
    """Ask a stand-in for an image; there is a login for that host, and for no other."""

    def asked(server: StandIn) -> str:
        def logins(host: str) -> Login | None:
            return (NAME, WORD) if host == server.name else None

        environment = {"SSL_CERT_FILE": str(tls[0])}
        return fetch_manifest_digest(f"docker://{server.name}/team/image:1", logins=logins, environment=environment)

    return asked


def token(_server: StandIn, _path: str, _shown: str) -> Reply:
    return 200, {}, b'{"token": "T0KEN"}'


def test_security_07_a_public_image_is_asked_for_without_a_login(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server = serve()
    server.reply = found
    assert ask(server) == DIGEST
    assert server.seen == [("HEAD", "/v2/team/image/manifests/1", "")]


def test_security_07_a_registry_gets_its_own_login(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server = serve()
    server.reply = wants('Basic realm="x"')
    assert ask(server) == DIGEST
    assert server.shown == [BASIC]


def test_security_07_a_token_is_asked_for_this_image_alone(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server = serve()
    realm = f'Bearer realm="{server.url}/token?scope=repository:other:push",service="s",scope="repository:other:push"'

    def reply(there: StandIn, path: str, shown: str) -> Reply:
        return token(there, path, shown) if path.startswith("/token") else wants(realm)(there, path, shown)

    server.reply = reply
    assert ask(server) == DIGEST
    assert server.shown == [BASIC, "Bearer T0KEN"]
    assert server.seen[1][1] == "/token?service=s&scope=repository%3Ateam%2Fimage%3Apull"


@pytest.mark.parametrize("plain", [True, False], ids=["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_security_07_a_server_of_tokens_elsewhere_never_sees_the_login(
    serve: Serve, ask: Callable[[StandIn], str], host: str, plain: bool
) -> None:
    server, other = serve(), serve(host, plain=plain)
    server.reply, other.reply = wants(f'Bearer realm="{other.url}/token",service="s"'), token
    if plain:
        with pytest.raises(RegistryError, match="without TLS"):
            ask(server)
        assert other.seen == []
    else:
        assert ask(server) == DIGEST  # a token for everybody
    assert other.shown == []


def test_security_07_a_login_that_another_server_wants_is_not_given(
    serve: Serve, ask: Callable[[StandIn], str]
) -> None:
    server, other = serve(), serve("localhost")
    server.reply, other.reply = wants(f'Bearer realm="{other.url}/token"'), wants("Basic", then=token)
    with pytest.raises(RegistryError, match="a server that does not belong to it"):
        ask(server)
    assert other.shown == []


@pytest.mark.parametrize("plain", [True, False], ids=["http", "https"])
def test_security_07_a_redirect_carries_no_login(serve: Serve, ask: Callable[[StandIn], str], plain: bool) -> None:
    server, other = serve(), serve("localhost", plain=plain)
    server.reply, other.reply = wants("Basic", then=leads_to(other.url)), found
    if plain:
        with pytest.raises(RegistryError, match="without TLS"):
            ask(server)
        assert other.seen == []
        return
    with pytest.raises(RegistryError, match="another digest"):  # what it says of the digest is compared with the bytes
        ask(server)
    assert [method for method, _, _ in other.seen] == ["HEAD", "GET"]
    assert other.shown == []


def test_security_07_a_redirect_of_the_server_of_tokens_carries_no_login(
    serve: Serve, ask: Callable[[StandIn], str]
) -> None:
    server, other = serve(), serve("localhost")

    def reply(there: StandIn, path: str, shown: str) -> Reply:
        follow = leads_to(other.url) if path.startswith("/token") else wants(f'Bearer realm="{server.url}/token"')
        return follow(there, path, shown)

    server.reply, other.reply = reply, token
    ask(server)
    assert other.seen
    assert other.shown == []


def test_security_07_who_is_led_to_wants_a_login_and_gets_none(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server, other = serve(), serve("localhost")
    server.reply, other.reply = leads_to(other.url), wants("Basic")
    with pytest.raises(RegistryError, match="leads to another server, and that wants a login"):
        ask(server)
    assert other.shown == []


def test_security_07_redirects_come_to_an_end(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server = serve()
    server.reply = leads_to("")
    with pytest.raises(RegistryError, match="without an end"):
        ask(server)
    assert len(server.seen) == client.REDIRECTS + 1


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://user:word@127.0.0.1/x", "https://"]
)
def test_security_07_other_addresses_are_not_followed(
    serve: Serve, ask: Callable[[StandIn], str], address: str
) -> None:
    server = serve()
    server.reply = lambda *_: (302, {"Location": address}, b"")
    with pytest.raises(RegistryError):
        ask(server)
    server.reply = wants(f'Bearer realm="{address}"')
    with pytest.raises(RegistryError):
        ask(server)
    assert server.shown == []


def test_security_07_the_certificate_is_looked_at(serve: Serve) -> None:
    """Also of a registry of this machine: plain http is for one that knows no TLS, not for one with a wrong name."""
    server = serve()
    server.reply = wants("Basic")
    with pytest.raises(RegistryError, match="could not be reached"):
        fetch_manifest_digest(f"docker://{server.name}/x", logins=lambda _: (NAME, WORD), environment={})
    assert server.seen == []


def test_security_07_plain_http_is_for_this_machine(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server = serve(plain=True)
    server.reply = found
    assert ask(server) == DIGEST


def test_security_07_a_manifest_is_compared_with_its_digest(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server, body = serve(), b'{"schemaVersion": 2}'
    own = f"sha256:{hashlib.sha256(body).hexdigest()}"
    server.reply = lambda *_: (200, {}, body)
    assert ask(server) == own
    named = iter(({}, {"Docker-Content-Digest": DIGEST}))
    server.reply = lambda *_: (200, next(named), body)
    with pytest.raises(RegistryError, match="another digest"):
        ask(server)


def test_security_07_an_answer_has_a_size(serve: Serve, ask: Callable[[StandIn], str]) -> None:
    server = serve()
    server.reply = lambda *_: (200, {}, b" " * (client.ANSWER + 1))
    with pytest.raises(RegistryError, match="more than a manifest"):
        ask(server)


def test_security_07_an_answer_has_a_time(
    serve: Serve, ask: Callable[[StandIn], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    server, gate = serve(), threading.Event()

    def reply(_server: StandIn, _path: str, _shown: str) -> Reply:
        gate.wait(60)
        return 200, {"Docker-Content-Digest": DIGEST}, b""

    server.reply = reply
    monkeypatch.setattr(client, "LONGEST", 0.3)
    try:
        with pytest.raises(RegistryError, match="too long"):
            ask(server)
    finally:
        gate.set()


# --- where logins come from -------------------------------------------------------------------------------------------

HOST = "registry.example.org"


def auth(name: str = NAME, word: str = WORD) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{name}:{word}".encode()).decode()}


@pytest.mark.parametrize(
    ("variable", "file"),
    [
        ("HOME", ".docker/config.json"),
        ("HOME", ".apptainer/docker-config.json"),
        ("HOME", ".singularity/docker-config.json"),
        ("DOCKER_CONFIG", "config.json"),
        ("APPTAINER_CONFIGDIR", "docker-config.json"),
        ("SINGULARITY_CONFIGDIR", "docker-config.json"),
        ("REGISTRY_AUTH_FILE", ""),
    ],
)
def test_security_07_every_file_with_logins(variable: str, file: str, tmp_path: Path) -> None:
    path = tmp_path / file if file else tmp_path / "auth.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"auths": {"other.example.org": auth("x", "y"), f"https://{HOST}/v1/": auth()}}
    path.write_text(json.dumps(document), encoding="utf-8")
    environment = {"HOME": "/nowhere", variable: str(tmp_path if file else path)}
    assert find_login(HOST, environment=environment) == (NAME, WORD)
    assert find_login("third.example.org", environment=environment) is None


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "index.docker.io"])
def test_security_07_dockers_own_registry_has_many_names(key: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {key: auth()}}), encoding="utf-8")
    assert find_login("docker.io", environment={"DOCKER_CONFIG": str(tmp_path)}) == (NAME, WORD)


@pytest.mark.parametrize("setting", [{"credsStore": "stand-in"}, {"credHelpers": {HOST: "stand-in"}}])
def test_security_07_a_program_keeps_the_password(
    setting: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker-credential-stand-in"
    script = f'#!/bin/sh\nread -r key; [ "$1 $key" = "get {HOST}" ] || exit 1\n'
    script += f"""echo '{{"ServerURL": "x", "Username": "{NAME}", "Secret": "{WORD}"}}'\n"""
    program.write_text(script, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "config.json").write_text(json.dumps({**setting, "auths": {HOST: {}}}), encoding="utf-8")
    environment = {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    monkeypatch.setenv("PATH", environment["PATH"])
    assert find_login(HOST, environment=environment) == (NAME, WORD)
    assert find_login("other.example.org", environment=environment) is None


@pytest.mark.parametrize(
    ("host", "realm", "own"),
    [
        ("registry.example.org", "https://registry.example.org/token", True),
        ("registry.example.org", "https://auth.example.org/token", True),
        ("registry.example.org", "https://x.registry.example.org/token", True),
        ("registry.example.org", "https://example.org/jwt/auth", True),
        ("registry.example.org:5050", "https://registry.example.org:5050/token", True),
        ("registry.example.org:5050", "https://auth.example.org/token", True),
        ("registry.example.org", "https://registry.example.org:8443/token", False),
        ("registry.example.org:5050", "https://registry.example.org:5051/token", False),
        ("registry.example.org", "https://auth.example.org:8443/token", False),
        ("registry.example.org", "https://evil.example.org/token", False),
        ("registry.example.org", "https://auth.evil.org/token", False),
        ("registry.example.org", "https://evilregistry.example.org/token", False),
        ("registry.example.org", "https://registry.example.org.evil.org/token", False),
        ("example.org", "https://auth.org/token", False),  # org is nobody's own
        ("example.co.uk", "https://auth.co.uk/token", False),
        ("example.com.au", "https://com.au/token", False),
        ("10.0.0.1", "https://auth.0.0.1/token", False),
        ("127.0.0.1:5000", "https://127.0.0.1:5000/token", False),  # known by its whole address alone
        ("localhost:5000", "https://auth.localhost/token", False),
    ],
)
def test_security_07_which_server_of_tokens_belongs_to_a_registry(host: str, realm: str, own: bool) -> None:
    assert client._is_own_realm(client._split_address(realm), host=host) is own


@pytest.mark.parametrize(
    "realm", ["https://registry.example.org@evil.org/token", "https://a:b@registry.example.org/t", "https://x:99999/t",
              "https://x:-1/t", "https://x:0/t", "https://[::1/t"],
)  # fmt: skip
def test_security_07_an_address_that_reads_otherwise_than_it_is(realm: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        client._split_address(realm)


def helper(path: Path) -> None:
    """A program that has a login for whoever asks, and says that it was asked."""
    path.parent.mkdir(exist_ok=True)
    answer = json.dumps({"ServerURL": "x", "Username": NAME, "Secret": WORD})
    path.write_text(f"#!/bin/sh\ntouch '{path}.asked'\necho '{answer}'\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("key", ["other.example.org", f"{HOST}.evil.example", f"sub.{HOST}", f"{HOST}:5000", "*", ""])
def test_security_07_a_program_of_another_registry_is_not_asked(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(tmp_path / "docker-credential-stand-in")
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {key: "stand-in"}}), encoding="utf-8")
    environment = {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    monkeypatch.setenv("PATH", environment["PATH"])
    assert find_login(HOST, environment=environment) is None
    assert not (tmp_path / "docker-credential-stand-in.asked").exists()


def test_security_07_the_name_of_a_program_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    helper(tmp_path / "docker-credential-x" / "evil")
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "x/evil"}), encoding="utf-8")
    assert find_login(HOST, environment={"DOCKER_CONFIG": str(tmp_path), "PATH": "/usr/bin:/bin"}) is None
    assert not [*tmp_path.rglob("*.asked")]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"auths": []}', '{"auths": {"registry.example.org": 1}}', '{"credsStore": "../x"}',
             '{"credsStore": "that-is-not-there"}', '{"auths": {"registry.example.org": {"auth": "!"}}}'],
)  # fmt: skip
def test_security_07_a_damaged_file_holds_no_login(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert find_login(HOST, environment={"DOCKER_CONFIG": str(tmp_path), "PATH": "/usr/bin:/bin"}) is None


@pytest.mark.parametrize("engine", ["APPTAINER", "SINGULARITY"])
def test_security_07_the_engines_variables_are_for_one_registry(engine: str, tmp_path: Path) -> None:
    environment = {f"{engine}_DOCKER_USERNAME": NAME, f"{engine}_DOCKER_PASSWORD": WORD, "HOME": str(tmp_path)}
    assert find_login(HOST, environment=environment, own=True) == (NAME, WORD)
    assert find_login(HOST, environment=environment, own=False) is None
    environment["RECIPE_REGISTRY"] = HOST
    assert find_login(HOST, environment=environment, own=False) == (NAME, WORD)
    assert find_login("other.example.org", environment=environment, own=True) is None


@pytest.mark.parametrize(
    ("names", "host", "who", "kept"),
    [
        ("", "a.example", "site", True),
        ("", "a.example", "recipe", False),
        ("a.example", "a.example", "recipe", True),
        ("b.example", "a.example", "recipe", False),
        ("b.example", "a.example", "site", False),
    ],
)
@pytest.mark.parametrize("engine", ["APPTAINER", "SINGULARITY"])
def test_security_07_a_build_script_keeps_the_login_for_one_registry(
    names: str, host: str, who: str, kept: bool, engine: str, tmp_path: Path
) -> None:
    (tmp_path / "engine.sh").write_text(read_template("engine.sh"), encoding="utf-8")
    text = f'set -eu; . ./engine.sh; login_for {host} {who}; echo "now ${{{engine}_DOCKER_PASSWORD:-none}}"'
    environment = {
        "PATH": "/usr/bin:/bin",
        "RECIPE_REGISTRY": names,
        f"{engine}_DOCKER_USERNAME": NAME,
        f"{engine}_DOCKER_PASSWORD": WORD,
    }
    done = subprocess.run(
        ["bash", "-c", text], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == f"now {WORD if kept else 'none'}"
    assert kept or f"is not shown to {host}" in done.stdout


@pytest.mark.parametrize(
    ("base", "option", "words"),
    [
        ("docker://evil.example/x:1", "", "evil.example recipe"),
        ("docker://docker.io/library/debian:12", "", "docker.io site"),
        ("docker://evil.example/x:1", "docker://mine.example/x:1", "mine.example site"),
        ("", "", "docker.io site"),
    ],
)
@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_security_07_a_plan_says_who_chose_the_registry(
    base: str, option: str, words: str, backend: str, tmp_path: Path
) -> None:
    path = tmp_path / "env.yml"
    chosen = f"container: {{base: '{base}'}}\n" if base else ""
    path.write_text(f"dependencies: [python=3.12]\n{chosen}", encoding="utf-8")
    context = Context(backend=backend, base=option, tool="recipe")
    plan = compile_plan(resolve(load_recipe(path), load_site("local"), context=context))
    (script,) = (file.text for file in plan.files if file.path == "1-build-image.sh")
    assert f"login_for {words}\n" in script
