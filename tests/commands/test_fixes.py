"""The fix of a refused command line works: each `recipe ...` that it names is typed, and is not refused alike.

The lines are made by rule: what every command takes, with each kind of wrong thing in its place.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.small_images import BASE, SIF, TAR

from builder.cli.main import COMMANDS, run

ENVIRONMENT = "name: demo\nchannels: [conda-forge]\ndependencies:\n  - python=3.12\n  - pip: [numpy==2.2.6]\n"
NOWHERE = "http://127.0.0.1:9"  # refuses at once
# A right line of each command; the word in braces is what is replaced.
RIGHT = {
    "build": "build local {env.yml}",
    "build -n": "build -n local {env.yml}",
    "plan": "plan local {env.yml}",
    "check": "check local {env.yml}",
    "check all": "check {env.yml}",
    "explain": "explain {unpinned}",
    "lock": "lock local {env.yml}",
    "fetch": "fetch local {env.yml}",
    "bundle": "bundle local {env.yml}",
    "smoke": "smoke local {x.sif}",
    "smoke site": "smoke {x.sif}",
    "report": "report {x.sif}",
    "run": "run local {x.sif} -- ls",
    "shell": "shell local {x.sif}",
    "module": "module local {x.sif}",
    "kernel": "kernel local {x.sif} -o spec",
    "push": "push {x.sif} oras://127.0.0.1:9/demo:1",
    "convert": "convert local {x.tar}",
    "status": "status {x.sif}",
    "diff": "diff {x.sif} y.sif",
    "diff alone": "diff {x.sif}",
    "inspect": "inspect {x.sif}",
    "inspect sbom": "inspect {x.sif} --sbom out.json",
    "inspect gpu": "inspect --gpu {x.sif}",
    "sites": "sites {local}",
    "cache": "cache {ls}",
    "doctor": "doctor {local} --offline",
    "init": "init {mnist} -o new.yml",
    "init from": "init --from {Dockerfile} -o new.yml",
    "schema": "schema {site}",
    "config": "config --format {json}",
    "completion": "completion {bash}",
}
SHORT = ("smoke x.sif", "diff x.sif")  # these lack something themselves
WRONG = (
    "nothere", "nothere.yml", "nothere.sif", "nothere.tar", "nothere.plan", "no/where.yml", "no/where.sif", "folder",
    "fifo", "shut.yml", "shut.sif", "shut/x.sif", "empty.yml", "empty.sif", "empty.tar", "cut.sif", "notes.md",
    "env.yml", "x.sif", "x.tar", "old.plan", "lumig", "env.ymll", "x.sfi", "list.txt", "",
)  # fmt: skip
# Options that some commands have and others have not, a wrong value, a missing one, and a misspelt option.
MORE = (
    "-o out.json", "--output out.cdx.json", "--format json", "--format jsn", "--format", "--json", "--nodes 2",
    "--here", "--tmpdir .", "--sbom out.json", "--force", "--gib 3", "--fix", "--site local", "--env env.yml",
    "--quite", "--offlin", "--submit", "--jobs 0", "--nonsense 3",
)  # fmt: skip
# What the user must supply: another content, a right or a place. No line can do that.
SUPPLIED = {
    "image-unreadable",
    "fetch-backend",
    "recipe-empty",
    "recipe-format",
    "path-refused",
    "output-exists",
    "init-exists",
    "init-from",
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a line printed, and its exit code."""

    code: int
    err: str

    @property
    def errors(self) -> set[str]:
        """What is wrong, in the words of each error."""
        return set(re.findall(r"^error\S*: (.*)", self.err, re.MULTILINE))

    @property
    def fixes(self) -> list[str]:
        """The fix of each error."""
        return re.findall(r"^error[^\n]*\n(?:  at:[^\n]*\n)?  fix: (.*)", self.err, re.MULTILINE)

    @property
    def codes(self) -> set[str]:
        """The codes of its errors."""
        return set(re.findall(r"^error\[([\w-]+)\]", self.err, re.MULTILINE))


def make_lines(line: str) -> list[str]:
    """Wrong lines of a command by rule: another thing, none, one too many, more options, another order or site."""
    right = re.search(r"\{(.*)\}", line)
    assert right is not None
    plain = line.replace(right[0], right[1])
    head, mark, tail = plain.partition(" -- ")
    more = MORE if plain not in SHORT else ()
    found = [line.replace(right[0], shlex.quote(wrong)) for wrong in WRONG]
    found += [line.replace(right[0], "").replace("  ", " ").rstrip(), f"{plain} {right[1]}", f"{plain} nothere"]
    found += [f"{head} {more}{mark}{tail}" for more in more]
    found += [re.sub(r"local (\S+)", r"\1 local", plain, count=1)]
    found += [plain.replace(" local ", f" {site} ") for site in ("lumig", "LOCAL", "local local", "lumi-g.yaml")]
    return [one for one in dict.fromkeys(found) if one != plain]


LINES = {name: make_lines(line) for name, line in RIGHT.items()}


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """No engine, no batch system and no network: what needs one ends with its own exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nothere")
        patch.setenv("UV_HTTP_RETRIES", "0")
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.setenv(name, NOWHERE)
        yield


PLANS: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def planned(alone: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A plan folder that is whole."""
    del alone
    folder = tmp_path_factory.mktemp("planned")
    (folder / "env.yml").write_text(ENVIRONMENT)
    assert run(["plan", "local", str(folder / "env.yml"), "-o", str(folder / "old.plan")]) == 0
    PLANS[:] = [folder / "old.plan"]


