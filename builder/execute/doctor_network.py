"""Whether the indexes and registries that builds ask can be reached from here, all asked at the same time."""

from __future__ import annotations

import http.client
import re
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from builder.execute.doctor_readings import Reading, State
from builder.execute.server_address import LoginRedirects, ServerAddress, parse_server_address
from builder.layers.certificates import find_certificates, make_tls_context
from builder.layers.reference import parse_reference
from builder.layers.uv import INDEXES, SETTINGS, find_uv, make_uv_environment, make_uv_settings
from builder.model.finding import BuilderError
from builder.model.recipe import Recipe
from builder.model.secrets import redact
from builder.model.site import Site
from builder.resolve.indexes import TORCH_HOST
from builder.sif.errors import LayeringError
from builder.sif.programs import ask
from builder.system.process import read_output
from builder.system.scratch import make_work_folder

SECONDS = 4.0  # for all answers together, which come at the same time: a first look-up of a name may take seconds
INDEX_NAMES = ("package index", "torch index")  # uv asks these
NEEDED = ("package index",)  # of these every build of a recipe asks
CONDA = "https://conda.anaconda.org/"
DEFAULT = re.compile(rb"default package index \(by default: <(https://[^>]+)>")  # in the help of uv
REFUSED = re.compile(r"invalid peer certificate: (?:Other\(OtherError\()?(\w+)")  # of uv 0.13
UNTRUSTED = "its certificate is not trusted here"
REFUSED_LOGIN = "login refused"
UNUSABLE = "the address cannot be used"
GROUP = "network"
ELSEWHERE = "build where there is a network and copy the image"
FIX = f"set https_proxy, or a mirror (docs/recipes.md); or {ELSEWHERE}"

LOGIN_FIX = "give the login in the address, https://USER:PASSWORD@HOST/..., with special characters as %XX"
ADDRESS_FIX = "write https://HOST/..., and special characters of a login as %XX (@ is %40)"
TRUST_FIX = "name the file of the site's certificates in SSL_CERT_FILE, or have them added to this machine's store"


def examine_network(
    site: Site | None, *, environment: Mapping[str, str], recipe: Recipe | None = None
) -> list[Reading]:
    """One reading for each server; any answer counts, also one that refuses."""
    places = list_servers(site, environment=environment)
    own = list_recipe_addresses(recipe) if recipe else {}
    places |= own
    found: dict[str, str] = {}
    # A look-up of a name may take longer than our limit: such a thread ends with the program.
    indexes = {places.get(name) for name in INDEX_NAMES} | set(own.values())
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
            says=_name_host(url) + (said[name] or "reached"),
            fix=_suggest_fix(environment, said[name], file=recipe.file if recipe and name in own else "")
            if said[name]
            else "",
            group=GROUP,
        )
        for name, url in places.items()
    ]


def _find_state(name: str, said: str, *, site: Site | None) -> State:
    """A server that does not answer now may do so later; a certificate that uv does not trust stops each build."""
    if site is not None and name in NEEDED and said.startswith(UNTRUSTED):
        return "bad"
    return "none" if said else "ok"


def _suggest_fix(environment: Mapping[str, str], said: str, *, file: str) -> str:
    """What may help where a server does not answer; a proxy that is set is not set again.

    `file`: the recipe, for an address that it names.
    """
    if file and not said.startswith((UNTRUSTED, REFUSED_LOGIN)):
        return f"check this address in {file}, and the proxy or network of this machine"
    for what, fix in ((UNTRUSTED, TRUST_FIX), (REFUSED_LOGIN, LOGIN_FIX), (UNUSABLE, ADDRESS_FIX)):
        if said.startswith(what):
            return fix
    name, _ = find_proxy("https", environment)
    return f"check the proxy that {name} names, or set a mirror; or {ELSEWHERE}" if name else FIX


def find_proxy(scheme: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The variable that names the proxy of a scheme, and its value; "" where none does. uv reads the same ones."""
    names = [f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    return next(((name, value) for name in names if (value := environment.get(name))), ("", ""))


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
    return {
        name: url for name, url in found.items() if url not in ("", "default") and not url.startswith(("/", "file:"))
    }


def list_recipe_addresses(recipe: Recipe) -> dict[str, str]:
    """The indexes and pages of wheels that a recipe names; folders and PyTorch's own are not asked."""
    options = recipe.pip_options
    kinds = {
        "recipe's index": (options.index_url,),
        "extra index": options.extra_index_urls,
        "find-links": options.find_links,
    }
    found: dict[str, str] = {}
    for kind, urls in kinds.items():
        for url in urls:
            if url.startswith(("https://", "http://")) and TORCH_HOST not in url and url not in found.values():
                number = sum(name.startswith(kind) for name in found) + 1
                found[kind if number == 1 else f"{kind} {number}"] = url
    return found


def _name_host(url: str) -> str:
    try:
        return f"{parse_server_address(url).host}: "
    except ValueError:  # where the host begins is unknown: it may be a part of a password
        return ""


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
        address = parse_server_address(url)
    except ValueError:
        found[url] = UNUSABLE
        return
    try:
        said = _query_server(address, environment, is_index=by_uv)
        if by_uv and address.scheme == "https" and said in ("", UNTRUSTED):
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
    env["UV_DEFAULT_INDEX"] = url  # not as an argument: everybody on this machine sees those
    argv = [program, "pip", "compile", "--no-cache", "--quiet", "--no-deps", "-"]
    try:
        with make_work_folder("recipe-doctor-") as folder:
            env["UV_CREDENTIALS_DIR"] = str(folder)  # uv makes its own in the home folder, to look for a login there
            found = REFUSED.search(ask(argv, env=env, text="recipe-doctor\n", seconds=SECONDS)[2])
    except (LayeringError, BuilderError, OSError):
        return None
    return f"{UNTRUSTED} ({found[1]})" if found else ""


def _query_server(address: ServerAddress, environment: Mapping[str, str], *, is_index: bool) -> str:
    """Return "" for a server that answers, else why not; a registry that asks for a login answers."""
    names: Sequence[str] = ("http", "https")
    proxies = {name: said for name in names if (said := find_proxy(name, environment)[1])}
    host = address.host
    if any(host == one or host.endswith(f".{one.lstrip('.*')}") for one in _list_no_proxy(environment)):
        proxies = {}
    tls = urllib.request.HTTPSHandler(context=make_tls_context(find_certificates(environment)))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), LoginRedirects(), tls)
    try:
        opener.open(address.make_request(method="HEAD"), timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 407:
            return "the proxy refuses"
        return REFUSED_LOGIN if is_index and error.code in ((401, 403) if address.login else (401,)) else ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        return _describe_failure(error)
    return ""


def _describe_failure(error: Exception) -> str:
    """Say why a server was not reached, without any part of an address: it may hold the password of a proxy."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return UNTRUSTED
    if isinstance(reason, OSError):
        return redact(str(reason))[:120]
    if isinstance(error, http.client.InvalidURL | ValueError | urllib.error.URLError):
        return "the address of the server or of the proxy cannot be used"
    return "the answer is not one of HTTP"


def _list_no_proxy(environment: Mapping[str, str]) -> list[str]:
    said = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return [word.strip() for word in said.split(",") if word.strip()]
