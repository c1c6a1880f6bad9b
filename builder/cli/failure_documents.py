"""Documents of failures: with --format json, sarif or github stdout holds one document however a command ends."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from builder.cli.check_formats import CheckResult, make_github_lines, make_json, make_sarif
from builder.cli.json_documents import emit_document
from builder.cli.output import emit
from builder.cli.usage import find_context
from builder.model.finding import Finding

SHAPES = ("json", "sarif", "github")


def emit_failure(findings: Sequence[Finding], *, arguments: Sequence[str], root: click.Group) -> None:
    """Print the findings that ended a command in the format that its words ask for; nothing for text."""
    command = find_context(root, arguments).command
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    shape = _find_shape(command, words)
    file = next((word for word in words[1:] if os.path.isfile(word)), "")  # noqa: PTH113  # no error for a long word
    results = [CheckResult(site="", file=file, findings=tuple(findings))]
    if shape == "json":
        content: dict[str, Any] = make_json(results) if command.name == "check" else {}
        emit_document(content | {"findings": [asdict(finding) for finding in findings]})
    elif shape == "sarif":
        emit(json.dumps(make_sarif(results), indent=2))
    elif shape == "github":
        emit("\n".join(make_github_lines(results)))


def _find_shape(command: click.Command, words: Sequence[str]) -> str:
    """The format of a program that the words ask for, "" where they ask for text or for none.

    Of a wrong value the one before it counts. A command without the format has JSON.
    """
    shape, shapes = "", list[str]()
    for at, word in enumerate(words):
        if word == "--format":
            shapes += words[at + 1 : at + 2]
        elif word.startswith("--format="):
            shapes.append(word.partition("=")[2])
    known = _list_shapes(command)
    if "--json" in words and (not known or any("--json" in param.opts for param in command.params)):
        shape = "json"
    found = next((word for word in reversed([shape, *shapes]) if word in (*known, *SHAPES)), "")
    if found not in known:
        return "json" if found in SHAPES and (known or found == "json") else ""
    return found if found in SHAPES else ""


def _list_shapes(command: click.Command) -> Sequence[str]:
    """The formats of a command, text too; all of them where the words name no command."""
    if isinstance(command, click.Group):
        return ("text", *SHAPES)
    kinds = [param.type for param in command.params if "--format" in param.opts]
    return [str(name) for kind in kinds if isinstance(kind, click.Choice) for name in kind.choices]
