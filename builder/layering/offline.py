"""Whether servers may be asked; where not, a build takes what was fetched before."""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "RECIPE_OFFLINE"
FIX = "fetch it where there is a network: `recipe fetch`, with the same RECIPE_CACHE_DIR"


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether no server may be asked."""
    return environment.get(VARIABLE, "").lower() not in ("", "0", "no", "false")
