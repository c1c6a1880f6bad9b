"""One known failure of an engine."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One known failure; `message` and `fix` may have groups of `pattern` and `needs`, and a server's `{host}`."""

    code: str
    pattern: re.Pattern[str]
    message: str
    fix: str
    needs: re.Pattern[str] | None = None  # must be in some line as well
    within: int = 80  # lines from the end of the log


def make_cause(code: str, *wordings: str, message: str, fix: str, needs: str = "", within: int = 80) -> Cause:
    """Make a cause from regular expressions, any of which tells it; `needs` must match some line as well."""
    pattern = re.compile("|".join(wordings))
    needed = re.compile(needs) if needs else None
    return Cause(code=code, pattern=pattern, message=message, fix=fix, needs=needed, within=within)
