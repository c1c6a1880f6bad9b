"""Whether the indexes and registries that builds ask can be reached from here, all asked at the same time."""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from builder.execute.doctor_readings import Reading
from builder.layers.reference import parse_reference
from builder.layers.uv import SETTINGS, find_uv
from builder.model.site import Site
from builder.resolve.package_plan import TORCH_HOST
from builder.sif.errors import LayeringError
from builder.system.process import read_output

SECONDS = 4.0  # for all answers together, which come at the same time: a first look-up of a name may take seconds
CONDA = "https://conda.anaconda.org/"
DEFAULT = re.compile(rb"default package index \(by default: <(https://[^>]+)>")  # in the help of uv
GROUP = "network"
ELSEWHERE = "build where there is a network and copy the image"
FIX = f"set https_proxy, or a mirror (docs/recipes.md); or {ELSEWHERE}"


def examine_network(site: Site | None, *, environment: Mapping[str, str]) -> list[Reading]:
    """One reading for each server; any answer counts, also one that refuses."""
    places = list_servers(site, environment=environment)
    found: dict[str, str] = {}
    # Who looks up a name may wait longer than anybody wants: such a thread ends with the program.
    threads = [threading.Thread(target=_reach, args=(url, environment, found), daemon=True) for url in places.values()]
    end = time.monotonic() + SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    said = {name: found.get(url, f"no answer within {SECONDS:.1f} s") for name, url in places.items()}
    return [
        Reading(
            name=name,
            state="none" if said[name] else "ok",
            says=f"{urlsplit(url).hostname}: {said[name] or 'reached'}",
            fix=_suggest_fix(environment) if said[name] else "",
            group=GROUP,
        )
        for name, url in places.items()
    ]


def _suggest_fix(environment: Mapping[str, str]) -> str:
    """What may help where a server does not answer; a proxy that is set is not set again."""
    names = [name for name in ("https_proxy", "HTTPS_PROXY") if environment.get(name)]
    return f"check the proxy that {names[0]} names, or set a mirror; or {ELSEWHERE}" if names else FIX


def list_servers(site: Site | None, *, environment: Mapping[str, str]) -> dict[str, str]:
    """What is asked of whom, by its address; the package index is the one that a build's uv asks."""
    torch = environment.get("RECIPE_TORCH_INDEX", "")
    names = ("UV_DEFAULT_INDEX", *SETTINGS["UV_DEFAULT_INDEX"])
    index = next((environment[name] for name in names if environment.get(name)), "")
    found = {
        "package index": index or find_default_index(environment),
        "conda": CONDA,
        "torch index": torch.replace("{token}", "cpu") or f"https{TORCH_HOST}/",
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


def _reach(url: str, environment: Mapping[str, str], found: dict[str, str]) -> None:
    """Note "" for a server that answers, else why not."""
    try:
        found[url] = _query_server(url, environment)
    except MemoryError:
        found[url] = "there is not enough memory to ask"


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
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        opener.open(urllib.request.Request(url, method="HEAD"), timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        return "the proxy refuses" if error.code == 407 else ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))[:120]
    return ""


def _list_no_proxy(environment: Mapping[str, str]) -> list[str]:
    said = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return [word.strip() for word in said.split(",") if word.strip()]
