"""A real registry that wants a login, with a certificate of its own: `recipe lock`, and layers by Apptainer."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from lock_room import LockRoom
from recipe_program import Room, inside
from smoke_program import free_port
from stand_ins.images import docker, stand_in_debian
from support.registry_stand_ins import certificate

from builder.layers.registry import RegistryError, fetch_manifest_digest, find_login

pytestmark = pytest.mark.engines

NAME, WORD = "reader", "S3CRETpass"


@dataclass(frozen=True, kw_only=True)
class Private:
    """A registry behind a login; `image` is the tests' Debian in it."""

    host: str
    cert: Path
    image: str

    def environment(self, room: LockRoom) -> dict[str, str]:
        """The certificate is known, and the user has no login."""
        return room.environment(SSL_CERT_FILE=str(self.cert))


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def private(
    tmp_path_factory: pytest.TempPathFactory, docker_daemon: str, base_tar: Path, registry: str
) -> Iterator[Private]:
    """It serves what was pushed into the registry of the tests."""
    del docker_daemon
    name = f"{registry}/{stand_in_debian(base_tar)}"
    docker("tag", stand_in_debian(base_tar), name)
    docker("push", "--quiet", name)
    folder = tmp_path_factory.mktemp("registry")
    cert, key = certificate(folder)
    hashed = ["perl", "-e", "print crypt($ARGV[0], '$2y$05$' . 'abcdefghijklmnopqrstuu')", WORD]
    line = subprocess.run(hashed, check=True, capture_output=True, text=True).stdout
    (folder / "htpasswd").write_text(f"{NAME}:{line}\n", encoding="utf-8")
    port = int(free_port())
    data = Path(os.environ["RECIPE_DEV_HOME"]) / "registry" / "data"
    (folder / "config.yml").write_text(
        "version: 0.1\nlog: {level: warn}\n"
        f"storage: {{filesystem: {{rootdirectory: {data}}}, maintenance: {{readonly: {{enabled: true}}}}}}\n"
        f"auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}\n"
        f'http: {{addr: "127.0.0.1:{port}", tls: {{certificate: {cert}, key: {key}}}}}\n',
        encoding="utf-8",
    )
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120
        while not answers(port):
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        yield Private(host=f"127.0.0.1:{port}", cert=cert, image=name.partition("/")[2])
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def room(rooms: Callable[[str], Room], request: pytest.FixtureRequest) -> LockRoom:
    return LockRoom(rooms(f"registry/{request.node.name}").folder)


def log_in(room: LockRoom, host: str, *, file: str = ".docker/config.json") -> None:
    """What `docker login` or `apptainer registry login` writes."""
    auth = base64.b64encode(f"{NAME}:{WORD}".encode()).decode()
    path = room.write(f"home/{file}", json.dumps({"auths": {host: {"auth": auth}}}))
    path.chmod(0o600)


def words(room: LockRoom, *more: str) -> tuple[str | Path, ...]:
    return ("local", room.folder / "demo.yml", "-o", room.folder / "x.sif", "--backend", "layers", "--no-smoke", *more)


RECIPE = "name: demo\ndependencies: []\ncontainer: {{base: 'docker://{image}', labels: {{a: b}}}}\n"


def test_security_07_a_login_reaches_a_real_registry(private: Private, room: LockRoom) -> None:
    reference, environment = f"docker://{private.host}/{private.image}", private.environment(room)
    logins = partial(find_login, environment=environment)
    with pytest.raises(RegistryError, match="401, and there is no login for it"):
        fetch_manifest_digest(reference, logins=logins, environment=environment)
    log_in(room, private.host)
    assert fetch_manifest_digest(reference, logins=logins, environment=environment).startswith("sha256:")


@pytest.mark.parametrize("file", [".docker/config.json", ".apptainer/docker-config.json"])
def test_security_07_a_lock_of_a_base_image_behind_a_login(private: Private, room: LockRoom, file: str) -> None:
    env = room.write("demo.yml", RECIPE.format(image=f"{private.host}/{private.image}"))
    certificate = {"SSL_CERT_FILE": str(private.cert)}
    done = room.locked("local", env=env, **certificate).expect(0)
    assert "is locked by its name alone: the registry answered 401, and there is no login for it" in done.err
    log_in(room, private.host, file=file)
    room.locked("local", env=env, **certificate).expect(0)
    assert room.read("local", env=env).base.digest.startswith("sha256:")


def test_security_07_the_users_login_is_not_for_a_recipes_registry(private: Private, room: LockRoom) -> None:
    room.write("demo.yml", RECIPE.format(image=f"{private.host}/{private.image}"))
    settings = {
        "SSL_CERT_FILE": str(private.cert), "APPTAINER_DOCKER_USERNAME": NAME, "APPTAINER_DOCKER_PASSWORD": WORD,
        "APPTAINER_NOHTTPS": "",
    }  # fmt: skip
    room.recipe("build", *words(room), **settings).expect(5)
    log = room.log(room.folder / "x.plan")
    assert f"the login in the environment is not shown to {private.host}" in log
    assert WORD not in log
    room.recipe("build", *words(room), RECIPE_REGISTRY=private.host, **settings).expect(0)
    assert "Python" in inside(room.folder / "x.sif", "python3", "--version")
    (room.folder / "x.sif").unlink()
    room.recipe("build", *words(room, "--base", f"docker://{private.host}/{private.image}"), **settings).expect(0)
