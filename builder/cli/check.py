"""recipe check: the findings and decisions for environments on one site, several or all."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.cli.check_formats import CheckResult
from builder.cli.help import GroupedCommand
from builder.cli.input_options import add_input_options, read_choice
from builder.cli.inputs import add_decision_options, add_locked_option, add_verbosity, find_sites_folder, make_context
from builder.cli.output import (
    StyledText,
    color_word,
    echo,
    emit,
    format_columns,
    shorten_image,
    show_findings,
)
from builder.cli.streams import get_screen_width
from builder.cli.targets import Selection, read_words
from builder.compile.image_files import make_expectations
from builder.model.finding import (
    BuilderError,
    ConfigError,
    Finding,
    UnsupportedError,
    select_errors,
)
from builder.model.recipe import STDIN, Recipe
from builder.model.target import Context
from builder.model.text import escape_line
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline.refusals import check_target
from builder.pipeline.resolution import resolve_recipe

if TYPE_CHECKING:  # loaded where packages are looked up
    from builder.lock.session import Session

    Sessions = Callable[[], Session]

MIN_IMAGE = 16  # columns for the name of an image
MOST_ROUNDS = 5  # of edits that show what the next ones correct
NO_TEXTS: Mapping[Path, str] = {}
SHAPES = ["text", "table", "json", "sarif", "github"]


@click.command("check", cls=GroupedCommand)
@click.argument("words", nargs=-1, metavar="[SITE]... ENV...")
@click.option(
    "--format", "shape", type=click.Choice(SHAPES), default="text", show_default=True, help="Shape of the output."
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="CODE",
    help="Leave out findings of a code (no errors); may be repeated.",
)
@click.option("--explain", is_flag=True, help="Say of every package what it becomes, and why.")
@click.option("--strict", is_flag=True, help="Exit with 3 for a warning, or a refusal on any of the sites, too.")
@click.option(
    "--resolve",
    "look_up",
    is_flag=True,
    help="Ask the indexes and channels for every package that is installed, and judge those, too.",
)
@click.option("--fix", is_flag=True, help="Correct the files where a fix is exact, and print the changes.")
@click.option(
    "-n", "--diff", "only_diff", is_flag=True, help="Print the changes that --fix would make, and write nothing."
)
@add_locked_option
@add_input_options
@add_decision_options
@add_verbosity
def run_command(
    words: tuple[str, ...],
    shape: str,
    ignored: tuple[str, ...],
    explain: bool,
    strict: bool,
    look_up: bool,
    fix: bool,
    only_diff: bool,
    verbose: int,
    quiet: bool,
    **chosen: str | bool | None,
) -> None:
    """Check what each ENV would become on each SITE; without a site, on all of them.

    The findings of a site are in the order of their weight: notes, warnings, errors last, next to the prompt.

    Exits with 3 when an ENV cannot run on one of the sites that were named, with 2 when a file is faulty.
    """
    if (fix or only_diff) and shape != "text":
        message = f"--fix prints the changes as a diff, and --format {shape} the findings"
        raise ConfigError(Finding(code="usage", message=message, fix="leave out --format, or --fix and --diff"))
    if (fix or only_diff) and look_up:
        message = "--fix corrects what the file says, and --resolve finds what it does not say"
        raise ConfigError(Finding(code="usage", message=message, fix="use one after the other"))
    if (fix or only_diff) and STDIN in words:
        message = "--fix corrects a file, and '-' is standard input"
        raise ConfigError(Finding(code="usage", message=message, fix="save it to a file, and name that"))
    context = make_context(**chosen)
    if fix or only_diff:
        asked, outcomes, faults = _correct(words, ignored=ignored, context=context, write=fix and not only_diff)
    else:
        with ExitStack() as stack:
            sessions = _open_sessions(stack) if look_up else None
            _, asked, outcomes, faults = _check_words(words, ignored=ignored, context=context, sessions=sessions)
        _print([*faults, *outcomes], shape=shape, asked=asked, explain=explain, quiet=quiet and not verbose)
    if faults:
        raise click.exceptions.Exit(2)
    if any(_is_refused(item, strict=strict) for item in outcomes if asked or strict):
        raise click.exceptions.Exit(3)


def _open_sessions(stack: ExitStack) -> Sessions:
    from builder.cli.lock import open_sessions

    return stack.enter_context(open_sessions())


def _check_words(
    words: Sequence[str],
    *,
    ignored: Sequence[str],
    context: Context,
    texts: Mapping[Path, str] = NO_TEXTS,
    sessions: Sessions | None = None,
) -> tuple[Selection, bool, list[CheckResult], list[CheckResult]]:
    """What was named, whether sites were, the result for each site, and the files that cannot be read.

    `texts` are checked in the place of what their files hold. Raises ConfigError for faulty arguments.
    """
    named = read_words(words, without="all")
    asked = bool(named.note or set(words) & set(named.sites))
    if named.note and texts is NO_TEXTS:
        echo(named.note, err=True)
    outcomes, faults = list[CheckResult](), list[CheckResult]()
    choice = read_choice(named.files)
    whole = () if asked else _select_readable(named.sites)
    for path in named.files:
        try:
            recipe = load_recipe(path, text=texts.get(path), choice=choice)
        except ConfigError as error:
            faults.append(CheckResult(site="", file=str(path), findings=_name_lines(error.findings)))
            continue
        sites = named.sites if asked else whole
        found = (
            _check_recipe(name, file=str(path), recipe=recipe, context=context, sessions=sessions) for name in sites
        )
        outcomes += found
    if ignored:
        from builder.cli.check_formats import check_codes, drop_ignored

        outcomes = [drop_ignored(outcome, ignored=ignored) for outcome in outcomes]
        check_codes(ignored, faults=faults)
    return named, asked, outcomes, faults


def _name_lines(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings, with the line to type where a file is missing."""
    from builder.cli.main import run_cli
    from builder.cli.typed import WORDS
    from builder.cli.usage import name_lines

    words = click.get_current_context().meta.get(WORDS, ())
    return name_lines(findings, arguments=["check", *words], root=run_cli)


