"""Findings for other programs, less those of --ignore, also those that end a command: JSON, SARIF 2.1.0, GitHub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

import builder
from builder.cli.output import emit, emit_document, make_document
from builder.model.finding import ConfigError, Finding, find_nearest, select_errors
from builder.model.plan import PackageDecision
from builder.model.text import escape_line


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of a recipe on a site; "" for no torch, or no base image."""

    site: str
    file: str = ""
    torch: str = ""
    base: str = ""
    packages: tuple[PackageDecision, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def word(self) -> str:
        """The result as one word of a table."""
        refused = select_errors(self.findings)
        if refused:
            return f"refused: {refused[0].code}"
        return "warnings" if any(finding.level == "warning" for finding in self.findings) else "ok"


SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
TITLES = {"error": "error", "warning": "warning", "note": "notice"}  # of GitHub's annotations


def make_json(outcomes: Sequence[CheckResult]) -> dict[str, Any]:
    """All outcomes as JSON data; null for empty values."""
    return make_document({"outcomes": [_describe_outcome(outcome) for outcome in outcomes]})


def _describe_outcome(outcome: CheckResult) -> dict[str, Any]:
    return {
        "site": outcome.site or None,
        "file": outcome.file or None,
        "ok": not select_errors(outcome.findings),
        "torch": outcome.torch or None,
        "base": outcome.base or None,
        "packages": [asdict(package) for package in outcome.packages],
        "findings": [asdict(finding) for finding in outcome.findings],
    }


def make_sarif(outcomes: Sequence[CheckResult]) -> dict[str, Any]:
    """Findings as one SARIF run (OASIS, SARIF 2.1.0).

    GitHub refuses a file with a result that has no location (github/codeql-action, issues 1738 and 2459): a
    finding without a line of the recipe is placed at its first line, and a fault of the command line, which is in no
    file, is a notification of the run.
    """
    every = [(outcome, finding) for outcome in outcomes for finding in outcome.findings]
    found = [(outcome, finding) for outcome, finding in every if _find_place(outcome, finding)[0]]
    faults = [finding for outcome, finding in every if not _find_place(outcome, finding)[0]]
    codes = {finding.code: finding for _, finding in every}
    driver = {
        "name": "recipe",
        "version": builder.__version__,
        "rules": [_make_rule(codes[code]) for code in sorted(codes)],
    }
    results = [_make_result(outcome, finding) for outcome, finding in found]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    if faults:
        notes = [_make_notification(finding) for finding in faults]
        run["invocations"] = [{"executionSuccessful": False, "toolConfigurationNotifications": notes}]
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _make_rule(finding: Finding) -> dict[str, Any]:
    page = read_page(finding.code)
    text = page or f"# {finding.code}\n\n{finding.fix}\n"
    short = next((line for line in text.splitlines()[1:] if line.strip()), finding.code)
    return {
        "id": finding.code,
        "shortDescription": {"text": short.partition(" Level:")[0]},
        "fullDescription": {"text": short},  # GitHub asks for it
        "help": {"text": text, "markdown": text},
        "helpUri": _make_page_uri(finding.code),
        "defaultConfiguration": {"level": finding.level},
    }


def _make_page_uri(code: str) -> str:
    """The address of a page on this machine: the pages are not published."""
    page = _find_pages() / f"{code}.md"
    return (page if page.is_file() else _find_pages() / "README.md").absolute().as_uri()


def _make_notification(finding: Finding) -> dict[str, Any]:
    return {
        "descriptor": {"id": finding.code},
        "level": finding.level,
        "message": {"text": f"{finding.message} (fix: {finding.fix})"},
    }


def _make_result(outcome: CheckResult, finding: Finding) -> dict[str, Any]:
    file, line = _find_place(outcome, finding)
    said = f"{outcome.site}: {finding.message}" if outcome.site else finding.message
    place = {"artifactLocation": _make_artifact(file), "region": {"startLine": line}}
    return {
        "ruleId": finding.code,
        "level": finding.level,
        "message": {"text": f"{said} (fix: {finding.fix})"},
        "locations": [{"physicalLocation": place}],
    }


def _find_place(outcome: CheckResult, finding: Finding) -> tuple[str, int]:
    """The file and line of a finding; by default line 1 of the checked file, "" where the command names no file."""
    if finding.at is not None and finding.at.file:
        return finding.at.file, finding.at.line or 1
    return outcome.file, 1


def _make_artifact(file: str) -> dict[str, str]:
    """The URI of a file: relative to the repository, percent-encoded."""
    path = Path(file).absolute()
    top = _find_repository(path.parent)
    if top is not None:
        return {"uri": quote(os.fsencode(path.relative_to(top))), "uriBaseId": "%SRCROOT%"}
    return {"uri": path.as_uri()} if Path(file).is_absolute() else {"uri": quote(os.fsencode(Path(file)))}


def _find_repository(folder: Path) -> Path | None:
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), None)


