"""Which certificates count: doctor, a lock, a build's own requests and a container read the same ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.registry_stand_ins import StandIn, certificate, serving

from builder.layers.certificates import NAMES, STORES, SWITCHES, find_certificates, make_tls_context

ENGINE = Path(__file__).parents[2] / "builder/data/templates/engine.sh"
# What a build of layers does with an index, and what it asks a registry.
BUILD = """
import os, sys
from pathlib import Path
from builder.layers.registry import RegistryError, fetch_manifest_digest
from builder.layers.uv import make_uv_settings, require_uv
from builder.layers.wheels import Resolver
from builder.sif.errors import LayeringError

settings = make_uv_settings(os.environ, cache=Path("cache").resolve())
resolver = Resolver(uv=require_uv(), minor="3.11", platform="x86_64-manylinux_2_36", work=Path(), environment=settings)
try:
    resolver.compile([Path("requirements.txt")])
except LayeringError:
    pass  # it has printed what uv says
try:
    fetch_manifest_digest(f"docker://{sys.argv[1]}/x", logins=lambda _: None)
except RegistryError as error:
    print(error)
"""
# A store that holds other certificates, or none, in a mount namespace of its own.
IN_STORE = (
    'mount -t tmpfs none /etc/ssl && mkdir /etc/ssl/certs && if [ -n "$1" ]; then cp "$1" "$2"; fi; shift 2; "$@"'
)


@dataclass(frozen=True)
class Authority:
    """A certificate authority of a site, and an index whose certificate it has signed."""

    ca: Path
    server: StandIn


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    folder = tmp_path_factory.mktemp("site")
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"]
    signed = ["openssl", "x509", "-req", "-days", "2", "-CAcreateserial"]
    lines = [
        [*new, "/CN=site", "-x509", "-days", "2", "-keyout", "site.key", "-out", "site.pem"],
        [*new, "/CN=index", "-keyout", "own.key", "-out", "own.csr"],
        [*signed, "-CA", "site.pem", "-CAkey", "site.key", "-in", "own.csr", "-out", "own.pem", "-extfile", "names"],
    ]
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for line in lines:
        subprocess.run(line, cwd=folder, check=True, capture_output=True)
    with serving(tls=(folder / "own.pem", folder / "own.key")) as server:
        server.reply = lambda _server, path, _: (
            (200, {"Content-Type": "text/html"}, b"<a href='none-1.0.tar.gz'>none-1.0.tar.gz</a>")
            if path == "/simple/none/"
            else (404, {}, b"")
        )
        yield Authority(folder / "site.pem", server)


Type = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def recipe(tmp_path: Path, authority: Authority) -> Type:
    """Type a line of recipe with a store that has `stored`, or with none."""
    (tmp_path / "x.yml").write_text("name: x\ndependencies:\n  - pip:\n    - none==2.0\n")
    base = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    base["HOME"] = str(tmp_path)
    base |= {"RECIPE_CACHE_DIR": str(tmp_path / "cache"), "UV_DEFAULT_INDEX": f"{authority.server.url}/simple"}
    base |= {"UV_HTTP_RETRIES": "0"}
    base |= {"RECIPE_TORCH_INDEX": "http://127.0.0.1:9/", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}

    def run(*words: str, stored: Path | None, more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc", IN_STORE, "sh"]
        argv += [
            str(stored or ""),
            STORES[0],
            sys.executable,
            *(() if words[0] == "-c" else ("-m", "builder.cli.main")),
            *words,
        ]
        here = {**base, **more, "PYTHONPATH": str(ENGINE.parents[3]), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(argv, cwd=tmp_path, env=here, capture_output=True, text=True, timeout=120, check=False)

    return run


ROWS = {
    "in the store": (True, {}, True),
    "by PIP_CERT": (False, {"PIP_CERT": "{ca}"}, True),
    "by SSL_CERT_FILE, against PIP_CERT": (False, {"SSL_CERT_FILE": "{ca}", "PIP_CERT": "{other}"}, True),
    "by REQUESTS_CA_BUNDLE, a folder": (False, {"REQUESTS_CA_BUNDLE": "{folder}"}, True),
    "by SSL_CERT_DIR": (False, {"SSL_CERT_DIR": "{folder}"}, True),
    "of another file, with the store": (True, {"PIP_CERT": "{other}"}, False),
    "in a store that uv shall not read": (True, {"UV_SYSTEM_CERTS": "false"}, False),
    "unknown": (False, {}, False),
}


@pytest.mark.parametrize("name", ROWS)
def test_doctor_lock_and_build_trust_the_same(name: str, authority: Authority, recipe: Type, tmp_path: Path) -> None:
    stored, variables, trusted = ROWS[name]
    other = tmp_path / "other"
    other.mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(authority.ca, folder / "site-ca.pem")
    given = {"ca": authority.ca, "other": certificate(other)[0], "folder": folder}
    more = {key: value.format(**given) for key, value in variables.items()}
    place = authority.ca if stored else given["other"]
    shown = recipe("doctor", "local", stored=place, more=more)
    line = next(text for text in shown.stdout.splitlines() if "package index" in text)
    assert ("reached" in line, "certificate is not trusted" in line) == (trusted, not trusted), shown.stdout
    assert not (tmp_path / ".local").exists()  # uv makes a folder for logins in the home folder
    assert line.split()[0] == ("ok" if trusted else "BAD")  # no build can ask it
    shown = recipe("lock", "local", "x.yml", stored=place, more=more)
    assert ("there is no 'none==2.0'" in shown.stderr) is trusted, shown.stderr
    assert ("certificate is not trusted here" in shown.stderr) is not trusted, shown.stderr
    assert shown.returncode == (3 if trusted else 5)
    (tmp_path / "requirements.txt").write_text("none==2.0\n")
    built = recipe("-c", BUILD, authority.server.name, stored=place, more=more).stdout
    assert ("no version of none==2.0" in built, "invalid peer certificate" in built) == (trusted, not trusted), built
    registry = trusted or "UV_SYSTEM_CERTS" in variables  # the switch is uv's alone
    assert ("answered 404" in built, "could not be reached" in built) == (registry, not registry), built


def test_without_a_store_uv_has_its_own(recipe: Type) -> None:
    """Its own roots do not hold the site's authority; a public index is out of reach here."""
    shown = recipe("doctor", "local", stored=None, more={})
    line = next(text for text in shown.stdout.splitlines() if "package index" in text)
    assert "its certificate is not trusted here (UnknownIssuer)" in line


