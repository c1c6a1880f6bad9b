"""Mistakes that people make, what they must read then, and the cure that the message names: applied, it helps.

A row: number, the line typed, exit code, what is wrong, where (default: the quoted thing in the first line), the fix,
and the cure, which is carried out with the words of the fix itself (`\\1` is the fix's first group).
"""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from re import Match
from typing import Union

from conftest import Seat
from screen import Shown
from support.small_images import ARM, BASE, SIF, TAR

Cure = Callable[[Seat, "Mistake", Match[str]], Shown]
Files = Mapping[str, Union[str, bytes]]  # noqa: UP007 - used at run time on Python 3.10


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One row; `cure` None: the fix cannot be carried out here, and `why` says why and what it is worth (0 to 3)."""

    number: str
    line: str
    code: int
    what: str
    fix: str
    where: str = r"'[^']+'|--\w+|no site|no command|named"
    cure: Cure | None = None
    files: Files = field(default_factory=dict)
    then: tuple[int, ...] = (0,)
    score: int = 3
    why: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)  # stand-ins
    before: tuple[str, ...] = ()  # lines that were typed
    edited: Files = field(default_factory=dict)  # what was written then


def word(old: str, new: str = r"\1") -> Cure:
    """The line again with another word."""

    def do(seat: Seat, row: Mistake, fix: Match[str]) -> Shown:
        words = [fix.expand(new) if one == old else one for one in shlex.split(row.line)]
        assert words != shlex.split(row.line)
        return seat.type(shlex.join(words))

    return do


def install_package(seat: Seat, row: Mistake, fix: Match[str]) -> Shown:
    """The command of the fix, with a stand-in for this system's package manager; then the line again."""
    place = seat.work.parent / "programs"
    make = f"""for word; do
        case $word in *apptainer*) names=apptainer ;; squashfs*) names="mksquashfs unsquashfs" ;; *) names= ;; esac
        for name in $names; do echo "#!/bin/sh" >{place}/$name; chmod 755 {place}/$name; done
    done"""
    managers = dict.fromkeys(("apt", "dnf", "zypper", "apk", "pacman"), make)
    seat.install({"sudo": 'exec "$@"', "add-apt-repository": "exit 0", **managers})
    assert seat.type(shlex.join(["sh", "-c", fix[1]])).code == 0
    return seat.type(row.line)


