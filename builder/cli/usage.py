"""click's usage errors as findings, with the command line to type instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import click

from builder.cli.output import has_json_format
from builder.cli.typed import find_arguments
from builder.model.finding import Finding, find_nearest
from builder.model.site import BackendName
from builder.model.text import sanitize

# Other names of subcommands -> the name here.
MEANT = {"clean": "prune", "clear": "prune", "rm": "prune", "gc": "prune", "list": "ls"}
EVERYWHERE = ("-v", "--verbose", "-q", "--quiet", "--no-color")  # options of commands, not of the program
# What is an option elsewhere and an argument here.
ARGUMENTS = {
    **dict.fromkeys(("site", "sites", "system", "cluster", "machine", "target", "platform", "s"), "SITE"),
    **dict.fromkeys(("env", "environment", "file", "recipe", "requirement", "requirements", "f", "e", "r"), "ENV"),
    **dict.fromkeys(("image", "img", "sif", "i"), "IMAGE"),
    **dict.fromkeys(("archive", "tar"), "ARCHIVE"),
}
OUTPUT = ("-o", "--output", "--out")
NEAR = 0.65  # 'site' and 'submit' are 0.6


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """The line that was typed: the command with its path, and the words after it."""

    path: str
    words: tuple[str, ...]
    takers: frozenset[str] = frozenset()  # options of other commands that take a value

    def remove_last(self, *words: str) -> str:
        """It again without the last one of each word."""
        rest = list(self.words)
        for word in words:
            if word in rest:
                del rest[len(rest) - 1 - rest[::-1].index(word)]
        return self._join(rest)

    def remove_option(self, option: str) -> str:
        """It again without an option and its value."""
        return self._join(self.split_option(option)[1])

    def remove_unknown(self, option: str) -> str:
        """It again without an option that is not known, and without the word after it where that is its value."""
        rest = list(self.words)
        at = next((at for at, word in enumerate(rest) if word.startswith(option)), None)
        if at is not None:
            value = rest[at + 1 : at + 2] if rest[at] == option else []
            known = self._takes(option, value)
            end = at + 2 if known or _is_value(value) else at + 1
            del rest[at:end]
        return self._join(rest)

    def _takes(self, option: str, value: Sequence[str]) -> bool:
        """Whether the word after an option of another command is its value: no site, and no file that is read here."""
        if not value or value[0].startswith("-") or _is_site(value[0]):
            return False
        if option in OUTPUT or option.lstrip("-").lower() in ARGUMENTS:
            return True
        return option in self.takers and not Path(value[0]).exists()

    def replace_options(self, options: Mapping[str, str]) -> str:
        """It again with other options in the place of unknown ones; those that become "" are left out, with values."""
        line = self
        for option, right in options.items():
            if right:
                words = [f"{right}{word[len(option) :]}" if _names(word, option) else word for word in line.words]
            else:
                words = shlex.split(line.remove_unknown(option).removeprefix(self.path))
            line = replace(line, words=tuple(words))
        return line._join(line.words)

    def replace_words(self, old: str, *new: str) -> str:
        """It again with other words in the place of one."""
        return self._join([one for word in self.words for one in (new if word == old else (word,))])

    def name_file(self, file: str) -> str:
        """It again with a file that begins with '-' named so that it is no option."""
        return self._join(f"./{word}" if word == file else word for word in self.words)

    def make_argument(self, option: str, *, name: str) -> str:
        """It again with the value of an option as the argument `name`: a site comes first, all else after it."""
        given, rest = self.split_option(option)
        value = given or name
        if value in rest:
            return self._join(rest)
        if name == "SITE":
            return self._join([value, *rest])
        end = rest.index("--") if "--" in rest else len(rest)
        return self._join([*rest[:end], value, *rest[end:]])

    def split_option(self, option: str) -> tuple[str, list[str]]:
        """The value of an option, "" where it has none, and the words without the two."""
        rest = list(self.words)
        for at, word in enumerate(rest):
            if word == option or word.startswith(f"{option}=") or (len(option) == 2 and word.startswith(option)):
                del rest[at]
                value = word.removeprefix(option).removeprefix("=")
                if not value and rest[at:] and not rest[at].startswith("-"):
                    value = rest.pop(at)
                return value, rest
        return "", rest

    def _join(self, words: Iterator[str] | Sequence[str]) -> str:
        return sanitize(" ".join([self.path, shlex.join(words)]).strip(), limit=200)


def _names(word: str, option: str) -> bool:
    return word == option or word.startswith(f"{option}=")


def _is_site(word: str) -> bool:
    from builder.cli.inputs import find_sites_folder
    from builder.parse.site import find_site_files

    return word in find_site_files(find_sites_folder())


def _is_value(words: Sequence[str]) -> bool:
    """Whether the word after an unknown option is its value: it names no site, no file and no option."""
    if not words or words[0].startswith("-"):
        return False
    path = Path(words[0])
    if re.fullmatch(r"[\d.:-]+\w{0,2}", words[0]):
        return True
    return not (path.suffix or "/" in words[0] or path.exists() or _is_site(words[0]))


def make_usage_finding(error: click.ClickException, *, arguments: Sequence[str], root: click.Group) -> Finding:
    """One finding for any fault of the command line of the program `root`."""
    context = getattr(error, "ctx", None) or find_context(root, arguments)
    path = context.command_path
    line = CommandLine(path=path, words=tuple(arguments[len(path.split()) - 1 :]))
    message = error.format_message().rstrip(".")
    if unreadable := _find_unreadable(error):
        return unreadable
    if isinstance(error, click.NoSuchOption):
        from builder.cli.refused_options import list_value_options

        line = replace(line, takers=list_value_options(root))
        unknown = _unknown(context, line=line, first=error.option_name)
        if len(unknown) > 1:
            names = " and ".join(f"'{sanitize(name)}'" for name in unknown)
            fix = f"`{line.replace_options(unknown)}`; see `{path} --help`"
            return Finding(code="usage", message=f"there are no options {names}", fix=fix)
        message = error.message.partition(" Did you mean")[0].rstrip(".").partition(" (")[0]
    message = re.sub(r"is not a valid (?:float|integer)( range)?$", "is not a number", message)
    message = message[:1].lower() + message[1:].partition(" Did you mean")[0].rstrip(".")
    instead = _suggest_instead(error, context=context, line=line)
    joint = " " if instead.endswith("?") else "; "
    fix = joint.join(filter(None, [instead, f"see `{path} --help`"]))
    return Finding(code="usage", message=message, fix=fix)


def _find_unreadable(error: click.ClickException) -> Finding | None:
    """The finding for a path that click refuses because it may not be read: whose it is, and what gives the right."""
    match = re.search(r"'(.*)' is not readable", error.message) if isinstance(error, click.BadParameter) else None
    if match is None:
        return None
    from builder.system.files import find_unreadable

    found = find_unreadable(Path(match[1]))
    if found is None or not isinstance(error.param, click.Option):  # type: ignore[attr-defined]
        return found
    return replace(found, fix=f"{found.fix}; or choose another path with {error.param.opts[0]}")  # type: ignore[attr-defined]


def find_context(root: click.Group, arguments: Sequence[str]) -> click.Context:
    """The command that the words name: click's own parser does not say it."""
    context = click.Context(root, info_name="recipe")
    for word in arguments:
        found = context.command.get_command(context, word) if isinstance(context.command, click.Group) else None
        if found is None:
            break
        context = click.Context(found, info_name=word, parent=context)
    return context


