"""A real registry on the loopback address that wants a login, with a certificate of its own."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recipe_program import Room
from smoke_program import free_port
from support.registry_stand_ins import certificate

NAME, WORD = "reader", "S3CRETpass"


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serve_registry(folder: Path, *, data: Path, more: str = "") -> Iterator[tuple[str, Path]]:
    """Yield HOST:PORT and the certificate; `more` are settings of its storage."""
    cert, key = certificate(folder)
    hashed = ["perl", "-e", "print crypt($ARGV[0], '$2y$05$' . 'abcdefghijklmnopqrstuu')", WORD]
    line = subprocess.run(hashed, check=True, capture_output=True, text=True).stdout
    (folder / "htpasswd").write_text(f"{NAME}:{line}\n", encoding="utf-8")
    port = int(free_port())
    (folder / "config.yml").write_text(
        "version: 0.1\nlog: {level: warn}\n"
        f"storage: {{filesystem: {{rootdirectory: {data}}}{more}}}\n"
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
        yield f"127.0.0.1:{port}", cert
    finally:
        server.terminate()
        server.wait()


def log_in(room: Room, host: str, *, file: str = ".docker/config.json", word: str = WORD) -> None:
    """What `docker login` or `apptainer registry login` writes."""
    auth = base64.b64encode(f"{NAME}:{word}".encode()).decode()
    path = room.write(f"home/{file}", json.dumps({"auths": {host: {"auth": auth}}}))
    path.chmod(0o600)
