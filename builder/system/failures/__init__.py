"""Known failures of the engines: what they print, what it means, what to do. The first cause that matches wins.

Wordings were seen with pip 22.3 and 26.3, uv 0.13.8, Apptainer 1.4.5, mksquashfs 4.5.1, curl 7.88, bash 5.2 and cotainr
2025.7.1, or read in the source of Apptainer (2026-08) and of cotainr; those of conda, mamba and SingularityCE are from
their issue threads.
"""

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
