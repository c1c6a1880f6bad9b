"""JSON documents: a schema number in each, and null for empty values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from builder.cli.output import emit

SCHEMA = 1  # of every document that a command prints

format_option = click.option(
    "--format",
    "shape",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or JSON (docs/check.md).",
)
# The word of earlier versions.
json_option = click.option("--json", "as_json", is_flag=True, hidden=True)


def make_document(content: Mapping[str, Any]) -> dict[str, Any]:
    """Make a document: its schema number first, null for empty text."""
    return {"schema": SCHEMA, **{key: replace_empty(value) for key, value in content.items() if key != "schema"}}


def replace_empty(value: Any) -> Any:
    """Replace every empty text by null; keys and lists stay."""
    if isinstance(value, Mapping):
        return {key: replace_empty(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_empty(item) for item in value]
    return None if isinstance(value, str) and not value else value


def emit_document(content: Mapping[str, Any]) -> None:
    emit(json.dumps(make_document(content), indent=2, ensure_ascii=False, allow_nan=False))
