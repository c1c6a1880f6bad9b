"""Standard input as a file, read within a bound."""

from __future__ import annotations

import sys

from builder.model.finding import Location
from builder.model.recipe import STDIN
from builder.model.text import make_config_error
from builder.parse.yaml import SIZE_LIMIT


def read_standard_input() -> bytes:
    """Read standard input; raises ConfigError for a terminal, and for more than a recipe has."""
    at = Location(file=STDIN)
    fix = "`recipe check SITE - < environment.yml`, or name the file"
    if sys.stdin is None or sys.stdin.closed:
        raise make_config_error("stdin", "standard input is closed", at=at, fix=fix)
    if sys.stdin.isatty():
        raise make_config_error("stdin", "standard input is a terminal, and no file", at=at, fix=fix)
    data = sys.stdin.buffer.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        message = f"standard input is longer than {SIZE_LIMIT // 1024**2} MiB"
        raise make_config_error("file-large", message, at=at, fix="this is hardly a recipe: check it")
    return data