def test_a_server_that_signs_itself_is_as_uv_sees_it(tmp_path: Path, recipe: Type) -> None:
    """OpenSSL accepts an authority as a server, and uv does not: doctor does not call that reached."""
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x -keyout k -out c"
    subprocess.run(
        [*new.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=tmp_path, check=True, capture_output=True
    )
    with serving(tls=(tmp_path / "c", tmp_path / "k")) as server:
        more = {"UV_DEFAULT_INDEX": f"{server.url}/simple", "SSL_CERT_FILE": str(tmp_path / "c")}
        shown = recipe("doctor", "local", stored=None, more=more)
    line = next(text for text in shown.stdout.splitlines() if "package index" in text)
    assert "its certificate is not trusted here (CaUsedAsEndEntity)" in line


@pytest.mark.parametrize("name", ROWS)
def test_a_container_gets_what_is_trusted_here(name: str, authority: Authority, tmp_path: Path) -> None:
    stored, variables, _ = ROWS[name]
    given = {"ca": authority.ca, "other": tmp_path / "other.pem", "folder": tmp_path / "folder"}
    shutil.copy(certificate(tmp_path)[0], given["other"])
    given["folder"].mkdir()
    shutil.copy(authority.ca, given["folder"] / "site-ca.pem")
    (given["folder"] / "site.key").write_text("-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n")
    more = {key: value.format(**given) for key, value in variables.items()}
    call = ["bash", "-euc", f". {ENGINE}; collect_certificates {tmp_path}/out || echo none >{tmp_path}/out"]
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc", IN_STORE, "sh"]
    argv += [str(authority.ca if stored else given["other"]), STORES[0], *call]
    done = subprocess.run(argv, env={"PATH": os.environ["PATH"], **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, site = (tmp_path / "out").read_text(), authority.ca.read_text()
    used = find_certificates(more)
    assert "SECRET" not in found
    switched_off = not used.file and not used.folders
    names_a_site = used.file == str(authority.ca) or bool(used.folders)
    if used.file in STORES:
        assert found == (site if stored else given["other"].read_text())
    elif switched_off or not (Path(used.file).is_file() or used.folders):
        assert found == "none\n"
    else:
        assert (site in found) is names_a_site


def test_the_script_names_the_same_places() -> None:
    text = ENGINE.read_text()
    body = text[text.index("collect_certificates() {") : text.index("# package_settings:")]
    places = [body.find(name) for name in (*NAMES, *SWITCHES, *STORES)]
    assert -1 not in places
    assert places == sorted(places)


def test_a_file_that_is_named_is_all_that_is_trusted(authority: Authority) -> None:
    """Python's own default would add the folder of the system to it."""
    found = make_tls_context(find_certificates({"PIP_CERT": str(authority.ca)}))
    assert [dict(part[0] for part in one["subject"])["commonName"] for one in found.get_ca_certs()] == ["site"]