def name_lines(findings: Sequence[Finding], *, arguments: Sequence[str], root: click.Group) -> tuple[Finding, ...]:
    """Complete the fix of each environment file that does not exist by the line with one of this folder."""
    if all(finding.code != "file-missing" for finding in findings):
        return tuple(findings)
    path = find_context(root, arguments).command_path
    words = tuple(arguments[len(path.split()) - 1 :])
    return tuple(_name_line(finding, path=path, words=words) for finding in findings)


def _name_line(finding: Finding, *, path: str, words: Sequence[str]) -> Finding:
    at = finding.at
    if finding.code != "file-missing" or at is None or at.line is not None or "`" in finding.fix:
        return finding
    if at.file not in words:
        return finding
    if finding.message.startswith("the site file"):
        stem = Path(at.file).stem
        known_site = _is_site(stem)
        line = shlex.join(stem if word == at.file else word for word in words)
        return replace(finding, fix=f"a site is named without its ending: `{path} {line}`") if known_site else finding
    from builder.cli.file_kinds import list_environments

    near = re.match(r"did you mean '(.*)'\?$", finding.fix)
    known = [near[1]] if near else list_environments()
    name = next((name for name in known if name not in words and Path(name).is_file()), "")
    if not name:
        return replace(finding, fix=f"{finding.fix}; `recipe init` writes an example")
    shown = f"./{name}" if name.startswith("-") else name  # else it is read as an option
    line = sanitize(shlex.join(shown if word == at.file else word for word in words), limit=200)
    return replace(finding, fix=f"{finding.fix} `{path} {line}`" if near else f"{finding.fix}: `{path} {line}`")


