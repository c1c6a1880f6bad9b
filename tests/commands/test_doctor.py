"""recipe doctor with stand-ins for programs: what each site's default backend lacks, said with its fix, exit code 4."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from builder.cli.doctor import run_command
from builder.execute.docker_daemon import examine_docker, has_own_buildkit
from builder.execute.doctor import CONTROLLER, examine, examine_sites, query_version_lines
from builder.execute.doctor_binds import examine_bind_paths
from builder.execute.doctor_network import examine_network, find_default_index, list_servers
from builder.execute.doctor_readings import examine_places
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that answer at once do so within the limits of a busy machine."""
    own = ("doctor.SECONDS", "doctor.CONTROLLER", "doctor_readings.SECONDS", "docker_daemon.PATIENCE")
    for name in (*own, "doctor_network.SECONDS"):
        monkeypatch.setattr(f"builder.execute.{name}", 120.0)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that alone is on PATH, and an empty home."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr("builder.execute.doctor.MORE", str(folder))
    for name in ("DOCKER_HOST", "BASH_ENV", "LMOD_CMD", "RECIPE_UV", "RECIPE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def asked(*words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    answer = CliRunner().invoke(run_command, [*words, "--offline", "--format", "json"])
    content = json.loads(answer.stdout)
    assert content["schema"] == 1
    return answer.exit_code, {one["name"]: one for one in content["readings"]}


@pytest.mark.usefixtures("programs")
def test_a_machine_without_engines_cannot_build() -> None:
    code, found = asked("local")
    assert code == 4
    assert {name for name, one in found.items() if one["state"] == "bad"} == {
        "mksquashfs", "unsquashfs", "apptainer or singularity",
    }  # fmt: skip
    assert all(one["fix"] for one in found.values() if one["state"] == "bad")


def test_one_with_them_can(programs: Path) -> None:
    for name in ("mksquashfs", "unsquashfs"):
        stand_in(programs, name, f'echo "{name} version 4.6.1 (2023/03/25)"; echo copyright; exit 1')
    stand_in(programs, "apptainer", 'echo "apptainer version 1.4.5"')
    stand_in(programs, "mpiexec", 'echo "HYDRA build details:"; echo "    Version:     4.2"')
    code, found = asked("local")
    assert code == 0
    assert found["mksquashfs"]["says"] == "mksquashfs version 4.6.1 (2023/03/25)"
    assert found["mpiexec"]["says"] == "Version: 4.2"
    assert "installed with recipe" in found["uv"]["says"]


@pytest.mark.usefixtures("programs")
def test_a_machine_of_no_site_says_so(tmp_path: Path) -> None:
    readings = {
        one.name: one for one in examine(load_site("lumi-g"), environment=os.environ, root=tmp_path, offline=True)
    }
    assert readings["modules"].state == readings["base image"].state == "bad"
    assert "recipe plan lumi-g ENV" in readings["modules"].fix
    sites = {name: load_site(name) for name in ("local", "lumi-g", "mn5")}
    assert [one.state for one in examine_sites(sites, environment=os.environ, root=tmp_path)] == ["none"] * 3


def test_a_controller_that_does_not_answer_is_said(programs: Path) -> None:
    stand_in(programs, "sbatch", 'echo "slurm 23.11.4"')
    stand_in(programs, "scontrol", 'echo "Slurmctld(primary) at login1 is DOWN"')
    assert asked("lumi-g")[1]["controller"]["state"] == "none"
    stand_in(programs, "scontrol", 'echo "Slurmctld(primary) at login1 is UP"')
    assert asked("lumi-g")[1]["controller"]["state"] == "ok"


def test_an_absent_controller_takes_half_a_second(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.execute.doctor.CONTROLLER", CONTROLLER)
    stand_in(programs, "sbatch", 'echo "slurm 23.11.4"')
    stand_in(programs, "scontrol", "exec /bin/sleep 600")
    begin = time.monotonic()
    said = asked("lumi-g")[1]["controller"]
    assert (said["state"], said["says"]) == ("none", "no answer within 0.5 s")
    assert time.monotonic() - begin < 300  # of its ten minutes


def test_the_overview_says_of_docker_what_the_site_says(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("docker", "apptainer"):
        stand_in(programs, name, 'echo "Docker version 27.1.0, build x"')
    monkeypatch.setenv("DOCKER_HOST", f"unix://{programs}/none.sock")
    code, site = asked("mn5")
    overview = asked()[1]["mn5"]
    assert (code, site["daemon"]["state"], overview["state"]) == (4, "bad", "none")
    assert "docker's daemon" in overview["says"]


def test_where_to_build_starts_no_program(programs: Path) -> None:
    for name in ("python3", "apptainer", "docker"):
        stand_in(programs, name, f"echo {name} >>{programs}/called; echo 3.12.1")
    examine_sites({name: load_site(name) for name in ("local", "mn5", "lumi-g")}, environment=os.environ)
    assert not (programs / "called").exists()


def test_the_first_python_that_will_do_ends_the_search(programs: Path) -> None:
    for name in ("python3", "python3.14"):
        stand_in(programs, name, f"echo {name} >>{programs}/called; echo Python 3.12.1")
    assert asked("local")[1]["Python"]["state"] == "ok"
    assert (programs / "called").read_text().split() == ["python3"]


def test_a_quota_is_shown_where_it_is_told(programs: Path) -> None:
    stand_in(programs, "quota", 'echo "Disk quotas for user anna"; echo "  /home 9G 10G"')
    found = {one.name: one for one in examine_places(environment=os.environ, backend="layers")}
    assert found["quota"].says == "Disk quotas for user anna; /home 9G 10G"


@pytest.mark.usefixtures("programs")
def test_a_cache_that_cannot_be_made_is_bad_for_a_layers_site() -> None:
    environment = {**os.environ, "RECIPE_CACHE_DIR": "/proc/none"}
    for backend, state in (("layers", "bad"), ("docker", "none")):
        found = {one.name: one for one in examine_places(environment=environment, backend=backend)}
        assert (found["cache"].state, bool(found["cache"].fix)) == (state, True)


REFUSED = {
    "RECIPE_CACHE_DIR": "/tmp",
    "RECIPE_CACHE_SHARED": "/tmp",
    "RECIPE_CACHE_GIB": "many",
    "RECIPE_MICROMAMBA": "x",
    "HOME": "relative",
}


@pytest.mark.parametrize("name", REFUSED)
def test_doctor_names_what_a_build_refuses(name: str, programs: Path, tmp_path: Path) -> None:
    """A variable alone: the others of recipe are not set, as in the shell of most users."""
    for program in ("mksquashfs", "unsquashfs", "apptainer"):
        stand_in(programs, program, f'echo "{program} version 4.6.1"')
    (tmp_path / "env.txt").write_text("six==1.17.0\n")
    plain = {key: value for key, value in os.environ.items() if not key.startswith("RECIPE_")}
    plain |= {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": f"{programs}:/usr/bin:/bin"}

    def call(*words: str, **more: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "builder.cli.main", *words]
        done = subprocess.run(argv, env={**plain, **more}, cwd=tmp_path, text=True, capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert call("doctor", "local", "--offline")[0] == 0
    value = REFUSED[name]
    code, said = call("doctor", "local", "--offline", **{name: value})
    assert (code, value in said) == (2 if name == "HOME" else 4, True)  # of a wrong HOME no command can begin
    assert "fix: " in said
    code, said = call("build", "-n", "local", "env.txt", **{name: value})
    assert (code, value in said) == (4 if name in ("RECIPE_CACHE_DIR", "RECIPE_CACHE_SHARED") else 2, True)


def test_a_cache_without_room_for_any_image_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(free=2 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    environment = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    for backend, state in (("layers", "bad"), ("docker", "none")):
        found = {one.name: one for one in examine_places(environment=environment, backend=backend)}
        assert (found["cache"].state, bool(found["cache"].fix)) == (state, True)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """A socket at which something listens and never answers, as a daemon that hangs."""
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)
        yield path


def test_a_daemon_that_is_stopped_or_hangs_is_not_ok(
    programs: Path, tmp_path: Path, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.execute.docker_daemon.PATIENCE", 1.0)
    stand_in(programs, "docker", 'test "$1" = buildx && exit 1; echo "Docker version 27.1.0, build x"')
    for path, word in ((tmp_path / "none.sock", "no daemon listens"), (silent, "no answer from")):
        environment = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
        daemon, buildx = examine_docker(
            environment=environment, program=programs / "docker", version="Docker version 27.1.0", needed=True
        )
        assert (daemon.state, buildx.state) == ("bad", "bad")
        assert word in daemon.says
        assert "DOCKER_HOST" in daemon.fix


@pytest.mark.parametrize(
    ("said", "own"), [("Docker version 20.10.24+dfsg1", True), ("Docker version 23.0.1", False), ("", False)]
)
def test_which_docker_builds_without_a_plug_in(said: str, own: bool) -> None:
    assert has_own_buildkit(said) is own


def test_any_answer_of_a_server_counts_and_none_does_not() -> None:
    with socket.socket() as closed, socket.socket() as server:
        closed.bind(("127.0.0.1", 0))
        server.bind(("127.0.0.1", 0))
        server.listen(1)

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        environment = {
            "UV_DEFAULT_INDEX": f"http://127.0.0.1:{server.getsockname()[1]}/simple",
            "RECIPE_TORCH_INDEX": f"http://127.0.0.1:{closed.getsockname()[1]}/",
            "https_proxy": f"http://127.0.0.1:{closed.getsockname()[1]}",  # nothing else leaves this machine
        }
        found = {one.name: one for one in examine_network(None, environment=environment)}
        thread.join()
    assert {name: one.state for name, one in found.items()} == {
        "package index": "ok", "conda": "none", "torch index": "none",
    }  # fmt: skip
    assert all(one.fix for one in found.values() if one.state == "none")


@pytest.fixture
def guarded() -> Iterator[tuple[int, list[str]]]:
    """A server that answers to bob:hunter2 alone, and what was asked of it; /away redirects to it by another name."""
    asked_for: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked_for.append(self.path)
            login = "Basic " + base64.b64encode(b"bob:hunter2").decode()
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/simple")
            else:
                self.send_response(200 if self.headers.get("Authorization") == login else 401)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port, asked_for
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://bob:hunter2@127.0.0.1:PORT/simple", "127.0.0.1: reached"),
        ("http://127.0.0.1:PORT/simple", "127.0.0.1: login refused"),
        ("http://bob:hunter3@127.0.0.1:PORT/simple", "127.0.0.1: login refused"),
        ("http://bob:hunter2@localhost:PORT/away", "localhost: login refused"),  # the login stays with its server
        ("http://bob:hun/ter2@127.0.0.1:PORT/simple", "the address cannot be used"),
        ("http://[bob:hunter2@127.0.0.1:PORT/simple", "the address cannot be used"),
        ("ftp://bob:hunter2@127.0.0.1/simple", "the address cannot be used"),
    ],
)
def test_the_login_of_an_index_goes_to_its_server_alone(
    guarded: tuple[int, list[str]], address: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {
        "PIP_INDEX_URL": address.replace("PORT", str(guarded[0])),
        "RECIPE_TORCH_INDEX": "default",
        "https_proxy": "http://bob:hunter2@127.0.0.1:hunter2",  # no port: nothing else leaves this machine
    }
    found = {one.name: one for one in examine_network(None, environment=environment)}
    assert found["package index"].says == said
    assert bool(found["package index"].fix) == ("reached" not in said)
    assert found["conda"].state == "none"
    printed = "".join((*capfd.readouterr(), *(f"{one.says} {one.fix}" for one in found.values())))
    for secret in ("hunter", "Traceback", "Exception"):
        assert secret not in printed


def test_who_is_asked_for_a_site() -> None:
    named = list_servers(load_site("mn5"), environment=os.environ)
    assert "registry nvcr.io" in named
    assert re.fullmatch(r"https://\S+/simple/?", find_default_index(os.environ))
    named = list_servers(load_site("mn5"), environment={})
    assert named["package index"] == find_default_index({})
    named = list_servers(load_site("mn5"), environment={"PIP_INDEX_URL": "https://mirror.example/simple"})
    assert named["package index"] == "https://mirror.example/simple"


ADDRESSES = """
name: own
dependencies:
- python=3.12
- pip:
  - --index-url {0}/main
  - --extra-index-url {0}/extra
  - --extra-index-url https://download.pytorch.org/whl/cu126
  - --find-links {1}/wheels
  - --find-links {2}
  - six
"""


def test_the_addresses_of_a_recipe_are_asked(guarded: tuple[int, list[str]], tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        file = tmp_path / "own.yml"
        file.write_text(ADDRESSES.format(f"http://localhost:{guarded[0]}", dead, tmp_path))
        environment = {"PIP_INDEX_URL": dead, "RECIPE_TORCH_INDEX": "default", "https_proxy": dead}
        readings = examine_network(None, environment=environment, recipe=load_recipe(file))
    found = {one.name: one for one in readings}
    assert set(found) == {"package index", "conda", "recipe's index", "extra index", "find-links"}
    assert sorted(guarded[1]) == ["/extra", "/main"]
    assert found["extra index"].says == "localhost: login refused"
    assert found["find-links"].says.endswith("refused")
    assert found["find-links"].fix == f"check this address in {file}, and the proxy or network of this machine"


def test_a_silent_proxy_is_said_and_takes_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All addresses are asked at once, and none longer than the limit: here it is shorter, as is the silence."""
    monkeypatch.setattr("builder.execute.doctor_network.SECONDS", 1.0)
    monkeypatch.setattr("builder.execute.doctor.SILENT", 0.2)
    file = tmp_path / "own.yml"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(20)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file.write_text(ADDRESSES.format(address, address, tmp_path))
        for name in ("https_proxy", "http_proxy"):
            monkeypatch.setenv(name, address)
        started = time.monotonic()
        answer = CliRunner().invoke(run_command, [str(file), "--format", "json"])
    assert "waiting for " in answer.stderr
    assert "the servers" in answer.stderr
    found = {one["name"]: one for one in json.loads(answer.stdout)["readings"]}
    assert found["find-links"]["says"] == "127.0.0.1: no answer within 1.0 s"
    assert time.monotonic() - started < 300


def test_what_doctor_is_given_is_a_site_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.yml"
    file.write_text("dependencies: [python=3.12]\n")
    for words, fault in (
        (["local", str(file), "more"], "takes one site and, after it, one environment file"),
        ([str(file), "local"], "takes one site and, after it, one environment file"),
        (["no-such"], "there is no site 'no-such'"),
        (["local", "missing.yml"], "does not exist"),
    ):
        answer = CliRunner().invoke(run_command, [*words, "--offline"])
        assert fault in str(answer.exception), words


def test_bind_paths_that_others_change_or_that_are_missing(tmp_path: Path) -> None:
    places = {"etc/passwd": 0o644, "open": 0o777, "opened/file": 0o644, "shared": 0o1777, "mine": 0o755}
    for name, mode in places.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch() if name.endswith(("passwd", "file")) else path.mkdir()
        path.chmod(mode)
    (tmp_path / "opened").chmod(0o777)
    program = tmp_path / "usr/bin/apptainer"
    program.parent.mkdir(parents=True)
    program.touch()
    program.with_name("singularity").symlink_to("apptainer")
    file = tmp_path / "etc/apptainer/apptainer.conf"
    file.parent.mkdir()
    lines = ["#bind path = /opt", "bind path = /etc/passwd", "bind path=/open:/seen:ro", "bind path = /opened/file"]
    lines += ["bind path = /shared", " bind path = /mine", "bind path = /gone"]
    file.write_text("\n".join(lines))
    found = {name: program.with_name(name) for name in ("apptainer", "singularity")}
    readings = examine_bind_paths(found, root=tmp_path)
    assert [(one.state, one.says.split()[0]) for one in readings] == [
        ("none", "/open"), ("none", "/opened/file"), ("none", "/gone"),
    ]  # fmt: skip
    assert f"/open of {file} can be changed by every user" in readings[0].says
    assert f"who can write to '{tmp_path / 'opened'}'" in readings[1].says
    assert "is not on this machine" in readings[2].says
    assert all("ask the administrator" in one.fix for one in readings)


def test_a_program_that_a_signal_ends_says_no_version(programs: Path) -> None:
    stand_in(programs, "apptainer", "echo version 1.2; kill -SEGV $$")
    assert query_version_lines({"apptainer": programs / "apptainer"}, environment=os.environ) == {"apptainer": ""}


@pytest.mark.usefixtures("programs")
def test_the_first_word_of_a_line_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    monkeypatch.setattr("builder.cli.output.uses_color", lambda **_: True)
    monkeypatch.setattr("builder.cli.doctor.echo", printed.append)
    CliRunner().invoke(run_command, ["local", "--offline"])
    lines = [line for line in printed if "processor" in line or "mksquashfs" in line]
    assert [line.split()[0] for line in lines] == ["\x1b[31mBAD\x1b[0m", "\x1b[32mok\x1b[0m"]


def test_a_limit_of_memory_is_refused_in_words() -> None:
    words = [sys.executable, "-m", "builder.cli.main", "doctor", "local", "--offline"]
    limited = ["bash", "-c", 'ulimit -v 100000; exec "$@"', "_", *words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("error[no-memory]: this shell may use 97 MiB of memory (ulimit -v)")


def test_a_docker_with_buildkit_of_its_own_needs_no_plug_in(programs: Path, tmp_path: Path) -> None:
    stand_in(programs, "docker", 'test "$1" = buildx && exit 1; echo "Docker version 20.10.5, build x"')
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    _, buildx = examine_docker(
        environment=environment, program=programs / "docker", version="Docker version 20.10.5", needed=True
    )
    assert (buildx.state, buildx.says) == ("ok", "not needed: this Docker has BuildKit itself")


@pytest.mark.usefixtures("programs")
def test_a_temporary_folder_that_a_build_refuses_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(shared))
    _, readings = asked("local")
    assert readings["temporary folder"]["state"] == "bad"
    assert "can be written by all users" in readings["temporary folder"]["says"]
