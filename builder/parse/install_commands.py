"""Shell commands that install packages: what they install, and which of their words a recipe has no place for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from builder.parse.build_file import expand, has_variable, is_variable

Kind = Literal["pip", "conda", "system", "environment", "set", "folder", "nothing", "other"]
QUIET = re.compile(r"\s*(?:[012&]?>{1,2}\s*/dev/null|2>&1)")
ANSWERED = re.compile(r"^(?:yes(?: \w+)?|echo (?:-\w+ )?['\"]?[yY][^|'\"]*['\"]?) ?\| ?")
ANYWAY = re.compile(r"\s*\|\|\s*(?:true|:|exit\s+\d+|\(?exit \d+\)?)\s*$")
OPERATOR = re.compile(r"[();<>|&]+")
PIP = re.compile(r"(?:.*/)?pip[0-9.]*")
PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
CONDA = re.compile(r"(?:.*/)?(?:conda|mamba|micromamba)")
MANAGERS = ("apt-get", "apt", "aptitude", "dnf", "yum", "microdnf", "zypper", "apk")
INSTALL = ("install", "add", "in", "localinstall")
# pip's: with a value, and those that change what or how it installs.
PIP_VALUED = (
    "-r", "--requirement", "-c", "--constraint", "-e", "--editable", "-f", "--find-links", "-i", "--index-url",
    "--default-index", "--index", "--extra-index-url", "--no-binary", "--only-binary", "--trusted-host",
)  # fmt: skip
PIP_SKIPPED = (
    "--timeout", "--default-timeout", "--retries", "--progress-bar", "--root-user-action", "--cache-dir", "--log",
    "--python", "-p", "--upgrade-strategy", "--exists-action", "--index-strategy", "--link-mode", "--cert", "--proxy",
    "--torch-backend",
)  # fmt: skip
PIP_KEPT = (
    "--no-deps", "--no-build-isolation", "--target", "-t", "--prefix", "--root", "--global-option", "--config-settings",
    "--install-option", "-C", "--no-index", "--platform",
)  # fmt: skip
LONG = {
    "-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-f": "--find-links", "-i": "--index-url",
    "--default-index": "--index-url", "--index": "--extra-index-url",
}  # fmt: skip
CONDA_VALUED = ("-c", "--channel", "-n", "--name", "-p", "--prefix", "-f", "--file", "--solver", "--channel-priority")
SYSTEM_VALUED = ("-t", "--target-release", "-o", "--option", "--enablerepo", "--repo", "-r", "--repository", "-X", "-c")
# What builds clean up, or prepare for themselves; a recipe needs none of it.
NOTHING = re.compile(
    r"(?:apt-get|apt|aptitude|dnf|yum|microdnf|zypper|apk)\s+(?:-\S+\s+)*"
    r"(?:update|upgrade|dist-upgrade|clean|autoclean|autoremove|makecache|refresh|ref|clean all)\b.*"
    r"|rm\s+(?:-\w+\s+)*(?:\S*(?:/var/lib/apt|/var/cache|/tmp|\.cache|[Mm]iniconda|[Mm]iniforge|[Mm]ambaforge|Anaconda)\S*\s*)+"
    r"|(?:\S*/)?(?:conda|mamba|micromamba)\s+(?:clean|init|update|activate|config|info|list|deactivate)\b.*"
    r"|(?:\S*/)?(?:pip[0-9.]*|python[0-9.]* -m pip|uv)\s+(?:cache|list|freeze|check|config|--version)\b.*"
    r"|(?:wget|curl)\s.*(?:[Mm]iniconda|[Mm]iniforge|[Mm]ambaforge|Anaconda)\S*\.sh\b.*"
    r"|(?:(?:/bin/)?(?:ba)?sh)\s+\S*(?:[Mm]iniconda|[Mm]iniforge|[Mm]ambaforge|Anaconda|conda)\S*\.sh\b.*"
    r"|(?:source|\.)\s+\S*(?:/bin/activate|conda\.sh|\.bashrc|mamba\.sh|/environment|/10-docker\S*)(?:\s+\S+)?"
    r"|source activate\b.*"
    r"|(?:uv|python[0-9.]* -m)\s+(?:venv|virtualenv|ensurepip)\b.*|virtualenv\s.*"
    r"|set\s+[-+].*|echo\s+[^<>|&]*|ldconfig|true|:|date|unset\s+[\w\s]+|which\s+\S+|hash -r|sync"
    r"|echo\s.*(?:conda|activate).*>>\s*\S*(?:environment|bashrc|profile)\S*"
    r"|(?:ln\s+-\S+\s+)\S*(?:python|pip)\S*\s+\S+|update-alternatives\s+--(?:install|set)\s+\S*python\S*\s.*"
    r"|eval\s+\"?\$\((?:\S*/)?(?:conda|mamba|micromamba)\s.*|export\s+\w+"
)
SETTINGS = re.compile(
    r"DEBIAN_FRONTEND|TZ|PIP_\w+|UV_\w+|CONDA_\w+|MAMBA_\w+|LC_\w+|LANG|LANGUAGE|PYTHONDONTWRITEBYTECODE"
)
# `pip install torch>=2`: to a shell a redirection, meant as a bound.
UNQUOTED = re.compile(r"(?<=\s)([A-Za-z][\w.\[\]-]*[<>]=?\d[\w.,<>=*]*)(?=\s|$)")


@dataclass(frozen=True, kw_only=True)
class InstallCommand:
    """What a command does. `words` are packages, `options` pairs of pip's or of conda's long names and values."""

    kind: Kind
    words: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


OTHER, EMPTY = InstallCommand(kind="other"), InstallCommand(kind="nothing")


def read_command(text: str, *, values: Mapping[str, str]) -> InstallCommand:
    """Find out what a command installs; `other` for one of another purpose, or that only a shell understands."""
    plain = ANSWERED.sub("", ANYWAY.sub("", QUIET.sub("", re.sub(r"[ \t]+", " ", text))))
    words = _split_words(plain, values)
    if words is None:
        return EMPTY if NOTHING.fullmatch(" ".join(plain.split())) else OTHER
    pairs, words = _drop_prefix(words)
    if not words:
        return InstallCommand(kind="set", options=tuple(pairs))
    if NOTHING.fullmatch(" ".join(words)):
        return EMPTY
    if words[0] == "cd" and len(words) == 2:
        return InstallCommand(kind="folder", words=(words[1],))
    found = next((read(words) for fits, read in READERS if fits(words)), OTHER)
    if found.kind == "pip" and found.words == ("mpi4py",):  # it is built with the MPI of the site
        return InstallCommand(kind="pip", words=found.words)
    if pairs and found.kind == "pip" and any(not SETTINGS.fullmatch(name) for name, _ in pairs):
        return OTHER  # the variables are for the build of what it installs
    open_words = [word for word in (*found.words, *(value for _, value in found.options)) if has_variable(word)]
    return OTHER if open_words else found


def _split_words(text: str, values: Mapping[str, str]) -> list[str] | None:
    """Split a simple command; None for one with pipes, redirections or sub-shells."""
    plain = text.replace("\\\n", " ")
    plain = UNQUOTED.sub(r"'\1'", plain) if "pip" in plain or "conda" in plain else plain
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    if any(OPERATOR.fullmatch(word) for word in words) or "\n" in plain.strip():
        return None
    return [word for one in words for word in _expand_word(one, values)]


def _expand_word(word: str, values: Mapping[str, str]) -> list[str]:
    """A word of the shell that is one variable may have become several words."""
    found = expand(word, values)
    return found.split() if re.fullmatch(r"\$\{?\w+\}?", word) and found != word else [found]


def _drop_prefix(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Take variables, sudo and `conda run` from the front of a command."""
    pairs: list[tuple[str, str]] = []
    words = words[1:] if words[:1] in (["export"], ["declare"]) and len(words) > 1 and "=" in words[1] else words
    while words:
        name, equals, value = words[0].partition("=")
        if equals and is_variable(name):
            pairs.append((name, value))
        elif words[0] not in ("sudo", "time", "env", "exec", "eatmydata"):
            break
        words = words[1:]
    if len(words) > 1 and CONDA.fullmatch(words[0]) and words[1] == "run":
        words = words[2:]
        while words and words[0].startswith("-"):
            words = words[2 if words[0] in ("-n", "--name", "-p", "--prefix") else 1 :]
    return pairs, words


