"""JSON text as text that the reader of YAML takes: YAML has JSON in it but for tabs and pairs of surrogates."""

from __future__ import annotations

import json
import re

from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import sanitize
from builder.parse.yaml import DEPTH_LIMIT

OPEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\[\]{}]')
SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")


def to_plain_yaml(text: str, *, file: str, strict: bool) -> str:
    """Return JSON in lines that stay where they are; raises ConfigError for what is not JSON.

    Not `strict`: a text that may be YAML in braces is returned as it is.
    """
    _check_depth(text, file=file)
    try:
        json.loads(text, parse_int=str)
    except json.JSONDecodeError as error:
        if not strict:
            return text
        raise ConfigError(_make_finding(text, error.pos, file=file)) from None
    plain = text.replace("\t", " ")  # none of them is in a text, where JSON writes \t
    return SURROGATES.sub(lambda found: found[1] + json.loads(f'"{found[2]}"'), plain)


def _make_finding(text: str, position: int, *, file: str) -> Finding:
    """What is wrong at a position, in words that are the same for each release of Python."""
    rest, before = text[position:], text[:position].rstrip()
    line = text.count("\n", 0, position) + 1
    if before.endswith(",") and rest[:1] in ("]", "}"):  # newer releases give the position of the comma
        position = len(before) - 1
        rest, line = text[position:], text.count("\n", 0, position) + 1
    at = Location(file=file, line=line)
    if re.match(r",\s*[\]}]", rest):
        message, fix = "there is a comma after the last item, which JSON does not allow", "remove it"
    elif rest.startswith(("//", "/*", "#")):
        message, fix = "there is a comment, which JSON does not allow", "remove it, or write the file as YAML"
    else:
        found = f"'{sanitize(rest.split()[0], limit=20)}' is not expected here" if rest.split() else "it ends too early"
        message, fix = f"this is not JSON: {found}", "check quotes, commas and braces"
    return Finding(code="json-syntax", message=message, at=at, fix=fix)


def _check_depth(text: str, *, file: str) -> None:
    """Raise ConfigError before a reader recurses into a bomb."""
    depth = 0
    for found in OPEN.finditer(text):
        depth += (found[0] in "[{") - (found[0] in "]}")
        if depth > DEPTH_LIMIT:
            at = Location(file=file, line=text.count("\n", 0, found.start()) + 1)
            message = f"the file is nested more than {DEPTH_LIMIT} levels deep"
            raise ConfigError(Finding(code="json-deep", message=message, at=at, fix="write it flat"))
