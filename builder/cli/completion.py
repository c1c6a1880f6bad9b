"""recipe completion: the script by which bash, zsh or fish asks what a word can be, and the answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import emit
from builder.model.finding import ConfigError, Finding

VARIABLE = "_RECIPE_COMPLETE"  # click's name for it
SHELLS: Mapping[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
Finder = Callable[[list[str]], Iterable[str]]  # from the words of the line, all that a word can be
ENVIRONMENTS = (".yml", ".yaml", ".json", ".toml", ".txt", ".in")
IMAGES = (".sif", ".tar")


@click.command("completion")
@click.argument("shell", required=False)
@add_plain_verbosity
def run_command(shell: str | None) -> None:
    """Print the script that completes words of recipe in SHELL: bash, zsh or fish; default: your login shell.

    \b
    bash: echo 'source <(recipe completion bash)' >> ~/.bashrc
    zsh:  echo 'source <(recipe completion zsh)' >> ~/.zshrc
    fish: echo 'recipe completion fish | source' >> ~/.config/fish/config.fish
    """
    name = shell or Path(os.environ.get("SHELL") or "").name
    if name not in SHELLS:
        what = f"there is no completion for the shell '{name}'" if name else "SHELL is not set"
        fix = "`recipe completion bash`, `recipe completion zsh` or `recipe completion fish`"
        raise ConfigError(Finding(code="usage", message=what, fix=fix))
    script = ShellComplete.source(SHELLS[name](click.Command("recipe"), {}, "recipe", VARIABLE))
    emit(script.strip("\n"))


def complete(cli: click.Command) -> int:
    """Answer a shell: print what the word can be; a line with a fault has no answer, and no message."""
    try:
        cli.main(args=[], prog_name="recipe", standalone_mode=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    except Exception:  # whatever it is, the prompt is no place for it
        return 0
    return 0


def add_completions(command: click.Command, *, name: str) -> None:
    """Let the parameters of a command know what they can be."""
    for param in command.params:
        find = WORDS.get(name) if isinstance(param, click.Argument) else OPTIONS.get(param.opts[0])
        if find is not None:
            param.type = WordType(find)


class WordType(click.ParamType):  # type: ignore[type-arg]
    """A word that `find` completes."""

    name = click.STRING.name

    def __init__(self, find: Finder) -> None:
        self.find = find

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete a word; the shell itself completes a path in a folder, and a file of any kind."""
        del ctx, param
        typed = os.environ.get("COMP_WORDS", "").split()  # as the scripts pass the line
        found = [word for word in self.find(typed) if word.startswith(incomplete)]
        return [CompletionItem(word) for word in found] or [CompletionItem(incomplete, type="file")]


def _find_sites(typed: list[str]) -> Iterable[str]:
    del typed
    from builder.cli.inputs import find_sites_folder
    from builder.parse.site import find_site_files

    return list(find_site_files(find_sites_folder()))


def _find_files(endings: tuple[str, ...]) -> list[str]:
    """The files here with one of these endings; those of another folder are the shell's to find."""
    return sorted(entry.name for entry in os.scandir() if entry.name.endswith(endings) and entry.name[0] not in ".-")


def _make_finder(endings: tuple[str, ...], *, several: bool = False) -> Finder:
    """Sites, and files here; with one of them given, and no more possible, the files alone."""

    def find(typed: list[str]) -> Iterable[str]:
        sites = list(_find_sites(typed))
        left = [] if set(sites) & set(typed) and not several else [name for name in sites if name not in typed]
        return [*left, *(name for name in _find_files(endings) if name not in typed)]

    return find


def _find_backends(typed: list[str]) -> Iterable[str]:
    """The backends of the sites given; without one, those of all bundled sites."""
    from builder.cli.inputs import find_sites_folder
    from builder.parse.site import load_site

    known = list(_find_sites(typed))
    names = [name for name in known if name in typed] or known
    loaded = [load_site(name, folder=find_sites_folder()) for name in names]
    return sorted({backend for site in loaded for backend in site.build.backends})


def _find_codes(typed: list[str]) -> Iterable[str]:
    del typed
    from builder.cli.check_formats import list_codes

    return sorted(list_codes())


def _find_examples(typed: list[str]) -> Iterable[str]:
    del typed
    from builder.cli.init import RECIPES

    return sorted(path.stem for path in RECIPES.iterdir() if path.suffix in (".yml", ".txt"))


def _find_schemas(typed: list[str]) -> Iterable[str]:
    del typed
    from builder.cli.schema import KINDS

    return KINDS


def _find_shells(typed: list[str]) -> Iterable[str]:
    del typed
    return SHELLS


# command -> what its words can be
WORDS: Mapping[str, Finder] = {
    **dict.fromkeys(("build", "plan", "check", "lock", "fetch", "bundle"), _make_finder(ENVIRONMENTS, several=True)),
    **dict.fromkeys(("smoke", "run", "shell", "module", "kernel", "convert"), _make_finder(IMAGES)),
    **dict.fromkeys(("sites", "doctor"), _find_sites),
    "explain": _find_codes,
    "init": _find_examples,
    "schema": _find_schemas,
    "completion": _find_shells,
}
OPTIONS: Mapping[str, Finder] = {
    "--backend": _find_backends,
    "--site": _find_sites,
    "--ignore": _find_codes,
}


def complete_commands(commands: Mapping[str, tuple[str, str]], incomplete: str) -> list[Any]:
    """Complete the name of a command, without importing one."""
    return [CompletionItem(name, help=text) for name, (_, text) in commands.items() if name.startswith(incomplete)]