def _is_pip(words: list[str]) -> bool:
    return len(_after_pip(words)) > 0


def _after_pip(words: list[str]) -> list[str]:
    """What follows `pip install`, with it; empty for another command."""
    if PYTHON.fullmatch(words[0]) and words[1:3] == ["-m", "pip"]:
        words = words[2:]
    elif words[0].rpartition("/")[2] == "uv" and words[1:2] == ["pip"]:
        words = words[1:]
    flags = 1
    while flags < len(words) and words[flags].startswith("-"):
        flags += 1
    return ["pip", *words[flags + 1 :]] if PIP.fullmatch(words[0]) and words[flags : flags + 1] == ["install"] else []


def _read_pip(words: list[str]) -> InstallCommand:
    packages: list[str] = []
    options: list[tuple[str, str]] = []
    for option, value in _read_options(_after_pip(words)[1:], valued=(*PIP_VALUED, *PIP_SKIPPED)):
        if not option:
            packages.append(value)
        elif option in PIP_KEPT:
            return OTHER
        elif option in PIP_VALUED or option == "--pre":
            options.append((LONG.get(option, option), value))
    packages = [word for word in packages if word not in ("pip", "install")] if packages != ["install"] else []
    if not options:  # a newer installer, for the build alone
        tools = [word for word in packages if re.fullmatch(r"(?:pip|setuptools|wheel|uv)\b[^/]*", word)]
        packages = packages if len(tools) < len(packages) else []
    if not packages and not any(name in ("--requirement", "--editable") for name, _ in options):
        return EMPTY
    return InstallCommand(kind="pip", words=tuple(packages), options=tuple(options))