def make_github_lines(outcomes: Sequence[CheckResult]) -> Iterator[str]:
    """Write each finding as a workflow command of GitHub."""
    for outcome in outcomes:
        for finding in outcome.findings:
            file, line = _find_place(outcome, finding)
            place = f"file={_escape_data(_make_annotation_path(file), value=True)},line={line}," if file else ""
            title = f"{finding.code} ({outcome.site})" if outcome.site else finding.code
            said = f"{finding.message}\nfix: {finding.fix}" if finding.fix else finding.message
            yield f"::{TITLES[finding.level]} {place}title={_escape_data(title, value=True)}::{_escape_data(said)}"


def _make_annotation_path(file: str) -> str:
    """The path of an annotation: relative to the repository, as it is. The runner decodes a property, not a URI."""
    path = Path(file).absolute()
    top = _find_repository(path.parent)
    return file if top is None else str(path.relative_to(top))


def _escape_data(text: str, *, value: bool = False) -> str:
    """Escape text for a workflow command (docs.github.com, "Workflow commands"); in a property also , and :."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if value else text


def make_summary(outcomes: Sequence[CheckResult]) -> str:
    """Write a Markdown table for the summary page of a job."""
    rows = [
        f"| {' | '.join(map(_escape_cell, (outcome.file, outcome.site, outcome.word, outcome.torch or '-')))} |"
        for outcome in outcomes
    ]
    return "\n".join(["| file | site | outcome | torch |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _escape_cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return re.sub(r"([\\`\[\]<>|&!])", r"\\\1", escape_line(text))


@cache
def _find_pages() -> Path:
    """The folder of the findings' pages: in the package, or in the checkout."""
    inside = Path(builder.__file__).parent / "data" / "checks"
    return inside if inside.is_dir() else Path(builder.__file__).parents[1] / "docs" / "checks"


def read_page(code: str) -> str:
    """The page of a finding's code, "" where it has none."""
    path = _find_pages() / f"{code}.md"
    return path.read_text(encoding="utf-8") if code.replace("-", "").isalnum() and path.is_file() else ""


@cache
def list_codes() -> tuple[str, ...]:
    """Every code with a page, which `--ignore` accepts."""
    return tuple(sorted(path.stem for path in _find_pages().glob("*.md") if path.stem != "README"))


def drop_ignored(outcome: CheckResult, *, ignored: Sequence[str]) -> CheckResult:
    """Leave out the ignored codes; raises ConfigError for an error, which no build can pass."""
    refused = {finding.code for finding in select_errors(outcome.findings)} & set(ignored)
    if refused:
        code = sorted(refused)[0]
        message = f"'{code}' is an error on '{outcome.site}': it cannot be ignored"
        raise ConfigError(Finding(code="ignore", message=message, fix="correct it as its own fix says"))
    findings = tuple(finding for finding in outcome.findings if finding.code not in ignored)
    return CheckResult(**{**vars(outcome), "findings": findings})


def check_codes(ignored: Sequence[str], *, faults: Sequence[CheckResult]) -> None:
    """Raise ConfigError for unknown codes, and for those of a file that cannot be read."""
    if not ignored:
        return
    known = list_codes()
    form = {finding.code for result in faults for finding in result.findings}
    refused = []
    for code in ignored:
        if code in form:
            message = f"'{code}' says that the file cannot be read: it cannot be ignored"
            refused.append(Finding(code="ignore", message=message, fix="correct it as its own fix says"))
        elif code not in known:
            near = find_nearest(code, known=known)
            fix = f"did you mean '{near}'?" if near else "copy the code in brackets of a finding: warning[CODE]"
            fix = _split_codes(code, known=known) or fix
            message = f"no finding that may be ignored has the code '{code}'"
            refused.append(Finding(code="ignore", message=message, fix=fix))
    if refused:
        raise ConfigError(*refused)


def _split_codes(text: str, *, known: Collection[str]) -> str:
    """The fix for several codes in one value; "" where they are not all codes."""
    codes = [code for code in re.split(r"[,; ]+", text) if code]
    several = len(codes) > 1 and all(code in known for code in codes)
    return f"write {' '.join(f'--ignore {code}' for code in codes)}" if several else ""


SHAPES = ("json", "sarif", "github")


def emit_failure(findings: Sequence[Finding], *, arguments: Sequence[str], root: click.Group) -> None:
    """Print the findings that ended a command in the format that its words ask for; nothing for text."""
    from builder.cli.usage import find_context

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
