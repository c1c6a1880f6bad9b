"""Findings as they are printed, without the codes, where a test is about the words."""

from __future__ import annotations

import re

_CODE = re.compile(r"^(error|warning|note)\[[a-z0-9-]+\]:", re.MULTILINE)


def without_codes(text: str) -> str:
    """The text with `error:` for `error[code]:`."""
    return _CODE.sub(r"\1:", text)