def _select_readable(names: Sequence[str]) -> tuple[str, ...]:
    """The readable sites when all are checked; a fault in another site's file is a warning."""
    found = []
    for name in names:
        try:
            load_site(name, folder=find_sites_folder())
            found.append(name)
        except ConfigError as error:
            show_findings([replace(finding, level="warning") for finding in error.findings])
    return tuple(found)


def _correct(
    words: Sequence[str], *, ignored: Sequence[str], context: Context, write: bool
) -> tuple[bool, list[CheckResult], list[CheckResult]]:
    """Make the exact edits, print them, and return what a check of the corrected files finds.

    An edit can show what was hidden by a fault, so that another edit follows.
    """
    from builder.cli import corrections

    texts: dict[Path, str] = {}
    named, asked, outcomes, faults = _check_words(words, ignored=ignored, context=context)
    if write:
        corrections.check_writable(named.files)
    files = list(named.files)
    for _ in range(MOST_ROUNDS):
        every = [finding for result in [*faults, *outcomes] for finding in result.findings]
        after = corrections.apply_findings(files, every, texts=texts)
        if after == texts:
            break
        _, _, found, wrong = _check_words(words, ignored=ignored, context=context, texts=after)
        spoiled = [file for file in files if after.get(file) != texts.get(file) and _is_spoiled(file, faults, wrong)]
        if spoiled:  # such a file is not corrected further, and stays as it was in the previous round
            files = [file for file in files if file not in spoiled]
            continue
        texts, outcomes, faults = after, found, wrong
    changed = corrections.emit_changes(texts)
    if write:
        corrections.write_texts(texts)
    _report_correction([*faults, *outcomes], asked=asked, changed=changed, write=write)
    return asked, outcomes, faults


def _is_spoiled(file: Path, before: Sequence[CheckResult], after: Sequence[CheckResult]) -> bool:
    """Whether the edits made a file that cannot be read of one that could be, or no YAML."""
    old, new = ([one for one in faults if one.file == str(file)] for faults in (before, after))
    return bool(new) and (not old or any(found.code.startswith("yaml-") for one in new for found in one.findings))


def _report_correction(results: Sequence[CheckResult], *, asked: bool, changed: int, write: bool) -> None:
    """Print what is left for the user, the number of corrected lines, and the verdict of each site.

    That is each error, and each warning of a line.
    """
    found = [finding for result in results for finding in result.findings]
    left = select_errors(found)
    shown = [finding for finding in found if finding in left or _is_warning_of_line(finding)]
    one_each = {finding if asked else (finding.code, finding.at): finding for finding in reversed(shown)}
    show_findings(reversed(one_each.values()))
    if changed:
        word = "corrected" if write else f"can be corrected: `{_write_fix_line()}` does it"
        echo(f"{changed} {'line' if changed == 1 else 'lines'} {word}", err=True)
    elif left:
        message, fix = "no finding has an exact fix", "follow the fix of each finding by hand"
        show_findings([Finding(code="nothing-exact", message=message, fix=fix, level="note")])
    else:
        echo("nothing to correct: no finding has an exact fix", err=True)
    several = len({result.file for result in results}) > 1
    checked = [result for result in results if result.site]
    for result in checked if asked else ():
        echo(f"{f'{result.file} on ' if several else ''}{result.site}: {result.word}", err=True)
    if checked and not asked:
        able = sum(not select_errors(result.findings) for result in checked)
        line = f"recipe check {shlex.join(dict.fromkeys(result.file for result in checked))}"
        echo(f"{able} of {len(checked)} outcomes are no refusal: `{line}` lists them", err=True)


def _write_fix_line() -> str:
    """The line again that writes what --diff has shown."""
    from builder.cli.typed import remove_options

    line = remove_options(["-n", "--diff"])
    return line if click.get_current_context().params["fix"] else f"{line} --fix"