def _read_options(words: list[str], *, valued: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The options of a command line with their values; a word that belongs to no option has ""."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.partition("=")
        if word == "--" or not word.startswith("-") or word == "-":
            yield "", word
        elif name.startswith("--") and equals:
            yield name, value
        elif word in valued and index < len(words):
            yield word, words[index]
            index += 1
        elif not word.startswith("--") and word[:2] in valued and len(word) > 2:
            yield word[:2], word[2:].removeprefix("=")
        else:
            yield word, ""


def _read_conda(words: list[str]) -> InstallCommand:
    flags = [index for index, word in enumerate(words[1:], 1) if not word.startswith("-")]
    if not flags:
        return OTHER
    verb, rest = words[flags[0]], words[flags[0] + 1 :]
    environment = verb == "env"
    if environment:
        verb, rest = (rest[0], rest[1:]) if rest else ("", [])
    if verb not in ("install", "create", "update"):
        return OTHER
    found = list(_read_options(rest, valued=CONDA_VALUED))
    long = {"-c": "--channel", "-f": "--file"}
    options = tuple((long.get(name, name), value) for name, value in found if long.get(name, name) in long.values())
    packages = tuple(value for name, value in found if not name and value != "--")
    if environment or any(name == "--file" for name, _ in options):
        if not any(name == "--file" for name, _ in options):
            options += (("--file", packages[0] if packages else "environment.yml"),)
        return InstallCommand(kind="environment", options=options, words=() if environment else packages)
    return InstallCommand(kind="conda", words=packages, options=options) if packages else EMPTY


def _read_system(words: list[str]) -> InstallCommand:
    rest = list(_read_options(words[1:], valued=SYSTEM_VALUED))
    plain = [value for name, value in rest if not name]
    if not plain or plain[0] not in INSTALL:
        return OTHER
    return InstallCommand(kind="system", words=tuple(plain[1:])) if plain[1:] else EMPTY


READERS: tuple[tuple[Callable[[list[str]], bool], Callable[[list[str]], InstallCommand]], ...] = (
    (_is_pip, _read_pip),
    (lambda words: CONDA.fullmatch(words[0]) is not None, _read_conda),
    (lambda words: words[0].rpartition("/")[2] in MANAGERS, _read_system),
)