def _suggest_instead(error: click.ClickException, *, context: click.Context, line: CommandLine) -> str:
    """What to write; "" where only the help can say it."""
    if isinstance(error, click.NoSuchOption):
        return _suggest_option(error, context=context, line=line)
    if isinstance(error, click.MissingParameter):
        return _suggest_line(context, line=line)
    if isinstance(error, click.BadOptionUsage):
        return _suggest_option_value(error, context=context, line=line)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _suggest_value(error, param=error.param)
    if found := re.search(r"unexpected extra arguments? \((.*)\)", error.format_message()):
        return f"write `{line.remove_last(*found[1].split())}`"
    if isinstance(context.command, click.Group):
        known = [name for name, command in context.command.commands.items() if not command.hidden]
        word = re.search(r"'([^']*)'", error.format_message())
        name = word[1] if word else ""
        near = find_nearest(name, known=known) or MEANT.get(name, "")
        return f"did you mean `{line.path} {near}`?" if near in known else f"its commands: {', '.join(known)}"
    return ""


def _unknown(context: click.Context, *, line: CommandLine, first: str) -> dict[str, str]:
    """The long options that the command does not have, and what is meant by each; "" where nothing is near."""
    known = {name for param in context.command.params for name in (*param.opts, *param.secondary_opts)}
    own = line.words[: line.words.index("--")] if "--" in line.words else line.words
    taken = {at + 1 for at, word in enumerate(own) if word in _takers(context)}
    words = [word.partition("=")[0] for at, word in enumerate(own) if word.startswith("--") and at not in taken]
    found = dict.fromkeys(word for word in words if word not in (*known, "--help"))
    if isinstance(context.command, click.Group) or first not in found:
        return {}
    if any(ARGUMENTS.get(name.lstrip("-").lower()) for name in found):  # these have a fix of their own, one by one
        return {}
    return {name: _find_near_option(name, known=[one for one in known if one.startswith("--")]) for name in found}


def _takers(context: click.Context) -> set[str]:
    """The options that take a value."""
    options = (param for param in context.command.params if isinstance(param, click.Option))
    return {name for param in options if not (param.is_flag or param.count) for name in param.opts}


def _suggest_option(error: click.NoSuchOption, *, context: click.Context, line: CommandLine) -> str:
    """What was meant by an option that is not there: an argument, another option, or nothing."""
    option = error.option_name
    if isinstance(context.command, click.Group):
        if option in EVERYWHERE:
            return f"write it after the command: `{line.path} COMMAND {option}`"
        near = _find_near_option(option, known=error.possibilities or ())
        return f"did you mean '{near}'?" if near else ""
    file = next((word for word in line.words if word.startswith(option) and Path(word).is_file()), "")
    if file:
        return f"name a file that begins with '-' as ./{file}: `{line.name_file(file)}`"
    known = [name for param in context.command.params for name in param.opts if name.startswith("-")]
    name = ARGUMENTS.get(option.lstrip("-").lower(), "")
    pieces = " ".join(context.command.collect_usage_pieces(context))
    name = "ARCHIVE" if name == "IMAGE" and "ARCHIVE" in pieces else name
    if name and name in pieces:
        return f"{name} is an argument, not an option: `{line.make_argument(option, name=name)}`"
    if name == "SITE":
        return (
            "did you mean '--site'?" if "--site" in known else f"no site is named here: `{line.remove_option(option)}`"
        )
    if option in OUTPUT and context.parent is not None and not set(OUTPUT) & set(known):
        from builder.cli.refused_options import suggest_redirection

        value, words = line.split_option(option)
        return suggest_redirection(context.command, path=line.path, words=words, value=value)
    if option == "--json" and has_json_format(context.command):
        return f"`{line.replace_words(option, '--format', 'json')}`"
    if option.lower() != option and option.lower() in known:
        return f"did you mean '{option.lower()}'?"
    near = (
        _find_near_option(option, known=[name for name in known if name.startswith("--")])
        if option.startswith("--")
        else ""
    )
    if near:
        return f"did you mean '{near}'?"
    if long := _find_long_option(option, context=context, line=line):
        return f"did you mean '{long}'? `{line.replace_words(option, long)}`"
    return f"leave it out: `{line.remove_unknown(option)}`"


