"""The help of a command: options in groups, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from builder.cli.streams import fit, get_screen_width

# What an option is about, in the order of the groups; any other is listed as one of the command itself.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Input": ("extras", "groups", "environment", "project", "kind"),
    "Output": (
        "output", "force", "show", "name", "shape", "form", "as_json", "sbom", "sign", "explain", "fix", "only_diff",
    ),
    "Build": (
        "dry_run", "update", "start", "no_smoke", "tmpdir", "offline", "check_only", "reproduce", "jobs", "locked",
    ),
    "Site": ("backend", "base", "driver", "torch_index", "launcher", "gpu_visibility"),
    "What is otherwise refused": ("ignored", "accept_licenses", "here", "trust"),
    "Slurm": (
        "submit", "account", "partition", "qos", "time", "mem", "nodes", "gpus", "dependency", "no_wait",
        "cancel_on_interrupt",
    ),
    "Display": ("verbose", "quiet", "no_color", "help"),
}  # fmt: skip
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "build": ("recipe build local environment.yml", "recipe build lumi-g environment.yml --submit --account=NAME"),
    "plan": ("recipe plan lumi-g environment.yml --show", "recipe plan mn5 environment.yml --print Dockerfile"),
    "check": ("recipe check lumi-g environment.yml --explain", "recipe check environment.yml --fix --diff"),
    "explain": ("recipe explain torch-build", "recipe explain glibc --format json"),
    "lock": ("recipe lock lumi-g mn5 environment.yml", "recipe lock lumi-g environment.yml --format pylock"),
    "fetch": ("recipe fetch local environment.yml", "recipe fetch local environment.yml --tmpdir /scratch/me"),
    "bundle": ("recipe bundle local environment.yml", "recipe bundle lumi-c environment.yml --locked -o x.tar.zst"),
    "smoke": ("recipe smoke local image.sif", "recipe smoke lumi-g image.sif --submit --nodes 2"),
    "report": ("recipe report image.sif", "recipe report first.sif second.sif -o report.html"),
    "run": ("recipe run local image.sif -- python3 train.py", "recipe run lumi-g image.sif --submit --nodes 2 -- CMD"),
    "shell": ("recipe shell image.sif", "recipe shell lumi-g image.sif --here"),
    "module": ("recipe module lumi-g image.sif -o modules", "recipe module image.sif --wrap /opt/env/bin"),
    "kernel": ("recipe kernel lumi-g image.sif", "recipe kernel image.sif --name mnist"),
    "push": ("recipe push image.sif oras://ghcr.io/me/demo:1.0", "recipe push image.sif oras://ghcr.io/me/demo:1.0 -n"),
    "convert": ("recipe convert mn5 image.tar -o image.sif", "recipe convert lumi-c image.sif --wrap /opt/env/bin"),
    "status": ("recipe status image.plan", "recipe status --follow image.sif"),
    "diff": ("recipe diff before.sif after.sif", "recipe diff image.sif environment.lock.yml"),
    "inspect": ("recipe inspect image.sif --integrity", "recipe inspect x.whl --gpu --site lumi-g"),
    "sites": ("recipe sites", "recipe sites lumi-g"),
    "cache": ("recipe cache ls", "recipe cache prune --gib 20"),
    "cache ls": ("recipe cache ls", "recipe cache ls --format json"),
    "cache check": ("recipe cache check", "RECIPE_CACHE_DIR=/scratch/me recipe cache check"),
    "cache prune": ("recipe cache prune --gib 20 -n", "recipe cache prune --downloads"),
    "doctor": ("recipe doctor", "recipe doctor lumi-g environment.yml"),
    "init": ("recipe init mnist-local", "recipe init --list"),
    "schema": ("recipe schema environment", "recipe schema site"),
    "config": ("recipe config", "recipe config --format json"),
    "completion": ("recipe completion bash", 'eval "$(recipe completion zsh)"'),
}


class FittedFormatter(click.HelpFormatter):
    """Help that fits the terminal, however narrow; click's own has 50 columns or more, and breaks no example."""

    def __init__(self, *, most: int | None) -> None:
        """`most` is the largest width for text; a pipe has click's own width."""
        self.columns = get_screen_width()
        super().__init__(width=self.columns and min(self.columns, most or self.columns) - 2, max_width=most)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of names and texts; at a narrow terminal the texts get half of it."""
        super().write_dl(list(rows), max(min(col_max, self.width // 2 - 4), 2), col_spacing)

    def getvalue(self) -> str:
        """All lines, those that are still too wide wrapped."""
        text = super().getvalue()
        columns = self.columns
        return text if columns is None else "\n".join("\n".join(fit(line, width=columns)) for line in text.split("\n"))


class FittedContext(click.Context):
    """The context of a command whose help fits the terminal."""

    def make_formatter(self) -> click.HelpFormatter:
        """Make the formatter for the terminal that stdout is."""
        return FittedFormatter(most=self.max_content_width)


class GroupedCommand(click.Command):
    """A command with grouped options in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group that has an option here."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        left = {_get_name(option): row for option in options if (row := option.get_help_record(ctx))}
        for group, names in GROUPS.items():
            rows = [left.pop(name) for name in names if name in left]
            if group == "Output" and (own := [name for name in left if _find_group(name) is None]):
                rows += [left.pop(name) for name in own]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)


def _get_name(option: click.Option) -> str:
    return "help" if "--help" in option.opts else option.name or ""


def _find_group(name: str) -> str | None:
    return next((group for group, names in GROUPS.items() if name in names), None)


def add_examples(command: click.Command, *, name: str) -> click.Command:
    """Add examples to the end of a command's help, and to those of the commands in a group."""
    lines = "\n".join(f"  {line}" for line in EXAMPLES.get(name, ()))
    command.context_class = FittedContext
    command.epilog = f"\b\nExamples:\n{lines}" if lines else None
    for inner, below in (command.commands if isinstance(command, click.Group) else {}).items():
        add_examples(below, name=f"{name} {inner}")
    return command