def lock(seat: Seat, row: Mistake, fix: Match[str]) -> Shown:
    """The lines that the fix says, with an index of one wheel without content; then the line again."""
    info, index = "numpy-2.2.6.dist-info", seat.work.parent / "index" / "numpy"
    index.mkdir(parents=True)
    with zipfile.ZipFile(index / "numpy-2.2.6-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: numpy\nVersion: 2.2.6\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (index / "index.html").write_text('<a href="numpy-2.2.6-py3-none-any.whl">numpy-2.2.6-py3-none-any.whl</a>')
    seat.env["UV_DEFAULT_INDEX"] = index.parent.as_uri()
    for command in fix.groups():
        assert (made := seat.type(command)).code == 0, made.text
    return seat.type(row.line)


def line(new: str = r"\1") -> Cure:
    """The line that the fix says."""
    return lambda seat, _, fix: seat.type(fix.expand(new))


def add(more: str) -> Cure:
    """The line again with more behind it."""
    return lambda seat, row, fix: seat.type(f"{row.line} {fix.expand(more)}")


def leave(*gone: str) -> Cure:
    """The line again without words."""
    return lambda seat, row, _: seat.type(shlex.join(one for one in shlex.split(row.line) if one not in gone))


def edit(old: str, new: str = r"\1", *, file: str = "x.yml") -> Cure:
    """Write the fix's words into the file in the place of others, and the line again."""

    def do(seat: Seat, row: Mistake, fix: Match[str]) -> Shown:
        text = (seat.work / file).read_text()
        assert old in text
        (seat.work / file).write_text(text.replace(old, fix.expand(new)))
        return seat.type(row.line)

    return do


def write(files: Files, *, again: str = "") -> Cure:
    """Make files, or make them anew, and the line again."""

    def do(seat: Seat, row: Mistake, _: Match[str]) -> Shown:
        seat.write(files)
        return seat.type(again or row.line)

    return do


def piped(seat: Seat, _: Mistake, fix: Match[str]) -> Shown:
    """The line that the fix says, in a pipe: its output is for programs."""
    return seat.type(fix[1], columns=None)


def then_again(new: str = r"\1") -> Cure:
    """The line that the fix says, and the first line again."""

    def do(seat: Seat, row: Mistake, fix: Match[str]) -> Shown:
        assert seat.type(fix.expand(new)).code == 0
        return seat.type(row.line)

    return do


def install(**programs: str) -> Cure:
    """Put programs into the place of others, and the line again."""

    def do(seat: Seat, row: Mistake, _: Match[str]) -> Shown:
        seat.install(programs)
        return seat.type(row.line)

    return do


ENV = "name: demo\nchannels: [conda-forge]\ndependencies:\n  - python=3.12\n  - pip:\n    - numpy==2.2.6\n"
HEAD = "name: x\nchannels: [conda-forge]\ndependencies:\n"
PLAIN = "name: demo\ndependencies:\n  - pip: [numpy==2.2.6]\n"
PROJECT = (
    '[project]\nname = "x"\ndependencies = ["numpy==2.2.6"]\n[project.optional-dependencies]\nplots = ["six==1.17.0"]\n'
)
PIXI = '[workspace]\nname = "x"\n[feature.a.dependencies]\nnumpy = "==2.2.6"\n[environments]\ngpu = ["a"]\n'
PLACED: Files = {"env.yml": ENV, "a.yml": ENV.replace("demo", "other"), "b.txt": "numpy==2.2.6\n"}
SITES = r"did you mean '([\w-]+)'\? known sites: dawn, .*own-site\.md"
KNOWN = r"did you mean '([\w-]+)'\?"
TICKS = r"`(recipe [^`]+)`"
REPORT = '{"schema": 1, "target": "demo.local.layers", "status": "passed", "image": "x.sif", "steps": [], "checks": []}'
OTHERS = f"{TICKS}, or another site in the place of 'local': dawn, frontier, isambard-ai, "
NO_ENGINE = (4,)
CONFIG = "../home/.config/recipe/config.yaml"


def at(number: str) -> str:
    return rf"at: +x\.(?:yml|txt):{number}"


def file(number: str, body: str, code: int, what: str, fix: str, **more: object) -> Mistake:
    """A faulty x.yml below the usual head, checked for `local`."""
    text = more.pop("text", HEAD + body)
    name = more.pop("name", "x.yml")
    line = more.pop("line", f"recipe check local {name}")
    return Mistake(
        number=number, line=str(line), code=code, what=what, fix=fix, files={str(name): text}, **more,  # type: ignore[arg-type,dict-item]
    )  # fmt: skip


WORDS = [
    Mistake(number="1", line="recipe build lumig env.yml", code=2, what="'lumig' is neither", fix=SITES, cure=word("lumig"), then=(4, 5)),
    Mistake(number="1b", line="recipe check lumi_g env.yml", code=2, what="'lumi_g' is neither", fix=SITES, cure=word("lumi_g")),
    Mistake(number="1c", line="recipe sites lumi", code=2, what="no site 'lumi'", fix=KNOWN, cure=word("lumi")),
    Mistake(number="2", line="recipe check LUMI-G env.yml", code=2, what="'LUMI-G' is neither", fix=SITES, cure=word("LUMI-G")),
    Mistake(number="3", line="recipe check perlmutter env.yml", code=2, what="'perlmutter' is neither", fix=r"known sites: .*, (local), .*a site of your own is a file: docs/own-site\.md", cure=word("perlmutter")),
    Mistake(number="4", line="recipe check local env.yml --explian", code=2, what="no such option '--explian'", fix=r"did you mean '(--explain)'", cure=word("--explian")),
    Mistake(number="4b", line="recipe build local env.yml --dryrun", code=2, what="no such option '--dryrun'", fix=r"did you mean '(--dry-run)'", cure=word("--dryrun"), then=(0, 4)),
    Mistake(number="5", line="recipe plan local env.yml --output-file x", code=2, what="no such option '--output-file'", fix=r"did you mean '(--output)'", cure=word("--output-file")),
    Mistake(number="6", line="recipe build local env.yml -x", code=2, what="no such option '-x'", fix=f"leave it out: {TICKS}", cure=line(), then=NO_ENGINE),
    Mistake(number="6g", line="recipe check local env.yml -b docker", code=2, what="no such option '-b'", fix=f"did you mean '--backend'\\? {TICKS}", cure=line()),
    Mistake(number="6h", line="recipe check local env.yml -b docker://python:3.12", code=2, what="no such option '-b'", fix=f"did you mean '--base'\\? {TICKS}", cure=line()),
    Mistake(number="6b", line="recipe run local x.sif --nodse 2 -- ls", code=2, what="no such option '--nodse'", fix=r"did you mean '(--nodes)'", files={"x.sif": SIF}, cure=word("--nodse"), then=(2, 4)),
    *(
        Mistake(number=f"6c {words}", line=f"recipe {words}", code=2, what=f"no such option '{option}'", fix=f"{kind} is an argument, not an option: {TICKS}", cure=line(), then=then)
        for words, option, kind, then in (
            ("check --site lumi-g env.yml", "--site", "SITE", (0,)),
            ("check -s lumi-g env.yml", "-s", "SITE", (0,)),
            ("plan env.yml --sites=lumi-g", "--sites", "SITE", (0,)),
            ("build env.yml --site local", "--site", "SITE", NO_ENGINE),
            ("lock --site local env.yml", "--site", "SITE", (5,)),
            ("fetch --site local env.yml", "--site", "SITE", NO_ENGINE),
            ("sites --site lumi-g", "--site", "SITE", (0,)),
            ("doctor -s local --offline", "-s", "SITE", NO_ENGINE),
            ("check lumi-g --env env.yml", "--env", "ENV", (0,)),
            ("check -f env.yml lumi-g", "-f", "ENV", (0,)),
        )
    ),
    *(
        Mistake(number=f"6d {command}", line=f"recipe {command}", code=2, what="no such option '--site'", fix=f"SITE is an argument, not an option: `(recipe {right})`", files={"x.sif": SIF, "x.tar": TAR}, cure=line(), then=(2, 4))
        for command, right in (
            ("smoke --site local x.sif", r"smoke local x\.sif"),
            ("convert x.tar --site local", r"convert local x\.tar"),
            ("run --site local x.sif -- ls -l", r"run local x\.sif -- ls -l"),
        )
    ),
    Mistake(number="6e", line="recipe status --site lumi-g", code=2, what="no such option '--site'", fix=f"no site is named here: {TICKS}", cure=line(), then=(2,)),
    Mistake(number="6f", line="recipe check local env.yml -Q", code=2, what="no such option '-Q'", fix=r"did you mean '(-q)'", cure=word("-Q")),
    Mistake(number="7", line="recipe check local envv.yml", code=2, what="'envv.yml' does not exist", fix=r"did you mean '(env\.yml)'", cure=word("envv.yml")),
    Mistake(number="7b", line="recipe check local env.yaml", code=2, what="'env.yaml' does not exist", fix=r"did you mean '(env\.yml)'", cure=word("env.yaml")),
    Mistake(number="7c", line="recipe lock envv.yml --offline", code=2, what="no site is named, and 'envv.yml' does not exist", fix=OTHERS, cure=line(), then=(5,)),
    Mistake(number="8", line="recipe build env.yml", code=2, what="no site is named: 'env.yml' is a file", fix=OTHERS, cure=line(), then=NO_ENGINE),
    Mistake(number="9", line="recipe plan lumi-g", code=2, what="no environment file is named: 'lumi-g' is a site", fix=TICKS, cure=lambda seat, _, fix: seat.type(fix[1])),
    Mistake(number="10", line="recipe build", code=2, what="no site and no environment file is named", fix=OTHERS, cure=line(), then=NO_ENGINE),
    Mistake(number="11", line="recipe check", code=2, what="no site and no environment file is named", fix=OTHERS, cure=line()),
    Mistake(number="12", line="recipe check local", code=2, what="no environment file is named: 'local' is a site", fix=TICKS, cure=line()),
    Mistake(number="13", line="recipe plan env.yml local", code=2, what="the site 'local' comes after the file 'env.yml'", fix=TICKS, cure=line()),
    Mistake(number="15", line="recipe lock env.yml --offline", code=2, what="no site is named: 'env.yml' is a file", fix=OTHERS, cure=line(), then=(5,)),
    Mistake(number="15b", line="recipe lock local --offline", code=2, what="no environment file is named: 'local'", fix=TICKS, cure=line(), then=(5,)),
    Mistake(number="16", line="recipe smoke x.sif", code=2, what="no site is named: 'x.sif' is a file", fix=OTHERS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="17", line="recipe run x.sif -- ls", code=2, what="no site is named: 'x.sif' is a file", fix=OTHERS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="17b", line="recipe smoke x.sif local", code=2, what="the site 'local' comes after the image 'x.sif'", fix=TICKS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="17c", line="recipe smoke local", code=2, what="no image is named: 'local' is a site", fix=TICKS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="17d", line="recipe shell x.sif", code=2, what="no site is named: 'x.sif' is a file", fix=OTHERS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="17e", line="recipe module x.sif", code=2, what="no site is named: 'x.sif' is a file", fix=OTHERS, files={"x.sif": SIF}, cure=line()),
    Mistake(number="17f", line="recipe kernel local", code=2, what="no image is named: 'local' is a site", fix=TICKS, files={"x.sif": SIF}, cure=line()),
    Mistake(number="18", line="recipe run local x.sif", code=2, what="no command is named", fix=f"{TICKS}, or another command", files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="18b", line="recipe run local -- ls", code=2, what="no image is named: 'local' is a site", fix=TICKS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="18e", line="recipe run -- ls", code=2, what="no site and no image is named", fix=OTHERS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="18f", line="recipe run x.sif", code=2, what="no site and no command is named: 'x.sif' is an image", fix=OTHERS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="18c", line="recipe run x.sif local -- ls", code=2, what="the site 'local' comes after the image", fix=TICKS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="18d", line="recipe smoke thing", code=2, what="'thing' is neither a site nor an image", fix=TICKS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="19", line="recipe inti", code=2, what="no command 'inti'", fix=r"did you mean '(init)'", cure=word("inti")),
    Mistake(number="19b", line="recipe site", code=2, what="no command 'site'", fix=r"did you mean '(sites)'", cure=word("site")),
    *(
        Mistake(number=f"20 {name}", line=f"recipe {name}", code=2, what=f"no command '{name.split()[0]}'", fix=f"did you mean {TICKS}", cure=line(), then=(0, 4))
        for name in ("list", "info", "help", "version", "help build", "info lumi-g", "validate local env.yml")
    ),
    Mistake(number="21", line="recipe --quiet plan local env.yml", code=2, what="no such option '--quiet'", fix=r"write it after the command: `recipe COMMAND (--quiet)`", cure=lambda seat, _, fix: seat.type(f"recipe plan local env.yml {fix[1]}")),
    Mistake(number="22", line="recipe plan local env.yml --jobs 0", code=2, what="'--jobs': 0 is not in the range", fix=r"write (1) or more, as in --jobs 1", cure=word("0")),
    Mistake(number="22b", line="recipe plan local env.yml --jobs", code=2, what="option '--jobs' requires an argument", fix=r"write `(--jobs 1)` or more", cure=lambda seat, _, fix: seat.type(f"recipe plan local env.yml {fix[1]}")),
    Mistake(number="23", line="recipe check --format jsn local env.yml", code=2, what="'jsn' is not one of", fix=r"did you mean '(json)'", cure=word("jsn")),
    Mistake(number="23b", line="recipe check --format xml local env.yml", code=2, what="'xml' is not one of 'text', 'table'", fix=r"write one of these: `--format (text)`", cure=word("xml")),
    Mistake(number="23c", line="recipe check local env.yml --format", code=2, what="option '--format' requires an argument", fix=r"write one of these: `(--format text)`", cure=lambda seat, _, fix: seat.type(f"recipe check local env.yml {fix[1]}")),
    Mistake(number="24", line="recipe check --ignore unpined local b.txt", code=2, what="no finding that may be ignored has the code 'unpined'", fix=r"did you mean '(unpinned)'", cure=word("unpined")),
    Mistake(number="25", line="recipe diff --site", code=2, what="option '--site' requires an argument", fix=f"write {OTHERS}", cure=line(), then=(2,)),
    Mistake(number="25f", line="recipe inspect x.sif --gpu --site", code=2, what="option '--site' requires an argument", fix=f"write {OTHERS}", files={"x.sif": SIF}, cure=line(), then=(0, 2)),
    Mistake(number="25b", line="recipe diff env.yml", code=2, what="diff compares two images or locks, and only 'env.yml' is named", fix=f"lock it first: {TICKS}; then name an image or another lock, too", cure=line(), then=(5,)),
    Mistake(number="25c", line="recipe diff x.sif", code=2, what="only 'x.sif' is named", fix=TICKS, files={"x.sif": SIF, "y.sif": SIF}, cure=line(), then=(0, 2)),
    Mistake(number="25d", line="recipe plan lumi-g env.yml --time 1:00 --mem 4G", code=2, what="no options '--time' and '--mem'", fix=TICKS, cure=line()),
    Mistake(number="25e", line="recipe check local env.yml --explian --formt table", code=2, what="no options '--explian' and '--formt'", fix=TICKS, cure=line()),
    Mistake(number="26", line="recipe cache clean", code=2, what="no such command 'clean'", fix=f"did you mean {TICKS}", cure=line()),
    Mistake(number="27", line="recipe init mnst", code=2, what="no example 'mnst'", fix=f"did you mean {TICKS}", cure=line()),
    Mistake(number="28", line="recipe init mnist -o env.yml", code=2, what="'env.yml' exists already", fix=TICKS, cure=line()),
    Mistake(number="28b", line="recipe init mnist -o env.yml", code=2, what="'env.yml' exists already", fix="or add (--force)", cure=add(r"\1")),
    Mistake(number="28c", line="recipe init mnist -o folder", code=2, what="'folder' is a folder", fix=TICKS, files={"folder/": ""}, cure=line()),
    Mistake(number="28d", line="recipe init site lumi-g", code=2, what="'lumi-g' is a site that comes with recipe", fix="choose another name", cure=word("lumi-g", "lumi-mine")),
    Mistake(number="28e", line="recipe init site Tiger!", code=2, what="'Tiger!' cannot be the name of a site", fix=TICKS, cure=line()),
    Mistake(number="28f", line="recipe init site tiger -o x.yaml", code=2, what="'x.yaml' is not the file of the site 'tiger'", fix=TICKS, cure=line()),
    Mistake(number="28g", line="recipe init mnist --detect", code=2, what="--detect is for the file of a site", fix=TICKS, cure=line()),
    Mistake(number="28h", line="recipe init --from Dockerfil", code=2, what="'Dockerfil' does not exist", fix="did you mean '(Dockerfile)'", files={"Dockerfile": "FROM python:3.12\nRUN pip install rich\n"}, cure=word("Dockerfil")),
    Mistake(number="28i", line="recipe init --from notes.txt", code=2, what="'notes.txt' is an environment file already", fix=TICKS, files={"notes.txt": "rich==13.7.1\n"}, cure=line()),
    Mistake(number="28j", line="recipe init mnist --from Dockerfile", code=2, what="'mnist' is an argument too many", fix=TICKS, files={"Dockerfile": "FROM python:3.12\nRUN pip install rich\n"}, cure=line()),
    Mistake(number="28k", line="recipe init --from Dockerfile", code=2, what="'INSTALL' is no instruction of a Dockerfile", where=r"Dockerfile:2", fix="check the spelling", files={"Dockerfile": "FROM python:3.12\nINSTALL rich\n"}, cure=write({"Dockerfile": "FROM python:3.12\nRUN pip install rich\n"})),
    Mistake(number="28l", line="recipe check lumi-g Dockerfile", code=2, what="'Dockerfile' is a Dockerfile, not a recipe", fix=TICKS, files={"Dockerfile": "FROM python:3.12\nRUN pip install rich\n"}, cure=line()),
    Mistake(number="29", line="recipe init -o newdir/x.yml", code=2, what="'newdir/x.yml': no such file or directory", fix="make the folder first: `(mkdir -p newdir)`", cure=then_again()),
    Mistake(number="30", line="recipe init -o shut/x.yml", code=2, what="'shut/x.yml' cannot be reached: the folder 'shut' may not be entered", fix=r"it is your own: `(chmod u\+rwx shut)`", files={"shut/": ""}, cure=then_again()),
]  # fmt: skip

FILES = [
    file("31", "  - python=3.12\n    - numpy\n", 2, "the line after 'python=3.12' is indented further", r"begin '(- numpy)' in the column of '- python=3\.12'", where=at("5"), cure=edit("    - numpy", r"  \1")),
    file("32", "  - python=3.12\n  - pip:\n  - numpy==2.2.6\n", 2, "the 'pip:' list is empty", "indent the items for pip by two more spaces", where=at("5"), cure=edit("  - numpy", "    - numpy")),
    file("33", "\t- python=3.12\n", 2, "a tab is used for indentation", "use spaces in its place", where=at("4"), cure=edit("\t", "  ")),
    file("37", "  - python=3.12\n  - pip:\n    - torch=2.8.0\n", 2, "'torch=2.8.0' has a single '='", r"pip compares with two: '(torch==2\.8\.0)'", where=at("6"), cure=edit("torch=2.8.0")),
    file("37b", "  - python=3.12\n  - pip:\n    - numpy=\n", 2, "'numpy=' is not a requirement", r"write it as in '(numpy==1\.26\.4)'", where=at("6"), cure=edit("numpy=")),
    file("39", "  python: 3.12\n", 2, "expected a list of packages", "write one package a line, each after '- '", where=at("4"), cure=edit("  python: 3.12", "  - python=3.12")),
    file("40", "  - python: 3.10\n", 2, "'python: 3.10' has a colon", r"write '(- python=3\.10)'", where=at("4"), cure=edit("- python: 3.10")),
    file("41", "  - python=3.12\ncontaner: {}\n", 2, "unknown key 'contaner'", KNOWN, where=at("5"), cure=edit("contaner")),
    file("41b", "", 2, "unknown key 'dependancies'", r"did you mean 'name'.*did you mean 'channels'.*did you mean '(dependencies)'", where=at("3"), text="nam: x\nchannel: [conda-forge]\ndependancies:\n  - python=3.12\n", cure=write({"x.yml": HEAD + "  - python=3.12\n"})),
    file("42", "  - python=3.12\ncontainer:\n  gpu: rocm\n", 2, "'gpu' is a list of vendors .*found the text 'rocm'", r"write (gpu: \[amd\])", where=at("6"), cure=edit("gpu: rocm"), then=(0, 3)),
    file("42b", "  - python=3.12\ncontainer:\n  gpu: [cuda, cpu]\n", 2, "'gpu' is a list of vendors", r"write (gpu: \[nvidia, cpu\])", where=at("6"), cure=edit("gpu: [cuda, cpu]")),
    file("43", "  - python=3.12\ncontainer:\n  gpu: [nvdia, cpu]\n", 2, "found the text 'nvdia'", KNOWN, where=at("6"), cure=edit("nvdia")),
    file("44", "  - python=3.12\n", 2, "'My Env/2' cannot be the name", "use letters, digits and _.+- only", where=at("1"), text="name: My Env/2\ndependencies: [python=3.12]\n", cure=edit("My Env/2", "My_Env-2")),
    file("45", "", 2, "'name' occurs twice, first in line 1.*'numpy' is listed twice: 'numpy=1' in line 4", "keep one of them", where=at("5"), text="name: x\nname: y\ndependencies:\n  - numpy=1\n  - numpy=2\n", cure=write({"x.yml": "name: x\nchannels: [conda-forge]\ndependencies:\n  - numpy=1\n"})),
    file("46", "  - pip: [torch==2.99]\n", 3, "'torch==2.99' matches no torch", r"use torch (2\.2\.0) to 2\.1\d\.0", where=at("4"), cure=edit("2.99")),
    file("47", "  - python=3.6\n  - pip: [torch==2.8.0]\n", 3, r"no wheel for Python 3\.6", r"use Python 3\.9, .*(3\.12)", where=at("5"), cure=edit("3.6")),
    file("48", "  - python=3.1\n  - pip: [torch==2.8.0]\n", 3, r"no wheel for Python 3\.1", r"did you mean Python (3\.10)\?", where=at("5"), cure=edit("3.1\n", "\\1\n")),
    file("49", "", 2, "the recipe is empty", r"write packages below '(dependencies:)', e\.g\. '- python=3\.12'", where=r"x\.yml", text="", cure=write({"x.yml": "dependencies:\n- python=3.12\n"})),
    file("49b", "", 2, "the recipe is empty", r"write packages below '(dependencies:)'", where=r"x\.yml", text="# only\n", cure=write({"x.yml": "dependencies:\n- python=3.12\n"})),
    file("50", "", 2, "the recipe is the text 'Dear all", r"begin with '(dependencies:)'", where=at("1"), text="Dear all, please install numpy.\n", cure=write({"x.yml": "dependencies:\n- numpy=2.2\n"})),
    file("51", "", 2, "UTF-16 text, as PowerShell", "save it as UTF-8", where=r"x\.yml", text=ENV.encode("utf-16"), cure=write({"x.yml": ENV})),
    file("52", "  - python=3.12\ncontainer:\n  files: {data.csv: /opt/data.csv}\n", 2, "there is no 'data.csv'", "check the path; it is read from the recipe's folder", where=at("6"), cure=write({"data.csv": "1"})),
    file("53", "", 2, "'other.txt' does not exist", r"there is b\.txt; make it, or remove the line", where=r"at: +x\.txt:1", name="x.txt", text="-r other.txt\n", cure=write({"other.txt": "numpy==2.2.6\n"})),
    file("53b", "", 2, "'other.txt' does not exist", r"there is (b\.txt); make it", where=r"at: +x\.txt:1", name="x.txt", text="-r other.txt\n", cure=edit("other.txt", file="x.txt")),
    file("55", "", 2, "a quote is opened here and not closed: name: 'x", "close it with ' at the end of the line", where=at("1"), text="name: 'x\ndependencies:\n  - python=3.12\n", cure=edit("'x", "'x'")),
    file("55b", '  - "python=3.12\n  - numpy=2\n', 2, "a quote is opened here and not closed", 'close it with " at the end of the line', where=at("4"), cure=edit('"python=3.12', '"python=3.12"')),
    file("56", "  - python=3.12\n---\nname: y\n", 2, "more than one YAML document", "remove the '---' and what follows", where=at("5"), cure=edit("---\nname: y\n", "")),
    file("57", "  -python=3.12\n", 2, "found the text '-python=3.12'", "write one package a line, each after '- '", where=at("4"), cure=edit("-python", "- python")),
    file("58", "", 2, "'torch=2.8' has a single '='.*'numpy >== 2' is not a requirement.*unknown pip option '--foo'.*'a b c'", r"with two: '(torch==2\.8)'", where=r"at: +x\.txt:4", name="x.txt", text="torch=2.8\nnumpy >== 2\n--foo\na b c\n", cure=write({"x.txt": "torch==2.8\n"})),
    file("59", "", 3, r"'torch==2\.8\.0\+cu126' is built for NVIDIA GPUs", r"write (torch==2\.8\.0):", where=r"at: +x\.txt:1", name="x.txt", text="torch==2.8.0+cu126\n", line="recipe check lumi-g x.txt", cure=edit("torch==2.8.0+cu126", file="x.txt")),
    file("60", "", 3, r"'torchvision==0\.20\.0' does not belong to torch", r"write (torchvision==0\.23\.0)", where=r"at: +x\.txt:2", name="x.txt", text="torch==2.8.0\ntorchvision==0.20.0\n", cure=edit("torchvision==0.20.0", file="x.txt")),
    file("61", "", 3, "'vllm==0.10' from the default index is built for NVIDIA", r"there is: vllm==VERSION(\+rocm)NNN with (--extra-index-url https://wheels\.vllm\.ai/rocm/)VERSION/rocmNNN", where=r"at: +x\.txt:1", name="x.txt", text="vllm==0.10\n", line="recipe check lumi-g x.txt", cure=edit("vllm==0.10", r"\g<2>0.15.0/rocm700\nvllm==0.15.0\g<1>700", file="x.txt")),
    file("61b", "  - python=3.12\n  - pip: [vllm==0.10, six==1.17.0]\n", 3, "'vllm==0.10' from the default index is built for NVIDIA", r"or (container)\.(base): (docker://docker\.io/rocm/vllm):TAG without that line", where=at("5"), line="recipe check lumi-g x.yml", cure=edit("vllm==0.10, six==1.17.0]\n", r"six==1.17.0]\n\1:\n  \2: \3:rocm6.4.1_vllm_0.10.0\n")),
    file("62", "", 3, r"'tensorflow\[and-cuda\]==2\.14\.0' works on NVIDIA", r"for AMD there is: (tensorflow-rocm==\S+)\s+below\s+a\s+line\s+of\s+its\s+own:\s+(--find-links\s+\S+)", where=r"at: +x\.txt:1", name="x.txt", text="tensorflow[and-cuda]==2.14.0\n", line="recipe check lumi-g x.txt", cure=edit("tensorflow[and-cuda]==2.14.0", r"\2\n\1", file="x.txt")),
    file("63", "", 2, "the address of 'example.org' contains credentials", "remove them", where=r"at: +x\.txt:1", name="x.txt", text="--index-url https://me:secret@example.org/simple\nnumpy==2.2.6\n", cure=edit("me:secret@", "", file="x.txt")),
    file("64", "", 2, "the folder '.' holds no package", "name the folder in which it is", where=r"at: +x\.txt:1", name="x.txt", text="-e .\n", cure=write({"pyproject.toml": "[project]\nname='a'\n"}), then=(0, 3)),
    file("69", "", 2, "this is a project of Poetry alone", r"run `poetry export -o (requirements\.txt)`", where=r"pyproject\.toml:1: tool\.poetry\.dependencies", name="pyproject.toml", text="[tool.poetry.dependencies]\nnumpy = '^2'\n", cure=write({"requirements.txt": "numpy==2.2.6\n"}, again="recipe check local requirements.txt")),
    file("69b", "", 2, "the project has no extra 'plot'", r"did you mean '(plots)'\?", where=r"pyproject\.toml: --extra", name="pyproject.toml", text=PROJECT, line="recipe check local pyproject.toml --extra plot", cure=word("plot")),
    file("68", "", 2, "the workspace has no environment 'gpus'", r"did you mean '(gpu)'\?", where=r"pixi\.toml: --environment", name="pixi.toml", text=PIXI, line="recipe check local pixi.toml --environment gpus", cure=word("gpus")),
    file("72", "", 2, "there is a comma after the last item", "remove it", where=r"x\.json:1", name="x.json", text='{"dependencies": ["python=3.12", "numpy=2.2.6",]}', cure=edit(",]}", "]}", file="x.json")),
    file("83", "  - python=3.12\n", 2, "standard input is a terminal", r"name the file", where=r"at: +-", line="recipe check local -", cure=word("-", "x.yml")),
    file("78", "", 2, "'x.ipynb' is a notebook", r"write the packages it uses into an (environment\.yml)", where=r"x\.ipynb", name="x.ipynb", text='{"cells": []}', cure=write({"environment.yml": ENV}, again="recipe check local environment.yml")),
    file("79", "", 2, "the name 'requirements' does not say which kind", r"rename it: .*(\.txt) for pip", where=r"requirements", name="requirements", text="numpy==2.2.6\n", cure=write({"requirements.txt": "numpy==2.2.6\n"}, again="recipe check local requirements.txt")),
    file("80", "", 2, "the recipe 'folder' is a folder", r"give the file in it: (folder/environment\.yml)", where=r"folder", name="folder/environment.yml", text=ENV, line="recipe check local folder", cure=word("folder")),
]  # fmt: skip

JOBS = "recipe build lumi-g env.yml --base docker://ubuntu:24.04 --submit -n"
# Stand-ins for sbatch: a controller that is away (the words of Slurm 22.05 to 24.05), and one that takes all jobs.
DEAF = 'echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1'
TAKES = "exit 0"
IMAGE = "#!/usr/bin/env run-singularity\n".ljust(32, "\0") + "SIF_MAGIC\0"  # an image, which --force replaces
WORK = [
    Mistake(number="84", line="recipe build local env.yml -o here.sif", code=2, what="here.sif' exists", fix="give (--force) to replace it", files={"here.sif": IMAGE}, cure=add(r"\1"), then=NO_ENGINE),
    Mistake(number="85", line="recipe build local env.yml -o here.sif -n", code=2, what="here.sif' exists", fix="give (--force) to replace it", files={"here.sif": IMAGE}, cure=add(r"\1"), then=NO_ENGINE),
    Mistake(number="86", line="recipe build local env.yml -o shut/x.sif", code=2, what="the output 'shut/x.sif' cannot be reached: the folder 'shut' may not be entered", fix="choose another output with -o", files={"shut/": ""}, cure=word("shut/x.sif", "own.sif"), then=NO_ENGINE),
    Mistake(number="87", line="recipe build local env.yml -o shut/x.sif -n", code=2, what="the output 'shut/x.sif' cannot be reached: the folder 'shut' may not be entered", fix="choose another output with -o", files={"shut/": ""}, cure=word("shut/x.sif", "own.sif"), then=NO_ENGINE),
    Mistake(number="88", line="recipe build local env.yml -o shut/x/x.sif", code=2, what="the output 'shut/x/x.sif' cannot be reached: the folder 'shut' may not be entered", fix="choose another output with -o", files={"shut/": ""}, cure=word("shut/x/x.sif", "own.sif"), then=NO_ENGINE),
    *(
        Mistake(number=f"89 {name}", line=f"recipe check lumi-g env.yml --backend {name}", code=code, what=f"'lumi-g' has no backend '{name}'", fix="its backends: apptainer, (cotainr), layers", cure=word(name))
        for name, code in (("singularity", 2), ("dockr", 2), ("docker", 3))
    ),
    Mistake(number="90", line="recipe build local env.yml --base ./env.sif", code=2, what="the base image './env.sif' does not exist", where=r"at: +--base", fix="did you mean '(env2.sif)'|or the path of an image", files={"base.sif": BASE}, cure=word("./env.sif", "base.sif"), then=NO_ENGINE),
    Mistake(number="90b", line="recipe build local env.yml --base /none/env.sif", code=2, what="'/none/env.sif' does not exist", where=r"at: +--base", fix="its folder '/none' does not exist", files={"base.sif": BASE}, cure=word("/none/env.sif", "base.sif"), then=NO_ENGINE),
    Mistake(number="91", line="recipe check local env.yml --base ubuntu:24.04", code=2, what="the base image 'ubuntu:24.04' does not exist", where=r"at: +--base", fix=r"write (docker://ubuntu:24\.04)", cure=word("ubuntu:24.04")),
    Mistake(number="92", line="recipe check local env.yml --base lumi-multitorch", code=2, what="'lumi-multitorch' does not exist and is not a reference", where=r"at: +--base", fix=r"write (docker://lumi-multitorch), or the path", cure=word("lumi-multitorch"), then=(0, 3)),
    Mistake(number="93", line="recipe build local env.yml --tmpdir nothere", code=2, what="the temporary folder 'nothere' does not exist", where=r"at: +--tmpdir", fix="make it: `(mkdir -p nothere)`", cure=then_again(), then=NO_ENGINE),
    Mistake(number="93b", line="recipe fetch local env.yml --tmpdir env.yml", code=2, what="the temporary folder 'env.yml' is not a folder", where=r"at: +--tmpdir", fix="`(mkdir -p (env.yml.tmp))`", cure=lambda seat, row, fix: (seat.type(fix[1]), seat.type(row.line.replace("--tmpdir env.yml", f"--tmpdir {fix[2]}")))[1], then=(2, 4)),
    Mistake(number="93c", line="RECIPE_TMPDIR=nothere recipe build local env.yml", code=2, what="'nothere' cannot be the value of RECIPE_TMPDIR: there is no such folder", where="RECIPE_TMPDIR", fix="`(mkdir -p nothere)`", cure=then_again(), then=NO_ENGINE),
    Mistake(number="94", line="recipe build local env.yml --from 3", code=2, what="no step '3' to start from", fix="its steps: (build-image), smoke", cure=word("3"), then=(2, 4, 5)),
    Mistake(number="94b", line="recipe build local env.yml --from build", code=2, what="no step 'build' to start from", fix="did you mean '(build-image)'", cure=word("build", r"\1"), then=(2,), why="the first `build` is the command"),
    Mistake(number="95", line="recipe build local env.yml --locked", code=3, what="a lock is required, and there is none for 'local'", where=r"at: +env\.lock\.yml", fix=r"run `(recipe lock local env\.yml)`", files={"env.yml": PLAIN}, cure=lock, then=NO_ENGINE),
    Mistake(number="95b", line="recipe build local env.yml --base base.sif --locked", code=3, what="a lock is required", where=r"at: +env\.lock\.yml", fix=r"run `recipe lock local env\.yml --base \S*base\.sif`", files={"base.sif": BASE}, why="a lock reads the base image's Python, and this image has no files; 95 has the same cure"),
    Mistake(number="96", line="recipe build local env.yml", code=4, what="needs 'apptainer' or 'singularity', which is not on PATH", fix=r"`(sudo [^`]*apptainer[^`]*)`", cure=install_package, then=NO_ENGINE),
    Mistake(number="96b", line="recipe build local env.yml", code=4, what="needs 'mksquashfs' and 'unsquashfs', which are not on PATH", fix=r"`(sudo [^`]*squashfs[^`]*)`", cure=install_package, then=NO_ENGINE),
    Mistake(number="97", line="recipe build local env.yml --backend docker", code=4, what="needs 'docker', which is not on PATH", fix=r"or leave `(--backend) (docker)` out", cure=leave("--backend", "docker"), then=NO_ENGINE),
    Mistake(number="99", line="recipe build lumi-g env.yml --submit --account project_1", code=4, what="there is no sbatch here", fix=r"log in to 'lumi-g'.*`(recipe plan lumi-g env\.yml --account project_1)`", cure=line()),
    Mistake(number="99b", line="recipe check lumi-g,mn5 env.yml", code=2, what="'lumi-g,mn5' is neither a known site nor a file", fix=r"name several sites with blanks between them: (lumi-g) (mn5)", cure=lambda seat, row, fix: seat.type(row.line.replace("lumi-g,mn5", fix.expand(r"\1 \2")))),
    Mistake(number="99c", line="recipe explain mpi4py", code=2, what="there is no code 'mpi4py', and a package has this name", fix=r"`(recipe explain mpi-missing)`", cure=line()),
    Mistake(number="99d", line="recipe plan local env.yml -o p --account project_1", code=2, what="--account is for jobs, and 'local' has no batch system", fix=r"`(recipe plan local env\.yml -o p)`", cure=line()),
    Mistake(number="100", line=f"{JOBS} --account project_1", code=4, what="Slurm does not answer", fix="try again in a while", programs={"sbatch": DEAF}, cure=install(sbatch=TAKES)),
    Mistake(number="101", line=JOBS, code=2, what="'lumi-g' requires a Slurm account", where="at: +--account", fix="give --account='(project_)<number>'", programs={"sbatch": TAKES}, cure=add(r"--account=\g<1>465000001")),
    Mistake(number="103", line=f"{JOBS} --account project_1 --mem lots", code=2, what="'lots' cannot be the value of --mem", fix=r"write a size such as (64G)", programs={"sbatch": TAKES}, cure=word("lots")),
    Mistake(number="103b", line=f"{JOBS} --account project_1 --time tomorrow", code=2, what="'tomorrow' cannot be the value of --time", fix=r"HH:MM:SS as in (02:00:00)", programs={"sbatch": TAKES}, cure=word("tomorrow")),
    Mistake(number="104", line=f"{JOBS} --account project_1 --time 99:99", code=2, what="'99:99' cannot be the value of --time", fix=r"HH:MM:SS as in (02:00:00)", programs={"sbatch": TAKES}, cure=word("99:99")),
    Mistake(number="103c", line="recipe build lumi-g env.yml --submit --account project_1 --mem lots --time tomorrow", code=2, what="'tomorrow' cannot be the value of --time.*'lots' cannot be the value of --mem", fix=r"HH:MM:SS as in (02:00:00).*write a size such as (64G)", cure=lambda seat, row, fix: seat.type(row.line.replace("tomorrow", fix[1]).replace("lots", fix[2])), then=(4,)),
    Mistake(number="102", line="recipe build lumi-g env.yml --submit --account 'my account'", code=2, what="'my account' cannot be the value of --account", fix="write its name alone, as in --account=(project_1)", cure=word("my account", "project_1"), then=(2, 4), score=3),
    Mistake(number="102b", line="recipe build lumi-g env.yml --submit --account 'x; rm -rf /'", code=2, what="'x; rm -rf /' cannot be the value of --account", fix="write its name alone, as in --account=(project_1)", cure=word("x; rm -rf /", "project_1"), then=(2, 4)),
    Mistake(number="105", line="recipe build local env.yml --submit --mem 4G", code=3, what="'local' has no batch system", fix=f"leave --submit and --mem out: {TICKS}", cure=line(), then=NO_ENGINE),
    Mistake(number="106", line="recipe build local env.yml --nodes 2 --mem lots", code=2, what="--mem and --nodes are for jobs, and 'local' has no batch system", fix=f"leave --mem and --nodes out: {TICKS}", cure=line(), then=NO_ENGINE),
    Mistake(number="106b", line="recipe build lumi-g env.yml --time 60 --mem 4G", code=2, what="--time and --mem are for jobs", fix=f"add --submit, or leave them out: {TICKS}", cure=line(), then=NO_ENGINE),
    Mistake(number="106c", line="recipe build env.yml --mem lots", code=2, what="'lots' cannot be the value of --mem.*no site is named", fix=r"a size such as (64G)", cure=word("lots"), then=(2,)),
    Mistake(number="107", line="recipe build lumi-g env.yml", code=4, what="this is not a machine of 'lumi-g'", fix=r"log in to 'lumi-g' and build there, or .*`(recipe plan lumi-g env\.yml)`", cure=line()),
    Mistake(number="108", line="recipe check mn5 env.yml --driver abc", code=2, what="'abc' is not a driver version", fix=r"e\.g\. (535\.86\.10)", cure=word("abc")),
    Mistake(number="108b", line="recipe check lumi-g env.yml --driver 535.86.10", code=2, what="no table says which ROCm the driver '535.86.10'", fix=r"known kernel drivers: .*(6\.2)", cure=word("535.86.10")),
    Mistake(number="111", line="recipe smoke local env.yml", code=2, what="'env.yml' is an environment file, and not an image", fix=TICKS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="111b", line="recipe smoke local folder", code=2, what="'folder' is a folder, and not an image", fix=TICKS, files={"folder/": "", "x.sif": SIF}, cure=line(), then=(4,)),
    Mistake(number="111c", line="recipe smoke local env.yml", code=2, what="'env.yml' is an environment file, and not an image", fix=f"build it first: {TICKS}", cure=line(), then=NO_ENGINE),
    Mistake(number="113", line="recipe smoke local nothere.sif", code=2, what="the image 'nothere.sif' does not exist", fix=r"`(recipe build local) ENV (-o nothere\.sif)` builds it from the environment file ENV", cure=line(r"\1 env.yml \2"), then=NO_ENGINE),
    Mistake(number="113b", line="recipe run local x.sfi -- ls", code=2, what="the image 'x.sfi' does not exist", fix=r"did you mean '(x\.sif)'", files={"x.sif": SIF}, cure=word("x.sfi"), then=(4,)),
    Mistake(number="113c", line="recipe convert local nothere.tar", code=2, what="the archive 'nothere.tar' does not exist", fix=r"there is (saved\.tar): `recipe convert local saved\.tar`; `docker save NAME -o nothere\.tar` writes it", files={"saved.tar": TAR}, cure=word("nothere.tar"), then=(4,)),
    *(
        Mistake(number=f"114 {verb}", line=f"recipe {verb} shut/x.sif{more}", code=2, what="'shut/x.sif' cannot be reached: the folder 'shut' may not be entered", fix=r"it is your own: `(chmod u\+rwx shut)`", files={"shut/x.sif": SIF}, cure=then_again(), then=(0, 2, 4))
        for verb, more in (("smoke local", ""), ("run local", " -- ls"), ("convert local", ""), ("status", ""), ("report", ""), ("inspect", ""), ("diff", " env.yml"))
    ),
    Mistake(number="115", line="recipe run local env.yml -- ls", code=2, what="'env.yml' is an environment file, and not an image", fix=TICKS, files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="115b", line="recipe convert local env.yml", code=2, what="'env.yml' is an environment file, and not an archive", fix=TICKS, files={"saved.tar": TAR}, cure=line(), then=NO_ENGINE),
    Mistake(number="116", line="recipe smoke local x.sif --workload mnst", code=2, what="'mnst' is not one of", fix=r"did you mean '(mnist)'", files={"x.sif": SIF}, cure=word("mnst"), then=(4,)),
    Mistake(number="117", line="recipe report env.yml", code=2, what="'env.yml' is an environment file, and not an image that was built here or a plan folder", fix=f"build it first: {TICKS}", cure=line(), then=NO_ENGINE),
    Mistake(number="117d", line="recipe report b.txt", code=2, what="'b.txt' is an environment file", fix=TICKS, files={"x.sif": SIF, "x.plan/report.json": REPORT}, cure=line()),
    Mistake(number="117e", line="recipe report ..", code=2, what="the folder '..' holds no report, no plan and no results", fix=f"build an image first: {TICKS}", cure=line(), then=NO_ENGINE),
    Mistake(number="117b", line="recipe inspect env.yml", code=2, what="'env.yml' is an environment file, and not an image", fix=TICKS, files={"x.tar": TAR, "x.sif": SIF}, cure=line(), then=(0, 2)),
    Mistake(number="117c", line="recipe diff env.yml a.yml", code=2, what="there is no lock 'env.lock.yml'.*there is no lock 'a.lock.yml'", where=r"at: +env\.yml", fix="make it: `(recipe lock local env.yml)`.*`(recipe lock local a.yml)`", files={"env.yml": PLAIN, "a.yml": PLAIN}, cure=lock),
    Mistake(number="118", line="recipe status", code=2, what="'.' is neither a plan folder", fix="no jobs were submitted in this folder: name the image or the plan folder", why="which one is the user's"),
    Mistake(number="118b", line="recipe status env.yml", code=2, what="'env.yml' is an environment file, and neither an image nor a plan folder", fix=TICKS, files={"x.plan/jobs/submitted.json": "{}", "x.plan/plan.json": "{}"}, cure=line(), then=(2,)),
    Mistake(number="118c", line="recipe status /nothere", code=2, what="'/nothere' does not exist", fix="no jobs were submitted in this folder: name the image or the plan folder", why="which one is the user's"),
    Mistake(number="118d", line="recipe status x.pln", code=2, what="'x.pln' does not exist", fix=f"did you mean {TICKS}", files={"x.plan/jobs/submitted.json": "{}", "x.plan/plan.json": "{}"}, cure=line(), then=(2,)),
    Mistake(number="121", line="recipe build local env.yml a.yml -o one.sif", code=2, what="'one.sif' cannot hold several images", fix="name a folder with -o", cure=word("one.sif", "one"), then=(4,)),
    Mistake(number="122", line="recipe build local env.yml env.yml", code=2, what="'env.yml' is named twice", fix="name it once", cure=lambda seat, _, __: seat.type("recipe build local env.yml"), then=NO_ENGINE),
    Mistake(number="123", line="recipe plan local env.yml -o foreign", code=2, what="'foreign' holds files that recipe did not write", fix="choose another folder, as in -o (foreign-2)", files={"foreign/README": "mine"}, cure=word("foreign")),
    Mistake(number="124", line="recipe plan local env.yml -o mine", code=2, what="'README.md' was edited", where=r"\S*mine'", fix="give --force to lose these changes, or another (?:folder|output) with -o", before=("recipe plan local env.yml -o mine",), edited={"mine/README.md": "mine"}, cure=word("mine", "another")),
    Mistake(number="124b", line="recipe plan local env.yml -o mine", code=2, what="'README.md' was edited", where=r"\S*mine'", fix="give (--force) to lose", before=("recipe plan local env.yml -o mine",), edited={"mine/README.md": "mine"}, cure=add(r"\1")),
    Mistake(number="125", line="recipe plan local env.yml --print smoke.sh", code=2, what="the plan has no file 'smoke.sh'", fix="did you mean '(2-smoke.sh)'|its files: .*(2-smoke.sh)", cure=word("smoke.sh", "2-smoke.sh")),
    Mistake(number="126", line="recipe build local env.yml --base arm.sif", code=3, what="arm.sif' is for aarch64, and 'local' has x86_64", where=r"at: +--base", fix=r"name an image for x86_64, or leave (--base) out", files={"arm.sif": ARM}, cure=lambda seat, row, fix: seat.type(row.line.replace(f" {fix[1]} arm.sif", "")), then=NO_ENGINE),
    Mistake(number="126b", line="recipe build -n local x.yml", code=3, what="arm.sif' is for aarch64, and 'local' has x86_64", where=r"at: +x\.yml: container\.base", fix=r"name an image for x86_64, or leave (container\.base) out", files={"arm.sif": ARM, "x.yml": HEAD + "  - python=3.12\ncontainer: {base: ./arm.sif}\n"}, cure=edit("container: {base: ./arm.sif}\n", ""), then=NO_ENGINE),
    Mistake(number="128", line="RECIPE_SITES=/nothere recipe check local env.yml", code=2, what="the folder of sites '/nothere' does not exist", where="RECIPE_SITES", fix="make it, or unset RECIPE_SITES", cure=leave("RECIPE_SITES=/nothere")),
    Mistake(number="128b", line="RECIPE_SITES=/tmp:/nothere recipe check local env.yml", code=2, what="the folder of sites '/nothere' does not exist", where=r"RECIPE_SITES", fix="make it, or unset RECIPE_SITES", cure=word("RECIPE_SITES=/tmp:/nothere", "RECIPE_SITES=/tmp")),
    Mistake(number="129", line="recipe check ./own.yaml env.yml", code=2, what="expected one of slurm, none, found the text 'pbs'", where=r"at: +own\.yaml:3: scheduler\.kind", fix=r"write (kind: none), and submit the scripts of a plan yourself", files={"own.yaml": "name: own\nextends: local\nscheduler: {kind: pbs}\n"}, cure=edit("kind: pbs", file="own.yaml")),
]  # fmt: skip

STRANGERS = [
    file("130", "  - python=three\n", 2, "'three' in 'python=three' is not a version of Python", r"'(python=3\.12)'", where=at("4"), cure=edit("python=three")),
    file("130b", "  - python=3.11t\n", 2, "the free-threaded Python", r"write '(python=3\.11)'", where=at("4"), cure=edit("python=3.11t")),
    file("130c", "  - python=3,11\n", 2, "'=3,11' in 'python=3,11' has a comma", r"write '(=3\.11)'", where=at("4"), cure=edit("=3,11")),
    file("131", "  - python=3.12\n  - pip: [pytorch==2.8.0]\n", 3, r"'pytorch==2\.8\.0' is not the name on the package index", r"write (torch)", where=at("5"), cure=edit("pytorch")),
    file("132", "  - python=3.12\ncontainer:\n  gpu: cuda\n", 2, "'gpu' is a list of vendors", r"write (gpu: \[nvidia\])", where=at("6"), cure=line("recipe check --fix local x.yml"), then=(0, 2, 3)),
    Mistake(number="133", line="recipe build -n local env.yml -o .", code=2, what="'.' is a folder, and the image is a file", fix=r"-o (NAME\.sif)", cure=word(".", r"\1"), then=(0, 4)),
    Mistake(number="133b", line="recipe build -n local env.yml -o env.yml --force", code=2, what="'env.yml' would overwrite the recipe 'env.yml', which is never replaced", fix="another output with -o", cure=leave("-o", "--force"), then=(0, 2, 4), why="the other name is the user's"),
    Mistake(number="134", line="recipe diff a.plan b.plan", code=2, what="'a.plan' is a plan folder, and not an image or a lock", fix=f"{TICKS} compares what was measured", files={"a.plan/report.json": REPORT, "b.plan/report.json": REPORT}, cure=line()),
    Mistake(number="134b", line="recipe diff a.plan b.plan", code=2, what="'a.plan' is a plan folder", fix=r"`(recipe diff a\.sif b\.sif)`", files={"a.plan/": "", "b.plan/": "", "a.sif": SIF, "b.sif": SIF}, cure=line(), then=(0, 2)),
    Mistake(number="134c", line="recipe inspect a.plan", code=2, what="'a.plan' is a plan folder, and not an image", fix=r"`(recipe inspect a\.sif)`", files={"a.plan/": "", "a.sif": SIF}, cure=line(), then=(0, 2)),
    Mistake(number="135", line="recipe check local ''", code=2, what="argument 2 of 2 is empty, after 'local'", where="argument 2", fix=f"set it, or write the word itself, as in {TICKS}", cure=line()),
    Mistake(number="135b", line="recipe smoke local ''", code=2, what="argument 2 of 2 is empty, after 'local'", where="argument 2", fix=f"as in {TICKS}", files={"x.sif": SIF}, cure=line(), then=NO_ENGINE),
    Mistake(number="135c", line="recipe check '' env.yml", code=2, what="argument 1 of 2 is empty", where="argument 1", fix=f"as in {TICKS}", cure=line()),
    Mistake(number="136", line="recipe convert local x.sif --force", code=2, what="'x.sif' would overwrite the archive '\\S*x.sif'", fix="give another output with (-o)", files={"x.sif": TAR}, cure=add(r"\1 y.sif"), then=(4, 5)),
    Mistake(number="136b", line="recipe convert lumi-c x.sif --wrap opt/bin --here", code=2, what="'opt/bin' is not a whole path in the image 'x.sif'", fix=r"write it from the root, as in (--wrap) (/opt/bin)", files={"x.sif": SIF}, cure=word("opt/bin", r"\2"), then=(5,), why="the image in its place cannot be listed"),
    Mistake(number="136c", line="recipe convert lumi-c env --wrap sbin --here", code=2, what="there is nothing at 'sbin' in 'env'", where=r"env/sbin", fix="name the folder of its programs", files={"env/bin/": ""}, score=2, why="the folder in its place has no program"),
    Mistake(number="136d", line="recipe convert local x.sif --wrap /bin/sh", code=3, what="the site 'local' has no tykky, which makes wrappers", fix=r"name a site that has it: (lumi-c)", files={"x.sif": SIF}, cure=word("local"), then=(5,)),
    Mistake(number="136f", line="recipe module local x.sif --name 'my tool'", code=2, what="'my tool' cannot be the name of a module", where="--name", fix="as in --name (x/local)", files={"x.sif": SIF}, cure=word("my tool")),
    Mistake(number="136g", line="recipe kernel local x.sif --name My/Tool", code=2, what="'My/Tool' cannot be the name of a kernel", where="--name", fix="as in --name (my-tool)", files={"x.sif": SIF}, cure=word("My/Tool")),
    Mistake(number="136h", line="recipe module local x.sif -o notes", code=2, what="'notes' holds files that recipe did not write", fix="choose another folder, as in -o (notes-2)", files={"x.sif": SIF, "notes/mine.txt": "mine"}, cure=word("notes")),
    Mistake(number="136i", line="recipe module local x.sif -o shut/m", code=2, what="'shut/m' cannot be reached: the folder 'shut' may not be entered", fix=r"it is your own: `(chmod u\+rwx shut)`", files={"x.sif": SIF, "shut/": ""}, cure=then_again()),
    Mistake(number="136j", line="recipe module local x.sif -o a:b", code=2, what="the path of the module 'a:b' contains ':'", fix="choose another folder with (-o)", files={"x.sif": SIF}, cure=word("a:b", "ab")),
    Mistake(number="136k", line="recipe module local x.sif --wrap bin/sh", code=2, what="'bin/sh' is not a whole path in the image 'x.sif'", fix=r"write it from the root, as in --wrap (/bin/sh)", files={"x.sif": SIF}, cure=word("bin/sh")),
    Mistake(number="136e", line="recipe build -n local env.yml --update", code=2, what="--update is for installations of tykky, and this build makes an image", where="--update", fix="leave (--update) out", cure=leave("--update"), then=NO_ENGINE),
    Mistake(number="137", line="recipe plan local env.yml -o .", code=2, what="'.' would overwrite the recipe 'env.yml'", fix="give another output with (-o)", cure=word(".", "p")),
    Mistake(number="138", line="RECIPE_CACHE_GIB=forty recipe cache ls", code=2, what="'forty' cannot be the value of RECIPE_CACHE_GIB: it is no number of GiB", where=r"RECIPE_CACHE_GIB", fix="write (RECIPE_CACHE_GIB=40), or unset RECIPE_CACHE_GIB", cure=word("RECIPE_CACHE_GIB=forty")),
    Mistake(number="138b", line="RECIPE_UV=/none/uv recipe build -n local env.yml", code=2, what="'/none/uv' cannot be the value of RECIPE_UV: there is no such program", where=r"RECIPE_UV", fix="or unset (RECIPE_UV)", cure=leave("RECIPE_UV=/none/uv"), then=NO_ENGINE),
    Mistake(number="138c", line="RECIPE_OFFLINE=no recipe build -n local env.yml", code=2, what="'no' cannot be the value of RECIPE_OFFLINE: it is not yes", where=r"RECIPE_OFFLINE", fix="or unset (RECIPE_OFFLINE)", cure=leave("RECIPE_OFFLINE=no"), then=NO_ENGINE),
    Mistake(number="139", line="recipe check lumi-g env.yml", code=2, what="expected one of auto, never, found the text 'nevr'", where=r"at: +\S*config\.yaml:2: color", fix=KNOWN, files={CONFIG: "site: local\ncolor: nevr\n"}, cure=edit("nevr", file=CONFIG)),
    Mistake(number="139b", line="recipe check env.yml", code=2, what="there is no site 'lumig'", where=r"at: +\S*config\.yaml:1: site", fix=KNOWN, files={CONFIG: "site: lumig\n"}, cure=edit("lumig", file=CONFIG)),
    Mistake(number="139c", line="recipe plan lumi-g env.yml", code=2, what="expected text, found the number 465", where=r"at: +\S*config\.yaml:1: account\.lumi-g", fix='put quotes round it: lumi-g: ("465")', files={CONFIG: "account: {lumi-g: 465}\n"}, cure=edit("465", file=CONFIG)),
    Mistake(number="140", line="recipe schema sites", code=2, what="there is no schema 'sites'", fix=TICKS, cure=piped),
    Mistake(number="140b", line="recipe schema", code=2, what="no kind of file is named", where="no kind", fix=TICKS, cure=piped),
]  # fmt: skip

MISTAKES = [*WORDS, *FILES, *WORK, *STRANGERS]

# Rows whose line needs an engine: where they are tested with a real one.
ELSEWHERE = {
    98: "tests/unit/execute/test_execute_explain.py::test_known_failures_have_one_cause_and_one_fix",
    112: "tests/engines/test_smoke_command.py::test_an_image_without_torch_fails",
}
# All of them but the inputs of other tools (66 to 77), addresses (81 to 83), and base images of another processor
# (127): those are for where people already are, and for real machines.
# 1 to 129 were collected by a reader, 130 to 140 by others.
REVIEWED = set(range(1, 141)) - {66, 67, 70, 71, *range(73, 78), 81, 82, 127}

# What was taken without a word, or was no mistake at all: the line, its exit code and what is said.
ACCEPTED = [
    ("14", "recipe check lumi-g env.yml b.txt", 0, r"env\.yml:.*b\.txt:", {}),
    ("34", "recipe check local x.yml", 0, "ok", {"x.yml": "dependencies:\n  - python=3.12\n"}),
    ("35", "recipe check local b.txt", 0, "ok", {}),
    ("36", "recipe check local x.txt", 0, r"did you mean .*numpy|numpy.*nunpy|nunpy.*numpy", {"x.txt": "nunpy\n"}),
    ("38", "recipe check local x.yml", 0, r"is read as 'pytorch==2\.8\.0'", {"x.yml": HEAD + "  - torch==2.8.0\n"}),
    ("54", "recipe check local x.yml", 0, "ok|warnings", {"x.yml": HEAD + "  - python=3.12.1=hab00c5b_1_cpython\nprefix: /home/a/x\n"}),
    ("65", "recipe check local x.yml", 0, r"libgl1-mesa-glx", {"x.yml": HEAD + "  - libgl1-mesa-glx\n"}),
    ("119", "recipe doctor local", 4, r"apptainer", {}),
    ("120", "recipe check lumi-g x.txt", 3, r"error\[torch-vendor\]", {"x.txt": "torch==2.8.0+cu126\n"}),
]  # fmt: skip
