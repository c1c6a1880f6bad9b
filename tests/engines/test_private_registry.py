"""A real registry that wants a login, with a certificate of its own: `recipe lock`, and layers by Apptainer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from lock_room import LockRoom
from private_registry import NAME, WORD, log_in, serve_registry
from recipe_program import Room, inside
from stand_ins.images import docker, stand_in_debian

from builder.layers.registry import RegistryError, fetch_manifest_digest, find_login

pytestmark = pytest.mark.engines

READ_ONLY = ", maintenance: {readonly: {enabled: true}}"


@dataclass(frozen=True, kw_only=True)
class Private:
    """A registry behind a login; `image` is the tests' Debian in it."""

    host: str
    cert: Path
    image: str

    def environment(self, room: LockRoom) -> dict[str, str]:
        """The certificate is known, and the user has no login."""
        return room.environment(SSL_CERT_FILE=str(self.cert))


@pytest.fixture(scope="module")
def private(
    tmp_path_factory: pytest.TempPathFactory, docker_daemon: str, base_tar: Path, registry: str
) -> Iterator[Private]:
    """It serves what was pushed into the registry of the tests."""
    del docker_daemon
    name = f"{registry}/{stand_in_debian(base_tar)}"
    docker("tag", stand_in_debian(base_tar), name)
    docker("push", "--quiet", name)
    data = Path(os.environ["RECIPE_DEV_HOME"]) / "registry" / "data"
    with serve_registry(tmp_path_factory.mktemp("registry"), data=data, more=READ_ONLY) as (host, cert):
        yield Private(host=host, cert=cert, image=name.partition("/")[2])


@pytest.fixture
def room(rooms: Callable[[str], Room], request: pytest.FixtureRequest) -> LockRoom:
    return LockRoom(rooms(f"registry/{request.node.name}").folder)


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
