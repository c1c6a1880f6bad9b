"""Logins for registries: from the engines' variables, and from the files that `docker login` and the engines write.

The password may be kept by a program of the desktop or the cloud, docker-credential-NAME, which is asked.
https://docs.docker.com/reference/cli/docker/login/#credential-stores
https://apptainer.org/docs/user/main/docker_and_oci.html#authentication
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..sif.errors import LayeringError
from ..sif.programs import ask, find_program
from .reference import HUB, HUB_NAMES
from .registry import TOKEN, Login

VARIABLE = "RECIPE_REGISTRY"  # the host of the login in the engines' variables
INDEX = "https://index.docker.io/v1/"  # what Docker's own registry is called in these files
HELPER = re.compile(r"[A-Za-z0-9._-]+")
LARGEST = 1024 * 1024  # bytes of a file with logins
SECONDS = 20.0  # a program may have to ask the user to open a keyring


def find_login(host: str, *, environment: Mapping[str, str], own: bool = True) -> Login | None:
    """Return the login for a registry, None without one; `own` is false for a host that a recipe names."""
    found = from_variables(host, environment=environment, own=own)
    for file in list_config_files(environment) if found is None else ():
        found = _from_file(file, host=host, environment=environment)
        if found is not None:
            break
    return found


def from_variables(host: str, *, environment: Mapping[str, str], own: bool) -> Login | None:
    """Return the login in the engines' variables, which name no host: it is for the site's or the user's own registry.

    A base image that a recipe names gets it only if RECIPE_REGISTRY has its host.
    """
    named = environment.get(VARIABLE, "")
    if (named and _parse_key(named) != _parse_key(host)) or not (named or own):
        return None
    for engine in ("APPTAINER", "SINGULARITY"):
        name, word = (environment.get(f"{engine}_DOCKER_{part}", "") for part in ("USERNAME", "PASSWORD"))
        if name and word:
            return name, word
    return None


def list_config_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the existing files that may hold logins, those of the engines first."""
    home = Path(environment.get("HOME") or "/")
    places = [environment.get("REGISTRY_AUTH_FILE") or ""]
    for name, folder in (("APPTAINER_CONFIGDIR", ".apptainer"), ("SINGULARITY_CONFIGDIR", ".singularity")):
        places.append(str(Path(environment.get(name) or home / folder) / "docker-config.json"))
    places.append(str(Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"))
    for place in filter(None, places):
        if Path(place).is_file():
            yield Path(place)


def list_login_keys(host: str) -> tuple[str, ...]:
    """Return the names that a registry may have in such a file."""
    return (INDEX, *HUB_NAMES) if host in HUB_NAMES else (host, f"https://{host}")


def _parse_key(key: str) -> str:
    """Return the host of a key such as `https://HOST/v1/`; a key with another path is for a part of a registry."""
    found = re.fullmatch(r"(?:https?://)?([^/]+)(?:/v[12])?/?", key)
    name = found[1].lower() if found else ""
    return HUB if name in HUB_NAMES else name


def _from_file(file: Path, *, host: str, environment: Mapping[str, str]) -> Login | None:
    config = _to_table(_read_document(file))
    helpers = _to_table(config.get("credHelpers"))
    helper = next(
        (word for key, word in helpers.items() if _parse_key(key) == _parse_key(host)), config.get("credsStore")
    )
    if isinstance(helper, str) and HELPER.fullmatch(helper):
        found = _from_helper(helper, key=list_login_keys(host)[0], environment=environment)
        if found is not None:
            return found
    for key, entry in _to_table(config.get("auths")).items():
        if _parse_key(key) == _parse_key(host):
            return _from_entry(_to_table(entry))
    return None


def _read_document(file: Path) -> object:
    try:
        with file.open("rb") as opened:
            return json.loads(opened.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None


def _from_entry(entry: Mapping[str, Any]) -> Login | None:
    token, auth = entry.get("identitytoken"), entry.get("auth")
    if isinstance(token, str) and token:
        return TOKEN, token
    try:
        name, colon, word = base64.b64decode(auth, validate=True).decode().partition(":") if auth else ("", "", "")
    except (ValueError, TypeError):
        return None
    return (name, word.rstrip("\0")) if colon and word else None


def _from_helper(helper: str, *, key: str, environment: Mapping[str, str]) -> Login | None:
    """Ask docker-credential-NAME; one that fails has no login for this registry."""
    program = find_program(f"docker-credential-{helper}", path=environment.get("PATH"))
    if program is None:
        return None
    try:
        code, out, _ = ask([program, "get"], env=environment, text=key, seconds=SECONDS)
        answer = _to_table(json.loads(out)) if code == 0 else {}
    except (LayeringError, ValueError, RecursionError):
        return None
    name, word = answer.get("Username"), answer.get("Secret")
    return (name, word) if isinstance(name, str) and isinstance(word, str) and word else None


def _to_table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