def _is_warning_of_line(finding: Finding) -> bool:
    return finding.level == "warning" and finding.at is not None and finding.at.line is not None


def _is_refused(outcome: CheckResult, *, strict: bool) -> bool:
    return any(finding.level == "error" or (strict and finding.level == "warning") for finding in outcome.findings)


def _check_recipe(
    name: str, *, file: str, recipe: Recipe, context: Context, sessions: Sessions | None = None
) -> CheckResult:
    site = load_site(name, folder=find_sites_folder())
    try:
        target = resolve_recipe(site, recipe, context=context)
        findings = check_target(target, recipe=recipe, context=context)
        if sessions is not None:
            from builder.cli.lock import look_up, show_waiting

            with show_waiting(name, file=file):
                target, findings = look_up(target, findings, session=sessions())
    except UnsupportedError as error:
        return CheckResult(site=name, file=file, findings=error.findings)
    except ConfigError:
        raise
    except BuilderError as error:
        return CheckResult(site=name, file=file, findings=error.findings)
    return CheckResult(
        site=name,
        file=file,
        torch=make_expectations(target).get("torch", ""),
        base=target.base.reference,
        packages=target.packages,
        findings=findings,
    )


def _print(outcomes: Sequence[CheckResult], *, shape: str, asked: bool, explain: bool, quiet: bool) -> None:
    if shape == "text":
        _print_outcomes(outcomes, asked=asked, explain=explain, quiet=quiet)
        return
    if shape == "table":
        for item in outcomes:
            if not item.site:
                show_findings(item.findings)
        echo(_make_table([item for item in outcomes if item.site]))
        return
    from builder.cli import check_formats

    if shape == "github":
        for line in check_formats.make_github_lines(outcomes):
            emit(line)
        if page := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(page).open("a", encoding="utf-8") as file:
                file.write(check_formats.make_summary(outcomes))
        return
    make = check_formats.make_json if shape == "json" else check_formats.make_sarif
    emit(json.dumps(make(outcomes), indent=2))


def _print_outcomes(outcomes: Sequence[CheckResult], *, asked: bool, explain: bool, quiet: bool) -> None:
    for item in outcomes:
        if not item.site:
            show_findings(item.findings)
    checked = [item for item in outcomes if item.site]
    if checked and not quiet:
        echo(StyledText("\n".join(_make_overview(checked))))
    for item in checked:
        name = item.site if len({one.file for one in checked}) == 1 else f"{item.file} on {item.site}"
        if explain and item.packages:
            echo(f"\n{name}:")
            rows = [[f"  {package.asked}", "->", package.became, package.why] for package in item.packages]
            echo(format_columns(rows))
        shown = [finding for finding in item.findings if finding.level == "error" or not quiet]
        if shown and asked:
            echo("" if explain and item.packages else f"\n{name}:", err=True)
            show_findings(shown)
    if not asked and not quiet and any(item.findings for item in checked):
        echo(f"\nnext: recipe check SITE {checked[0].file} prints the findings of a site", err=True)


def _make_overview(outcomes: Sequence[CheckResult]) -> Iterator[str]:
    """A table for each file with a line for each site."""
    width = get_screen_width()
    files = list(dict.fromkeys(item.file for item in outcomes))
    for file in files:
        items = [item for item in outcomes if item.file == file]
        head = ["site", "outcome", "torch", "base image"]
        texts = [[item.site, item.word, item.torch or "-", item.base or "-"] for item in items]
        if width is not None:
            head, texts = _fit_table(head, texts, width=width)
        if len(files) > 1:
            yield escape_line(f"{file}:")
        yield format_columns([head, *[[row[0], color_word(row[1]), *row[2:]] for row in texts]])


def _fit_table(head: list[str], rows: list[list[str]], *, width: int) -> tuple[list[str], list[list[str]]]:
    """Shorten the images of the table, or leave out its last columns, so that its lines fit the terminal."""
    sizes = [max(map(len, cells)) for cells in zip(*[head, *rows], strict=True)]
    room = width - sum(sizes[:3]) - 6
    if room >= min(sizes[3], MIN_IMAGE):
        return head, [[*row[:3], shorten_image(row[3], room=room)] for row in rows]
    count = 3 if room >= -2 else 2
    if sum(sizes[:count]) + 2 * (count - 1) > width:
        rows = [[row[0], row[1].partition(":")[0], *row[2:]] for row in rows]
    return head[:count], [row[:count] for row in rows]


def _make_table(outcomes: Sequence[CheckResult]) -> str:
    """A table with a column for each site and a row for each finding; a cell is its level."""
    found = {finding.code: None for item in outcomes for finding in item.findings}
    several = len({item.file for item in outcomes}) > 1
    rows = [["finding", *[f"{item.file}:{item.site}" if several else item.site for item in outcomes]]]
    for code in found:
        levels = [next((finding.level for finding in item.findings if finding.code == code), "-") for item in outcomes]
        rows.append([code, *levels])
    rows.append(["torch", *[item.torch or "-" for item in outcomes]])
    return format_columns(rows)