def furnish(folder: Path) -> None:
    """Files of every kind that a command may be given."""
    files = {
        "env.yml": ENVIRONMENT, "notes.md": "# Notes\n", "list.txt": "numpy=2.2.6=py312_0\n", "shut.yml": ENVIRONMENT,
        "x.sif": SIF, "y.sif": SIF, "cut.sif": BASE[:3000], "shut.sif": SIF, "shut/x.sif": SIF, "x.tar": TAR,
        "empty.yml": "", "empty.sif": "", "empty.tar": "", "folder/": "",
    }  # fmt: skip
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.mkfifo(folder / "fifo")
    if PLANS:
        shutil.copytree(PLANS[0], folder / "old.plan")
    for name in ("shut.yml", "shut.sif", "shut"):
        (folder / name).chmod(0)


@dataclass(kw_only=True)
class Seat:
    """A folder with these files, which are made again after a line that has changed them."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    state: tuple[tuple[str, int], ...] = ()

    def show(self, line: str) -> Shown:
        """Type a line."""
        if self.state != self.look() or not self.state:
            self.clear()
            furnish(self.folder)
            self.state = self.look()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            code = run(shlex.split(line))
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err, (line, err)
        return Shown(code=code, err=err + out if code == 0 else err)

    def look(self) -> tuple[tuple[str, int], ...]:
        """The names and times of what is in the folder."""
        if not self.folder.is_dir():
            return ()
        return tuple(sorted((item.name, item.lstat().st_mtime_ns) for item in self.folder.iterdir()))

    def clear(self) -> None:
        """Remove the folder."""
        if self.folder.is_dir():
            (self.folder / "shut").chmod(0o755)
            shutil.rmtree(self.folder)


def list_cures(shown: Shown, line: str) -> Iterator[str]:
    """The lines that the fixes name, with existing things in the place of words in capitals."""
    words = shlex.split(line)
    for fix in shown.fixes:
        for named in re.findall(r"`recipe ([^`]+)`", fix):
            if (
                named.endswith("--help")
                or re.search(rf"then (?:type )?`recipe {re.escape(named)}`", fix)
                or "COMMAND" in named
            ):
                continue
            cure = re.sub(r" > \S+$", "", named)
            for name, thing in (("SITE", "local"), ("ENV", "env.yml"), ("IMAGE", "x.sif"), ("ARCHIVE", "x.tar")):
                cure = re.sub(rf"\b{name}\b", thing, cure)
            yield cure
        near = re.match(r"did you mean '([^']+)'\?", fix)
        wrong = [word for error in shown.errors for word in re.findall(r"'([^']+)'", error) if word in words]
        if near and wrong and "`" not in fix.partition("; see ")[0]:
            yield shlex.join(near[1] if word == wrong[-1] else word for word in words)


def try_line(line: str, seat: Seat, *, accepted: set[str]) -> list[str]:
    """Type a line, then what its fixes name; what is wrong with these. `accepted` is said of the right line, too."""
    first, found = seat.show(line), []
    if first.code == 0 or not first.errors:
        return []
    heads = re.findall(r"^error.*", first.err, re.MULTILINE)
    if len(first.fixes) != len(heads):
        found.append(f"an error without a fix: {first.err}")
    if len(set(heads)) != len(heads):
        found.append(f"an error is printed twice: {first.err}")
    for cure in dict.fromkeys(list_cures(first, line)):
        after = seat.show(cure)
        again = after.errors & first.errors - accepted
        refused = after.code == 2 and not (after.codes <= SUPPLIED or after.errors <= accepted)
        if again or refused:
            found.append(f"`recipe {cure}` of the fix is refused ({after.code}): {after.err}after: {first.err}")
    return found


def test_the_lines_are_those_of_every_command() -> None:
    assert {line.split()[0] for line in RIGHT.values()} == set(COMMANDS)
    assert len({line for lines in LINES.values() for line in lines}) > 800


@pytest.mark.parametrize("name", RIGHT)
def test_every_fix_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    seat = Seat(folder=tmp_path / "work", capsys=capsys)
    accepted = seat.show(re.sub(r"[{}]", "", RIGHT[name])).errors
    found = [f"$ recipe {line}\n{wrong}" for line in LINES[name] for wrong in try_line(line, seat, accepted=accepted)]
    seat.clear()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("site", ["local", "lumi-g"])
def test_an_image_without_torch_names_a_line_that_runs(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root" / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "root" / "var" / "lib" / "dpkg").mkdir(parents=True)
    (tmp_path / "root" / "var" / "lib" / "dpkg" / "status").write_text("Package: bash\nVersion: 5\nArchitecture: all\n")
    monkeypatch.chdir(tmp_path)
    assert run(["smoke", "--here", site, "root"]) == 0
    said = re.search(r"verdict: not tested: .*`recipe (.*)`", capsys.readouterr().out)
    assert said is not None
    assert said[1] == f"run --here {site} root -- python3 --version"
    assert run(shlex.split(said[1])) == 4
    assert "error[no-program]" in capsys.readouterr().err


def test_an_output_that_is_an_input_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seat = Seat(folder=tmp_path / "work", capsys=capsys)
    for line in (
        "build local env.yml -o env.yml",
        "build -n local env.yml -o env.yml",
        "plan local env.yml -o env.yml",
    ):
        shown = seat.show(line)
        assert (shown.code, shown.codes - {"no-program"}) == (2, {"output-input"}), shown.err
    seat.clear()
