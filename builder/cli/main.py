"""The command line: the only place that prints for the user, catches errors and sets the exit code.

A command's module is imported when the command is called: `recipe --help` reads this table and nothing else.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from builder import __version__
from builder.cli.streams import find_lost_output, protect_streams
from builder.model.finding import ConfigError, Finding, Location

FAULT = Finding(
    code="fault",
    message="this is a fault of recipe itself, please report it with the lines below",
    fix="report it with what is on stderr",
)

# command -> (module, one line of help), in the order a newcomer needs them
COMMANDS: dict[str, tuple[str, str]] = {
    "build": ("builder.cli.build", "Build an image for a site and test it by training in it."),
    "plan": ("builder.cli.plan", "Write everything a build needs into a folder, and run nothing."),
    "check": ("builder.cli.check", "Check what an environment becomes on one site, several or all."),
    "explain": ("builder.cli.explain", "Explain the code of a finding: what it means, and an example."),
    "lock": ("builder.cli.lock", "Record the exact files of an environment for sites."),
    "fetch": ("builder.cli.fetch", "Download all that a build needs, for `build --offline`."),
    "smoke": ("builder.cli.smoke", "Run the smoke test in an image again."),
    "report": ("builder.cli.report", "Show what was measured of an image, or compare several."),
    "run": ("builder.cli.run", "Run your own command in an image, as the site runs it."),
    "convert": ("builder.cli.convert", "Convert a docker-archive to a SIF image."),
    "status": ("builder.cli.status", "Show submitted jobs, and judge the ones that have ended."),
    "diff": ("builder.cli.diff", "Compare two images, two locks, or an image and its lock."),
    "inspect": ("builder.cli.inspect", "Show what is inside an image, without running it."),
    "sites": ("builder.cli.sites", "List the sites, or show what is known of one."),
    "cache": ("builder.cli.cache", "Show, check or shrink the cache of layers."),
    "doctor": ("builder.cli.doctor", "Check that this machine has what a build or a run needs."),
    "init": ("builder.cli.init", "Write an example environment file to start from."),
}
# what people type who come from other programs -> what they mean
MEANT = {
    "list": "recipe sites",
    "ls": "recipe sites",
    "info": "recipe doctor",
    "help": "recipe --help",
    "version": "recipe --version",
    "create": "recipe build",
    "test": "recipe smoke",
    "exec": "recipe run",
    "clean": "recipe cache prune",
    "validate": "recipe check",
}


# The commands that write paths into scripts, records and reports, which are UTF-8; the others only read.
WRITERS = ("build", "plan", "lock", "fetch", "smoke", "run", "convert", "status", "init")
PLACES = ("TMPDIR", "RECIPE_TMPDIR", "RECIPE_CACHE_DIR", "XDG_CACHE_HOME")


def check_places(command: str, words: Sequence[str]) -> None:
    """Raise ConfigError where a command would write to, or about, a path that is not UTF-8.

    Nor can a container be given each temporary folder. Links are followed: records hold the paths without them.
    """
    if command not in WRITERS:
        return
    own = words[: words.index("--")] if command == "run" and "--" in words else words  # the rest is another program's
    values = [word if word[:1] != "-" else word.partition("=")[2] if word[:2] == "--" else word[2:] for word in own]
    named = [(name, text) for name in PLACES if (text := os.environ.get(name))]
    for variable, text in [("", "."), *(("", value) for value in values), *named]:
        place, why = os.path.realpath(text.replace("\0", "")), ""
        if any("\ud800" <= letter <= "\udfff" for letter in place):
            why = "is not UTF-8 text"
        elif variable == "TMPDIR" and command in ("smoke", "run") and {":", ","} & set(place):
            # The scripts are in a folder there; the bind option of engines splits at both (Apptainer 1.4.5).
            why = "contains a colon or a comma, and no container can be given a folder in it"
        if why:
            raise _make_place_error(place, why=why, variable=variable)


def _make_place_error(place: str, *, why: str, variable: str) -> ConfigError:
    from builder.model.text import sanitize

    shown = sanitize(os.fsencode(place).decode(errors="backslashreplace"), limit=400)
    fix = f"set {variable} to another folder" if variable else "rename it with `mv`, or choose another place"
    at = Location(key=variable) if variable else Location(file=shown)
    return ConfigError(Finding(code="path-refused", message=f"the path '{shown}' {why}", at=at, fix=fix))


class ProgramContext(click.Context):
    """The context of the program itself: what writes its help is imported for the help alone."""

    def make_formatter(self) -> click.HelpFormatter:
        """Make a formatter that fits the terminal."""
        from builder.cli.help import FittedFormatter

        return FittedFormatter(most=self.max_content_width)


class Commands(click.Group):
    """A group that imports a command when it is called."""

    context_class = ProgramContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the table's order."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and return the command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        # Hundreds of modules are made, and nothing in them is garbage.
        gc.disable()
        try:
            from builder.cli.empty_values import refuse_empty_values
            from builder.cli.help import add_examples

            command: click.Command = import_module(COMMANDS[cmd_name][0]).run_command
            refuse_empty_values(command)
        finally:
            gc.freeze()
            gc.enable()
        return add_examples(command, name=cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Answer an unknown command with the closest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from builder.model.finding import suggest_name

            near = _find_meant(args)
            fix = f"did you mean `{near}`?" if near else suggest_name(args[0], known=COMMANDS, noun="commands")
            raise ConfigError(Finding(code="command-unknown", message=f"there is no command '{args[0]}'", fix=fix))
        if (
            args
            and not {"-h", "--help"} & set(args)
            and (
                any(name.startswith(("RECIPE_", "SOURCE_DATE_EPOCH")) for name in os.environ)
                or (os.environ.get("HOME") or "/")[:1] != "/"
            )
        ):
            from builder.cli.variables import check_variables

            check_variables(args[0], args[1:], environment=os.environ)
        if args and not {"-h", "--help"} & set(args):
            check_places(args[0], args[1:])
        from builder.cli.typed import WORDS

        ctx.meta[WORDS] = tuple(args[1:])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing one."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _find_meant(words: list[str]) -> str:
    """The line that is meant by a command of another program; "" where none is known."""
    first, rest = words[0].lower(), words[1:]
    if first == "help" and rest and rest[0] in COMMANDS:
        return f"recipe {rest[0]} --help"
    near = MEANT.get(first, "")
    takes = near and first not in ("list", "ls", "info", "help", "version", "clean")
    return " ".join([near, shlex.join(rest)]) if takes and rest else near


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="recipe", message="%(prog)s %(version)s")
def run_cli() -> None:
    """One environment file, any supercomputer.

    This program compiles an ordinary conda or pip environment file for a site, builds the image and tests it by
    training a small model in it.

    \b
    Start with:
      recipe init mnist-local
      recipe check local mnist-local.yml
      recipe build local mnist-local.yml
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; with 4 where the output of a success cannot be written."""
    protect_streams()
    code = run(arguments)
    lost = find_lost_output()
    if lost is not None and not code:
        code, _ = _report_failure(lost)
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; every expected failure is printed in the same form."""
    words = sys.argv[1:] if arguments is None else arguments
    with _set_no_color(words):
        return _run(words)


