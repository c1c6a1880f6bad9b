"""uv as a program, for layers and for locks: which one is used, and with which of the user's settings.

The uv that was installed with us is used, or one of the same series, never just the first on PATH.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ..sif.errors import LayeringError
from ..sif.programs import clean_environment, find_system_program, read_program_version
from .certificates import find_certificates
from .private_folders import UV
from .spec import is_offline

VARIABLE = "RECIPE_UV"
LEAST, BELOW = (0, 13, 8), (0, 14)  # as in pyproject.toml: another series resolves, names and caches differently
WANTED = f"uv {'.'.join(map(str, LEAST))} or newer, below {'.'.join(map(str, BELOW))}"
FIX = f"run `pip install 'uv=={'.'.join(map(str, LEAST))}'` and set {VARIABLE} to it, or build with --backend apptainer"


def find_uv(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the uv to use, None if there is none; raises LayeringError if all that are found are of another series.

    First RECIPE_UV, then the one in the folder of our Python, then the one on PATH.
    """
    environment = os.environ if environment is None else environment
    others = []
    for program in dict.fromkeys(_list_candidates(environment)):
        if is_usable(program):
            return program
        found = _read_version(program)
        others.append(f"'{program}' is {'.'.join(map(str, found)) or 'of an unknown version'}")
    if others:
        raise LayeringError(f"this requires {WANTED}: {', '.join(others)}", fix=FIX)
    return None


def require_uv() -> str:
    """Return the uv to use; raises LayeringError if there is none."""
    found = find_uv()
    if found is None:
        raise LayeringError(f"uv is missing on PATH; this requires {WANTED}", fix=FIX)
    return found


def is_usable(program: str) -> bool:
    """Whether a program is a uv of the series that builds use."""
    return LEAST <= _read_version(program) < BELOW


def find_own_uv() -> str:
    """Return the uv in the folder of this Python, "" if there is none."""
    path = Path(sys.executable).with_name("uv")
    return str(path) if path.is_file() else ""


def _list_candidates(environment: Mapping[str, str]) -> Iterator[str]:
    named = environment.get(VARIABLE, "")
    if named and os.path.isfile(named):  # that folder may be missing on the node of a job
        yield named
    if own := find_own_uv():
        yield own
    if found := find_system_program("uv", path=environment.get("PATH")):
        yield found


@cache
def _read_version(program: str) -> tuple[int, ...]:
    try:
        return read_program_version(program)
    except LayeringError:
        return ()


# What decides which packages uv takes, each with the names that are read where uv's own is not set. engine.sh gives the
# same ones to a build in a container. Which certificates it trusts: certificates.py.
SETTINGS = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL", "PIP_INDEX_URL"),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
    "UV_FIND_LINKS": ("PIP_FIND_LINKS",),
    "UV_INSECURE_HOST": ("PIP_TRUSTED_HOST",),
    "UV_HTTP_TIMEOUT": ("PIP_DEFAULT_TIMEOUT",),
    "UV_INDEX_STRATEGY": (),
    "UV_EXCLUDE_NEWER": (),
    "UV_PRERELEASE": (),
}
# uv says then of which wheels it has corrected the RECORD.
UNPACKING = {"RUST_LOG": "uv_install_wheel=debug"}
INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX")
# How uv downloads on this machine, as docs/recipes.md lists it; execute/uv_values.py checks the values.
# All its other variables are left out: they belong to the user's own projects.
TRANSPORT = re.compile(
    r"UV_(?:HTTP_(?:CONNECT_TIMEOUT|RETRIES)|REQUEST_TIMEOUT|CONCURRENT_DOWNLOADS|NATIVE_TLS|SYSTEM_CERTS|"
    r"KEYRING_PROVIDER|CREDENTIALS_DIR|INDEX_\w+_(?:USERNAME|PASSWORD)|CACHE_DIR)"
)


def make_uv_settings(environment: Mapping[str, str], *, cache: Path, offline: bool = False) -> dict[str, str]:
    """Return uv's variables; `cache` is the folder of recipe's cache, and `offline` forbids every request."""
    found = {name: value for name, value in environment.items() if TRANSPORT.fullmatch(name)}
    for name, others in SETTINGS.items():
        found[name] = next((value for key in (name, *others) if (value := environment.get(key))), "")
    found |= find_certificates(environment).variables
    found["UV_FIND_LINKS"] = ",".join(found["UV_FIND_LINKS"].replace(",", " ").split())
    found["UV_CACHE_DIR"] = environment.get("UV_CACHE_DIR") or str(cache / UV)
    if offline or is_offline(environment):
        found["UV_OFFLINE"] = "1"
    found |= {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1", "UV_NO_WRAP": "1"}
    return {name: value for name, value in found.items() if value}


def make_uv_environment(settings: Mapping[str, str], *, own_index: bool = False) -> dict[str, str]:
    """Return the environment of a uv process; with `own_index` the index that its request names is the only one."""
    # RUST_LOG adds lines to what uv says, or stops it.
    kept = {name: value for name, value in clean_environment().items() if not name.startswith(("UV_", "RUST_"))}
    return kept | {name: value for name, value in settings.items() if not (own_index and name in INDEXES)}
