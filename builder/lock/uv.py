"""uv as a program: where it is, and with which of the user's settings it runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from builder.layers.uv import LEAST, VARIABLE, find_uv
from builder.model.finding import Finding, ToolError
from builder.sif.errors import LayeringError

# pip's variables stand in for uv's where those are not set, as in a build (engine.sh).
FROM_PIP = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL", "PIP_INDEX_URL"),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
    "UV_FIND_LINKS": ("PIP_FIND_LINKS",),
    "UV_INSECURE_HOST": ("PIP_TRUSTED_HOST",),
    "UV_HTTP_TIMEOUT": ("PIP_DEFAULT_TIMEOUT",),
    "SSL_CERT_FILE": ("PIP_CERT", "REQUESTS_CA_BUNDLE"),
}
INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
FIX = f"run `pip install 'uv=={'.'.join(map(str, LEAST))}'` where recipe is installed, or set {VARIABLE} to one"
# What would change the resolution by the machine or by an environment that happens to be active.
LEFT_OUT = (
    "UV_TORCH_BACKEND",
    "UV_CONSTRAINT",
    "UV_OVERRIDE",
    "UV_EXCLUDE",
    "UV_SYSTEM_PYTHON",
    "UV_PYTHON",
    "VIRTUAL_ENV",
)


def uv_program(environment: Mapping[str, str]) -> str:
    """The uv that builds use too; raises ToolError where there is none of that series."""
    try:
        found = find_uv(environment)
    except LayeringError as error:
        raise ToolError(Finding(code="lock-uv", message=str(error), fix=FIX)) from None
    if found is None:
        raise ToolError(Finding(code="lock-uv", message="there is no program 'uv'", fix=FIX))
    return found


def settings(user: Mapping[str, str], *, own_index: bool = False) -> dict[str, str]:
    """The environment of uv; with `own_index` without the user's indexes, which have other builds of torch."""
    environment = {name: value for name, value in user.items() if name not in LEFT_OUT}
    for name, others in FROM_PIP.items():
        value = environment.get(name) or next((user[other] for other in others if user.get(other)), "")
        if value and name == "UV_FIND_LINKS":
            value = ",".join(value.replace(",", " ").split())
        if value:
            environment[name] = value
    if own_index:
        environment = {name: value for name, value in environment.items() if name not in INDEXES}
    # The interpreter that uv asks for build tags is only a host for sdists: ours will do.
    return {**environment, "UV_PYTHON": sys.executable, "UV_NO_PROGRESS": "1"}
