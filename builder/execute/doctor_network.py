"""Whether the indexes and registries that builds ask can be reached from here, all asked at the same time."""

from __future__ import annotations

import re
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from builder.execute.doctor_readings import Reading, State
from builder.layers.certificates import find_certificates, make_tls_context
from builder.layers.reference import parse_reference
from builder.layers.uv import INDEXES, SETTINGS, find_uv, make_uv_environment, make_uv_settings
from builder.model.finding import BuilderError
from builder.model.site import Site
from builder.resolve.package_plan import TORCH_HOST
from builder.sif.errors import LayeringError
from builder.sif.programs import ask
from builder.system.capture import read_output
from builder.system.scratch import make_work_folder

SECONDS = 4.0  # for all answers together, which come at the same time: a first look-up of a name may take seconds
INDEX_NAMES = ("package index", "torch index")  # uv asks these
NEEDED = ("package index",)  # of these every build of a recipe asks
CONDA = "https://conda.anaconda.org/"
DEFAULT = re.compile(rb"default package index \(by default: <(https://[^>]+)>")  # in the help of uv
REFUSED = re.compile(r"invalid peer certificate: (?:Other\(OtherError\()?(\w+)")  # of uv 0.13
UNTRUSTED = "its certificate is not trusted here"
GROUP = "network"
ELSEWHERE = "build where there is a network and copy the image"
FIX = f"set https_proxy, or a mirror (docs/recipes.md); or {ELSEWHERE}"

TRUST_FIX = "name the file of the site's certificates in SSL_CERT_FILE, or have them added to this machine's store"


def examine_network(site: Site | None, *, environment: Mapping[str, str]) -> list[Reading]:
    """One reading for each server; any answer counts, also one that refuses."""
    places = list_servers(site, environment=environment)
    found: dict[str, str] = {}
    # Who looks up a name may wait longer than anybody wants: such a thread ends with the program.
    indexes = {places.get(name) for name in INDEX_NAMES}
    threads = [
        threading.Thread(target=_reach, args=(url, environment, found), kwargs={"by_uv": url in indexes}, daemon=True)
        for url in places.values()
    ]
    end = time.monotonic() + SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    said = {name: found.get(url, f"no answer within {SECONDS:.1f} s") for name, url in places.items()}
    return [
        Reading(
            name=name,
            state=_find_state(name, said[name], site=site),
            says=f"{urlsplit(url).hostname}: {said[name] or 'reached'}",
            fix=_fix(environment, said[name]) if said[name] else "",
            group=GROUP,
        )
        for name, url in places.items()
    ]


def _find_state(name: str, said: str, *, site: Site | None) -> State:
    """A server that does not answer now may do so later; a certificate that uv does not trust stops each build."""
    if site is not None and name in NEEDED and said.startswith(UNTRUSTED):
        return "bad"
    return "none" if said else "ok"


def _fix(environment: Mapping[str, str], said: str) -> str:
    """What may help where a server does not answer; a proxy that is set is not set again."""
    if said.startswith(UNTRUSTED):
        return TRUST_FIX
    names = [name for name in ("https_proxy", "HTTPS_PROXY") if environment.get(name)]
    return f"check the proxy that {names[0]} names, or set a mirror; or {ELSEWHERE}" if names else FIX


def list_servers(site: Site | None, *, environment: Mapping[str, str]) -> dict[str, str]:
    """What is asked of whom, by its address; the package index is the one that a build's uv asks."""
    torch = environment.get("RECIPE_TORCH_INDEX", "")
    names = ("UV_DEFAULT_INDEX", *SETTINGS["UV_DEFAULT_INDEX"])
    index = next((environment[name] for name in names if environment.get(name)), "")
    found = {
        INDEX_NAMES[0]: index or find_default_index(environment),
        "conda": CONDA,
        INDEX_NAMES[1]: torch.replace("{token}", "cpu") or f"https{TORCH_HOST}/",
    }
    for image in site.base_images if site else ():
        if image.reference.startswith(("docker://", "oras://")):
            host = parse_reference(image.reference)[0]
            found.setdefault(f"registry {host}", f"https://{host}/v2/")
    return {name: url for name, url in found.items() if url.startswith(("https://", "http://"))}


def find_default_index(environment: Mapping[str, str]) -> str:
    """Return the index that uv asks where no variable names another, as its help says; "" without uv."""
    try:
        program = find_uv(environment)
    except LayeringError:  # of another series: a reading of its own
        return ""
    if program is None:
        return ""
    text = read_output([program, "pip", "install", "--help"], env=environment, limit=1 << 20, timeout=SECONDS)
    found = DEFAULT.search(text or b"")
    return found[1].decode() if found else ""


def _reach(url: str, environment: Mapping[str, str], found: dict[str, str], *, by_uv: bool) -> None:
    """Note "" for a server that answers, else why not; uv has the last word on the certificates of an index."""
    try:
        said = _query_server(url, environment)
        if by_uv and url.startswith("https://") and said in ("", UNTRUSTED):
            untrusted = _find_untrusted(url, environment)
            said = said if untrusted is None else untrusted
        found[url] = said
    except MemoryError:
        found[url] = "there is not enough memory to ask"


def _find_untrusted(url: str, environment: Mapping[str, str]) -> str | None:
    """Return "" where uv accepts the certificate of an index, what is wrong where it does not, None without a uv.

    uv rejects certificates that OpenSSL accepts, and without any store it trusts roots of its own.
    """
    try:
        program = find_uv(environment)
    except LayeringError:
        program = None
    if program is None:
        return None
    settings = make_uv_settings(environment, cache=Path("/nonexistent"))
    settings = {name: value for name, value in settings.items() if name not in (*INDEXES, "UV_FIND_LINKS")}
    env = {**make_uv_environment(settings), "UV_HTTP_RETRIES": "0", "UV_PYTHON": sys.executable}
    argv = [program, "pip", "compile", "--no-cache", "--quiet", "--no-deps", "--default-index", url, "-"]
    try:
        with make_work_folder("recipe-doctor-") as folder:
            env["UV_CREDENTIALS_DIR"] = str(folder)  # uv makes its own in the home folder, to look for a login there
            found = REFUSED.search(ask(argv, env=env, text="recipe-doctor\n", seconds=SECONDS)[2])
    except (LayeringError, BuilderError, OSError):
        return None
    return f"{UNTRUSTED} ({found[1]})" if found else ""


def _query_server(url: str, environment: Mapping[str, str]) -> str:
    names: Sequence[str] = ("http", "https")
    proxies = {
        name: said
        for name in names
        if (said := environment.get(f"{name}_proxy") or environment.get(f"{name.upper()}_PROXY"))
    }
    host = urlsplit(url).hostname or ""
    if any(host == one or host.endswith(f".{one.lstrip('.*')}") for one in _list_no_proxy(environment)):
        proxies = {}
    tls = urllib.request.HTTPSHandler(context=make_tls_context(find_certificates(environment)))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), tls)
    try:
        opener.open(urllib.request.Request(url, method="HEAD"), timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        return "the proxy refuses" if error.code == 407 else ""
    except (OSError, ValueError) as error:
        if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
            return UNTRUSTED
        return str(getattr(error, "reason", error))[:120]
    return ""


def _list_no_proxy(environment: Mapping[str, str]) -> list[str]:
    said = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return [word.strip() for word in said.split(",") if word.strip()]
