"""The pages of the sites: bash parses each of their commands, each plan is made, each submitted line is submitted.

`sbatch` and `salloc` are stand-ins that check their options and print the rest; a script that a line names is one of
the plan that the page has made before.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.rows import rows

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "sites").glob("*.md"))
RECIPES = ROOT / "recipes"
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*\s+")
# What begins a command here, in prose and in the right column of a table.
PROGRAMS = ("recipe", "sbatch", "salloc", "bash", ".", "cd", "module", "export", "uv", "python3", "rsync", "squeue")
OPTIONS = {"--account", "--cpus-per-task", "--exclusive", "--export", "--gres", "--mem", "--nodes", "--qos", "-q"}
SBATCH = f"""#!{sys.executable}
import json, os, sys
words = sys.argv[1:]
while words and words[0].startswith("-"):
    option, _, value = words.pop(0).partition("=")
    if option not in {OPTIONS!r}:
        sys.exit(f"unknown option {{option}}")
    if option == "-q":
        words.pop(0)
    elif not value:
        sys.exit(f"{{option}} has no value")
if sys.argv[0].endswith("sbatch") and words and not os.path.isfile(words[0]):
    sys.exit(f"no script {{words[0]}}")
print(json.dumps(words))
"""


@dataclass(frozen=True)
class Command:
    """A command of a page; `whole`: in a block or a table, where nothing is left out."""

    text: str
    whole: bool


def commands_of(page: Path) -> Iterator[Command]:
    """The commands of a page in its order: blocks, the right columns of tables, and prose with wrapped spans."""
    for part in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
        lines = part.splitlines()
        if all(line.startswith("    ") for line in lines):
            yield from (Command(line.strip(), True) for line in lines)
        elif any(line.startswith("|") for line in lines):
            cells = [re.split(r"(?<!\\) \| ", line.strip("| "))[-1] for line in lines if line.startswith("|")]
            yield from (Command(text, True) for cell in cells for text in spans_of(cell))
        else:
            yield from (Command(text, False) for text in spans_of(" ".join(line.strip() for line in lines)))


def spans_of(text: str) -> Iterator[str]:
    for span in re.findall(r"`([^`]+)`", text):
        bare = span
        while found := ASSIGNMENT.match(bare):
            bare = bare[found.end() :]
        if bare.split(" ")[0] in PROGRAMS and " " in bare:
            yield span


def in_words(text: str) -> str:
    """The line as a reader types it: a value in the place of each <placeholder> and of what is left out."""
    return re.sub(r"<[^<>]*>", "x1", text).replace(" ...", "")


class Reader:
    """Somebody who follows a page in a folder: `recipe` is the real one, and starts no engine."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder, self.plan = page, folder, folder
        self.plans: list[Path] = []
        programs = folder / "programs"
        programs.mkdir()
        for name in ("sbatch", "salloc"):
            (programs / name).write_text(SBATCH, encoding="utf-8")
            (programs / name).chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "USER": "reader", "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def bash(self, text: str, *options: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["bash", *options, "-c", text], cwd=cwd or self.plan, env=self.environment, capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, f"{self.page.name}: {text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, command: Command) -> None:
        text = in_words(command.text)
        self.bash(text, "-n")
        if command.whole:
            words = ASSIGNMENT.sub("", text).split()
            act = {"recipe": self.recipe, "cd": self.enter, "bash": self.look_at, ".": self.source}.get(words[0])
            if act is not None:
                act(text, words)
            elif words[0] in ("sbatch", "salloc"):
                self.bash(text)

    def recipe(self, text: str, words: list[str]) -> None:
        if words[1] == "init" and any(path.stem == words[2] for path in self.folder.iterdir()):
            return  # an earlier line has named it
        if words[1] == "build" and "-o" in words:  # its plan, which is written next to the image
            text = text.replace("recipe build ", "recipe plan ").replace(".sif", ".plan")
            words = text.split()
        if words[1] not in ("plan", "check", "sites", "init"):
            return  # the others need an image or an engine; tests/source/test_docs.py parses all of them
        for word in words:
            if re.fullmatch(r"[\w-]+\.(?:yml|txt)", word) and not (self.folder / word).exists():
                example = RECIPES / word
                shutil.copy(example if example.exists() else RECIPES / f"mnist{Path(word).suffix}", self.folder / word)
        program = f"{sys.executable} -c 'from hpc_recipe import start; start()'"
        self.bash(text.replace("recipe ", f"{program} ", 1), cwd=self.folder)
        if words[1] == "plan" and "-o" in words:
            self.plan = self.folder / words[words.index("-o") + 1]
            self.plans.append(self.plan)

    def enter(self, text: str, words: list[str]) -> None:
        del text
        self.plan = self.folder / words[1]
        assert self.plan.is_dir()

    def look_at(self, text: str, words: list[str]) -> None:
        """A script of the plan that would start an engine: it is there, and bash reads it."""
        del text
        scripts = [folder / words[1] for folder in (self.plan, self.folder) if (folder / words[1]).is_file()]
        assert scripts, f"{self.page.name}: there is no {words[1]}"
        self.bash(f"bash -n {scripts[0]}")

    def source(self, text: str, words: list[str]) -> None:
        assert (self.plan / words[1]).is_file()
        for name in re.findall(r"&& (\w+)", text):
            assert f"{name}()" in (self.plan / words[1]).read_text(encoding="utf-8")


def furnish(folder: Path) -> None:
    """What the pages take from other places: a list of packages for pip, and the style that an example names."""
    (folder / "requirements.txt").write_text("torch==2.6.0\nnumpy\n", encoding="utf-8")
    for path in RECIPES.iterdir():
        if path.suffix not in (".yml", ".txt"):
            shutil.copy(path, folder / path.name)


@rows("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_works_as_it_is_typed(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(page.stem)
    furnish(folder)
    reader, followed = Reader(page, folder), list(commands_of(page))
    for command in followed:
        reader.follow(command)
    assert len(followed) >= 5
    assert reader.plans


def test_the_ranks_of_dawn_expand_their_own_address(tmp_path: Path) -> None:
    """The address of the program on its page is that of each rank, not of the shell that submits."""
    page = ROOT / "docs" / "sites" / "dawn.md"
    furnish(tmp_path)
    reader = Reader(page, tmp_path)
    text = "recipe plan dawn plots.yml -o plots-dawn"
    reader.recipe(text, text.split())
    found = [command.text for command in commands_of(page) if "--dist-url" in command.text]
    (line,) = [text for text in found if text.startswith("sbatch ")]
    script, *words = json.loads(reader.bash(in_words(line)))
    assert script == "run/nodes.sbatch"
    assert words[:2] == ["bash", "-c"]
    assert words[2].endswith(' --dist-url "$MASTER_ADDR" --dist-port "$MASTER_PORT"')
