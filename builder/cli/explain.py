"""recipe explain: print the page of a finding's code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import click

from builder.cli.check_formats import list_codes, read_page
from builder.cli.code_classes import find_class, list_classed_codes
from builder.cli.inputs import add_plain_verbosity
from builder.cli.json_documents import emit_document, format_option
from builder.cli.output import echo
from builder.model.finding import ConfigError, Finding

# A code as a message shows it: `error[torch-build]:`.
SHOWN = re.compile(r"(?:(?:error|warning|note)?\[)?(?P<code>[\w-]+)\]?:?", re.IGNORECASE)
LEVEL = re.compile(r" Level: (error|warning|note)\.$", re.MULTILINE)
WITHOUT_PAGE = "This code has no page of its own: its message says what is wrong, where, and how to correct it."
ITEM = re.compile(r"(?:-|\d+\.) ")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@click.command("explain")
@click.argument("code")
@format_option
@add_plain_verbosity
def run_command(code: str, shape: str) -> None:
    """Print the page of the finding CODE: what it means, and an example with its fix; of a fault of form its class.

    CODE is the word in brackets after `error`, `warning` or `note`.
    """
    name = _name(code)
    page = read_page(name) or f"# {name}\n\n{find_class(name)}\n\n{WITHOUT_PAGE}\n"
    if shape == "json":
        level = LEVEL.search(page)
        title = page.splitlines()[2]
        fields = {"code": name, "level": level and level[1], "title": LEVEL.sub("", title), "page": page}
        emit_document(fields)
        return
    for line in format_page(page):
        echo(line, hang=_find_hang(line))


def _name(word: str) -> str:
    """Find the code that the user means; raises ConfigError with the nearest codes."""
    found = SHOWN.fullmatch(word.strip())
    name = found["code"].lower() if found else word
    known = (*list_codes(), *list_classed_codes())
    if name in known:
        return name
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    listed = " or ".join(f"`recipe explain {code}`" for code in near)
    fix = f"did you mean {listed}?" if near else "copy the word in brackets of a finding: error[torch-build]"
    raise ConfigError(Finding(code="code-unknown", message=f"there is no code '{word}'", fix=fix))


def _find_hang(line: str) -> int | None:
    """Where the next lines of one begin: of a paragraph flush, of an item below its text, of code as echo has it."""
    if line.startswith((" ", "|")):
        return None
    marked = ITEM.match(line)
    return marked.end() if marked else 0


def format_page(page: str) -> Iterator[str]:
    """Yield the lines of a page without Markdown: one line for each paragraph, code indented."""
    paragraph: list[str] = []
    fenced = False
    for line in [*page.splitlines(), ""]:
        if paragraph and (fenced or not line or line.startswith(("```", "#", "|")) or ITEM.match(line)):
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            yield f"    {line}".rstrip()
        elif not line or line.startswith(("#", "|")):
            yield LINK.sub(r"\1", line.lstrip("# "))
        else:
            paragraph.append(LINK.sub(r"\1", line.strip()))