def _find_long_option(option: str, *, context: click.Context, line: CommandLine) -> str:
    """The one long option that a letter with a value can be: `-b docker` is --backend, `-b x.sif` is --base."""
    value = line.split_option(option)[0] if len(option) == 2 and option in line.words else ""
    named = {name for param in context.command.params for name in param.opts if name.startswith(f"-{option}")}
    values: dict[str, Sequence[str]] = {"--backend": get_args(BackendName)}
    fits = [name for name in sorted(named & _takers(context)) if value in values.get(name, (value,))]
    exact = [name for name in fits if name in values] or fits
    return exact[0] if value and len(exact) == 1 else ""


def _find_near_option(option: str, *, known: Sequence[str]) -> str:
    """The option that is meant: two dashes, which all have, make nothing near."""
    bare = {name.lstrip("-"): name for name in known}
    found = find_nearest(option.lstrip("-"), known=bare, cutoff=NEAR)
    return bare.get(found, "")


def _suggest_line(context: click.Context, *, line: CommandLine) -> str:
    """The line with what it lacks, or the one that makes it where this folder has none."""
    from builder.cli.file_kinds import list_images, list_measured
    from builder.cli.targets import choose_site, name_environment

    known = {"IMAGE": list_images, "PATH...": list_measured}
    lists = [known[piece] for piece in _pieces(context) if piece in known]
    if lists and not any(found() for found in lists):
        build = f"`recipe build {choose_site()} {shlex.quote(name_environment())}`"
        return f"there is none in this folder: {build} builds an image"
    return f"write `{_complete_line(context, line=line)}`"


def _complete_line(context: click.Context, *, line: CommandLine) -> str:
    """The line with the arguments that it lacks: what this folder has of that kind, else an example of the help."""
    from builder.cli.help import EXAMPLES

    pieces = _pieces(context)
    given = sum(1 for _ in find_arguments(context.command, line.words))
    names = _fill(pieces[given:])
    examples = EXAMPLES.get(context.command_path.partition(" ")[2], ())
    if not line.words and names == pieces and examples:
        return examples[0]
    return " ".join([line.path, *([shlex.join(line.words)] if line.words else []), *names])


def _pieces(context: click.Context) -> list[str]:
    return [word for word in context.command.collect_usage_pieces(context) if word != "[OPTIONS]"]


def _fill(pieces: Sequence[str]) -> list[str]:
    """The arguments of a command's usage, with what this folder has of that kind."""
    from builder.cli.file_kinds import list_environments, list_images, list_measured

    found = list[str]()
    for piece in pieces:
        count, names = len(piece.split()), list[str]()
        if piece in ("IMAGE", "A B"):
            names = [*list_images(), *(list_environments() if count == 2 else ())]
        elif piece == "PATH...":
            names = list_measured()
        found.append(shlex.join(names[:count]) if len(names) >= count else piece)
    return found


def _suggest_option_value(error: click.BadOptionUsage, *, context: click.Context, line: CommandLine) -> str:
    """What is written behind an option that came without its value, or with one that it does not take."""
    param = next((param for param in context.command.params if error.option_name in param.opts), None)
    if param is None or "does not take" in error.message:
        return f"write {error.option_name} by itself"
    kind = param.type
    if isinstance(kind, click.Choice):
        return f"write one of these: {_list_choices(error.option_name, kind)}"
    if isinstance(kind, (click.IntRange, click.FloatRange)) and kind.min is not None:
        return f"write `{error.option_name} {kind.min}` or more"
    metavar = param.make_metavar(context)
    typed = shlex.join(line.words[:-1]) or " ".join(_fill(_pieces(context)))  # the option is the last word
    if metavar == "SITE":
        from builder.cli.targets import suggest_sites

        return "write " + suggest_sites(lambda site: f"{line.path} {typed} {error.option_name} {site}")
    return f"write `{line.path} {typed} {error.option_name} {metavar}`"


def _suggest_value(error: click.BadParameter, *, param: click.Parameter) -> str:
    kind, option = param.type, param.opts[-1]
    if isinstance(kind, click.Choice):
        word = re.match(r"'(.*?)' is not", error.message)
        near = find_nearest(word[1], known=map(str, kind.choices)) if word else ""
        return f"did you mean '{near}'?" if near else f"write one of these: {_list_choices(option, kind)}"
    if isinstance(kind, (click.IntRange, click.FloatRange)) and kind.min is not None:
        return f"write {kind.min} or more, as in {option} {max(kind.min, 1)}"
    return ""


def _list_choices(option: str, kind: click.Choice[Any]) -> str:
    return ", ".join(f"`{option} {name}`" for name in map(str, kind.choices))