@contextmanager
def _set_no_color(words: list[str]) -> Iterator[None]:
    """Set NO_COLOR for --no-color before a `--`: for messages and for the programs that are started."""
    own = words[: words.index("--")] if "--" in words else words
    before = os.environ.get("NO_COLOR")
    if "--no-color" in own:
        os.environ["NO_COLOR"] = "1"
    try:
        yield
    finally:
        os.environ.pop("NO_COLOR", None)
        if before is not None:
            os.environ["NO_COLOR"] = before


def _run(arguments: list[str]) -> int:
    printed: dict[str, bool] = {}
    try:
        code = run_cli.main(args=arguments, prog_name="recipe", standalone_mode=False, obj=printed)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt) as stop:
        # click raises its Abort from a KeyboardInterrupt
        code, findings = _report_interrupt(stop.__cause__ if isinstance(stop, click.Abort) else stop)
    except click.ClickException as error:
        code, findings = _report_usage(error, arguments=arguments)
    except Exception as error:
        code, findings = _report_failure(error, arguments=arguments)
        if not code:
            _emit_failure([FAULT], arguments=arguments, printed=printed)
            raise
    _emit_failure(findings, arguments=arguments, printed=printed)
    return code


def _emit_failure(findings: Sequence[Finding], *, arguments: list[str], printed: Mapping[str, bool]) -> None:
    """Print the document of a failure where the words want one and the command has printed none."""
    if not printed and any(word.startswith(("--format", "--json")) for word in arguments):
        from builder.cli.failure_documents import emit_failure

        emit_failure(findings, arguments=arguments, root=run_cli)


def _report_interrupt(stop: BaseException | None) -> tuple[int, Sequence[Finding]]:
    """Exit with 128 + the signal's number, as shells do; a build has cleaned up."""
    from builder.cli.output import echo

    message = getattr(stop, "message", "") or "interrupted; partial output was removed"
    echo(message, err=True)
    return int(getattr(stop, "exit_code", 130)), [Finding(code="interrupted", message=message, fix="run it again")]


def _report_usage(error: click.ClickException, *, arguments: list[str]) -> tuple[int, Sequence[Finding]]:
    from builder.cli.output import echo, show_findings
    from builder.cli.usage import make_usage_finding

    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # since click 8.2
        echo(error.format_message(), err=True, important=True)
        return 2, [Finding(code="usage", message="no command is named", fix="see `recipe --help`")]
    findings = [make_usage_finding(error, arguments=arguments, root=run_cli)]
    show_findings(findings)
    return 2, findings


def _report_failure(error: Exception, *, arguments: Sequence[str] = ()) -> tuple[int, Sequence[Finding]]:
    """Print the findings of an exception; return them with its exit code, 0 for a fault of the program."""
    from builder.cli.output import echo, show_findings
    from builder.cli.usage import name_lines
    from builder.system.path_errors import to_builder_error

    known = to_builder_error(error)
    if known is None:
        echo(FAULT.message, err=True, important=True)
        return 0, []
    findings = name_lines(known.findings, arguments=arguments, root=run_cli)
    show_findings(findings)
    return known.exit_code, findings


if __name__ == "__main__":
    main()
