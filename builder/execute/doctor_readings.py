"""One thing that `recipe doctor` has looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "bad", "none"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One thing that was looked at; `state` is `bad` only where the named site's default backend needs it."""

    name: str
    state: State
    says: str
    fix: str = ""
    group: str = "machine"
