"""The command line: the only place that prints for the user, catches errors and sets the exit code.

A command's module is imported when the command is called: `recipe --help` reads this table and nothing else.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from builder import __version__
from builder.cli.settings import SET, apply_settings
from builder.cli.streams import find_lost_output, protect_streams
from builder.model.finding import ConfigError, Finding

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
    "bundle": ("builder.cli.bundle", "Pack all that a build needs into one file, for no network."),
    "smoke": ("builder.cli.smoke", "Run the smoke test in an image again."),
    "report": ("builder.cli.report", "Show what was measured of an image, or compare several."),
    "run": ("builder.cli.run", "Run your own command in an image, as the site runs it."),
    "shell": ("builder.cli.shell_command", "Open a shell in an image, as the site runs it."),
    "module": ("builder.cli.module", "Write a module, for Lmod and Tcl, with programs of an image."),
    "kernel": ("builder.cli.kernel", "Write a kernel for Jupyter that runs in an image."),
    "push": ("builder.cli.push", "Push an image to a registry, with its SBOM and provenance."),
    "convert": ("builder.cli.convert", "Convert a docker-archive to a SIF image."),
    "status": ("builder.cli.status", "Show submitted jobs, and judge the ones that have ended."),
    "diff": ("builder.cli.diff", "Compare two images, two locks, or an image and its lock."),
    "inspect": ("builder.cli.inspect", "Show what is inside an image, without running it."),
    "sites": ("builder.cli.sites", "List the sites, or show what is known of one."),
    "cache": ("builder.cli.cache", "Show, check or shrink the cache of layers."),
    "doctor": ("builder.cli.doctor", "Check that this machine has what a build or a run needs."),
    "init": ("builder.cli.init", "Write an example environment file to start from."),
    "schema": ("builder.cli.schema", "Print the JSON Schema of a file, for editors."),
    "config": ("builder.cli.config", "Show your settings, and where each one comes from."),
    "completion": ("builder.cli.completion", "Print the script that completes words in your shell."),
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


COMPLETE = "_RECIPE_COMPLETE"  # set when a shell asks what a word can be
READ = ("RECIPE_", "SOURCE_DATE_EPOCH", "APPTAINER_", "SINGULARITY_")  # variables that are checked


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
            from builder.cli.help import add_examples
            from builder.cli.refused_options import refuse_empty_values

            command: click.Command = import_module(COMMANDS[cmd_name][0]).run_command
            refuse_empty_values(command)
        finally:
            gc.freeze()
            gc.enable()
        if COMPLETE in os.environ:
            from builder.cli.completion import add_completions

            add_completions(command, name=cmd_name)
        return add_examples(command, name=cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete the name of a command from the table; click would import all of them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from builder.cli.completion import complete_commands

        return complete_commands(COMMANDS, incomplete)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Answer an unknown command with the closest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from builder.model.finding import suggest_name

            near = _find_meant(args)
            fix = f"did you mean `{near}`?" if near else suggest_name(args[0], known=COMMANDS, noun="commands")
            raise ConfigError(Finding(code="command-unknown", message=f"there is no command '{args[0]}'", fix=fix))
        if args and not ctx.resilient_parsing and not {"-h", "--help"} & set(args):
            from builder.cli.path_variables import make_paths_absolute
            from builder.cli.refused_options import check_places

            apply_settings(ctx, args[0], args[1:])
            if any(name.startswith(READ) for name in os.environ) or (os.environ.get("HOME") or "/")[:1] != "/":
                from builder.cli.variables import check_variables

                check_variables(args[0], args[1:], environment=os.environ)
            make_paths_absolute(os.environ)
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
    signal.signal(signal.SIGTERM, _exit_at_signal)
    code = run(arguments)
    lost = find_lost_output()
    if lost is not None and not code:
        code, _ = _report_failure(lost)
    sys.exit(code)


def _exit_at_signal(number: int, _: object) -> None:
    """Exit as after any error: temporary folders are removed."""
    sys.exit(128 + number)


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; every expected failure is printed in the same form."""
    if COMPLETE in os.environ:
        from builder.cli.completion import complete

        return complete(run_cli)
    words = sys.argv[1:] if arguments is None else arguments
    with _set_variables(words):
        return _run(words)


@contextmanager
def _set_variables(words: list[str]) -> Iterator[None]:
    """Set NO_COLOR for --no-color before a `--`: for messages and for the programs that are started.

    It and what is set from a file of settings is as before at the end.
    """
    own = words[: words.index("--")] if "--" in words else words
    before = {name: os.environ.get(name) for name in SET}
    if "--no-color" in own:
        os.environ["NO_COLOR"] = "1"
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


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
        from builder.cli.check_formats import emit_failure

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
    from builder.system.files import to_builder_error

    known = to_builder_error(error)
    if known is None:
        echo(FAULT.message, err=True, important=True)
        return 0, []
    findings = name_lines(known.findings, arguments=arguments, root=run_cli)
    show_findings(findings)
    return known.exit_code, findings


if __name__ == "__main__":
    main()
