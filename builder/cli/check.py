"""recipe check: the findings and decisions for environments on one site, several or all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from builder.cli.check_formats import CheckResult
from builder.cli.help import GroupedCommand
from builder.cli.inputs import add_compile_options, add_locked_option, add_verbosity, find_sites_folder, make_context
from builder.cli.output import (
    StyledText,
    color_word,
    echo,
    emit,
    format_columns,
    shorten_image,
    show_findings,
)
from builder.cli.screen import get_screen_width
from builder.cli.targets import Selection, read_words
from builder.compile.backends import check_backend
from builder.compile.image_files import make_expectations
from builder.model.finding import (
    BuilderError,
    ConfigError,
    Finding,
    ToolError,
    UnsupportedError,
    find_nearest,
    select_errors,
)
from builder.model.recipe import Recipe
from builder.model.target import Context, Target
from builder.model.text import escape_line
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline.plans import add_lock, make_target

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
@click.option("--fix", is_flag=True, help="Correct the files where a fix is exact, and print the changes.")
@click.option("-n", "--diff", "only_diff", is_flag=True, help="With --fix: print the changes, and write nothing.")
@add_locked_option
@add_compile_options
@add_verbosity
def run_command(
    words: tuple[str, ...],
    shape: str,
    ignored: tuple[str, ...],
    explain: bool,
    strict: bool,
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
    context = make_context(**chosen)
    if fix or only_diff:
        asked, outcomes, faults = _correct(words, ignored=ignored, context=context, write=fix and not only_diff)
    else:
        _, asked, outcomes, faults = _check_words(words, ignored=ignored, context=context)
        _print([*faults, *outcomes], shape=shape, asked=asked, explain=explain, quiet=quiet and not verbose)
    if faults:
        raise click.exceptions.Exit(2)
    if any(_is_refused(item, strict=strict) for item in outcomes if asked or strict):
        raise click.exceptions.Exit(3)


def _check_words(
    words: Sequence[str], *, ignored: Sequence[str], context: Context, texts: Mapping[Path, str] = NO_TEXTS
) -> tuple[Selection, bool, list[CheckResult], list[CheckResult]]:
    """What was named, whether sites were, the result for each site, and the files that cannot be read.

    `texts` are checked in the place of what their files hold. Raises ConfigError for faulty arguments.
    """
    named = read_words(words, without="all")
    asked = bool(set(words) & set(named.sites))
    outcomes, faults = list[CheckResult](), list[CheckResult]()
    whole = () if asked else _select_readable(named.sites)
    for path in named.files:
        try:
            recipe = load_recipe(path, text=texts.get(path))
        except ConfigError as error:
            faults.append(CheckResult(site="", file=str(path), findings=_name_lines(error.findings)))
            continue
        sites = named.sites if asked else whole
        found = (_check_recipe(name, file=str(path), recipe=recipe, context=context) for name in sites)
        outcomes += [_drop_ignored(outcome, ignored=ignored) for outcome in found]
    _check_codes(ignored, faults=faults)
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
    for _ in range(MOST_ROUNDS):
        every = [finding for result in [*faults, *outcomes] for finding in result.findings]
        after = corrections.apply_findings(named.files, every, texts=texts)
        if after == texts:
            break
        texts = after
        _, _, outcomes, faults = _check_words(words, ignored=ignored, context=context, texts=texts)
    changed = corrections.emit_changes(texts)
    if write:
        corrections.write_texts(texts)
    _report_correction([*faults, *outcomes], asked=asked, changed=changed, write=write)
    return asked, outcomes, faults


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
        word = "corrected" if write else "could be corrected: leave out --diff"
        echo(f"{changed} {'line' if changed == 1 else 'lines'} {word}", err=True)
    elif left:
        message, fix = "no finding has an exact fix", "follow the fix of each finding by hand"
        show_findings([Finding(code="nothing-exact", message=message, fix=fix, level="note")])
    else:
        echo("nothing to correct: no finding has an exact fix", err=True)
    several = len({result.file for result in results}) > 1
    for result in results:
        if asked and result.site and select_errors(result.findings):
            echo(f"{f'{result.file} on ' if several else ''}{result.site}: {result.word}", err=True)


def _is_warning_of_line(finding: Finding) -> bool:
    return finding.level == "warning" and finding.at is not None and finding.at.line is not None


def _is_refused(outcome: CheckResult, *, strict: bool) -> bool:
    return any(finding.level == "error" or (strict and finding.level == "warning") for finding in outcome.findings)


def _check_codes(ignored: Sequence[str], *, faults: Sequence[CheckResult]) -> None:
    """Raise ConfigError for unknown codes, and for those of a file that cannot be read."""
    if not ignored:
        return
    from builder.cli.check_formats import list_codes

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


def _check_recipe(name: str, *, file: str, recipe: Recipe, context: Context) -> CheckResult:
    site = load_site(name, folder=find_sites_folder())
    try:
        target = make_target(site, recipe, context=add_lock(context, recipe, site.name))
        findings = check_backend(target)
        if target.lock is not None:  # what a lock holds is read when it is written into a plan
            from builder.compile.compile import compile_plan

            compile_plan(target, page=False)
        if target.base.reference.startswith("/") and Path(target.base.reference).exists():
            findings = (*findings, *_list_base_faults(target, recipe=recipe, context=context))
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


def _list_base_faults(target: Target, *, recipe: Recipe, context: Context) -> tuple[Finding, ...]:
    """What a build refuses of a base image that is here: its processor, its Python, its glibc.

    Raises ConfigError for a file of the user's own that is no base image.
    """
    from builder.compile.compile import compile_plan
    from builder.pipeline.prepare import check_base_file
    from builder.pipeline.request import Build

    plan = compile_plan(target, page=False)
    build = Build(plan=plan, site=target.site, recipe=recipe, context=context, image=Path(plan.image))
    try:
        check_base_file(build, environment=os.environ)
    except (UnsupportedError, ToolError) as error:
        return error.findings
    return ()


def _drop_ignored(outcome: CheckResult, *, ignored: Sequence[str]) -> CheckResult:
    """Leave out the ignored codes; raises ConfigError for an error, which no build can pass."""
    refused = {finding.code for finding in select_errors(outcome.findings)} & set(ignored)
    if refused:
        code = sorted(refused)[0]
        message = f"'{code}' is an error on '{outcome.site}': it cannot be ignored"
        raise ConfigError(Finding(code="ignore", message=message, fix="correct it as its own fix says"))
    findings = tuple(finding for finding in outcome.findings if finding.code not in ignored)
    return CheckResult(**{**vars(outcome), "findings": findings})


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
