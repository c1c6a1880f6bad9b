"""The command line as a user meets it: what is on stdout, what on stderr, which exit code, and what is left behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.codes import without_codes
from support.rows import rows
from support.small_images import BASE, SIF

from builder import __version__
from builder.cli.main import COMMANDS, run
from builder.model.plan import from_json
from builder.parse.site import find_site_files

ANSI = re.compile(r"\x1b")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command printed and left with."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]


class Stream(io.StringIO):
    """A standard stream; `terminal` makes it one."""

    terminal = False

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `recipe` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Answer:
        out, err = Stream(), Stream()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(argument) for argument in arguments])
        assert "Traceback" not in err.getvalue()
        return Answer(code=code, out=out.getvalue(), err=err.getvalue())

    return call


@pytest.fixture
def mnist(recipes: Path) -> Path:
    return recipes / "mnist.yml"


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(recipe: Call, option: str) -> None:
    answer = recipe(option)
    assert (answer.code, answer.err) == (0, "")
    for name, (_, text) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", answer.out, re.MULTILINE)


@rows("command", sorted(COMMANDS))
@rows("option", ["-h", "--help"])
def test_every_command_has_help(recipe: Call, command: str, option: str) -> None:
    answer = recipe(command, option)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"Usage: recipe {command}")


def test_the_version_is_one_line(recipe: Call) -> None:
    assert recipe("--version") == Answer(code=0, out=f"recipe {__version__}\n", err="")


def test_without_a_command_there_is_help(recipe: Call) -> None:
    answer = recipe()
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err == recipe("--help").out


@pytest.mark.parametrize(
    ("words", "first", "fix"),
    [
        (["bild"], "error: there is no command 'bild'", "did you mean 'build'? commands: build, bundle, cache, check"),
        (["--nope"], "error: no such option '--nope'", "see `recipe --help`"),
        (["plan", "--nope"], "error: no such option '--nope'", "did you mean '--nodes'? see `recipe plan --help`"),
        (
            ["plan"],
            "error: no site and no environment file is named",
            "`recipe plan local environment.yml`, or another site in the place of 'local': dawn, ",
        ),
        (["sites", "lumi"], "error: there is no site 'lumi'", "did you mean 'lumi-g'? known sites: dawn, frontier"),
        (
            ["sites", "--format", "xml"],
            "error: invalid value for '--format': 'xml' is not one of",
            "write one of these: `--format text`",
        ),
        (["plan", "lumi-g", "none.yml"], "error: the recipe 'none.yml' does not exist", "check the path"),
        (["inspect", "tinny.sif"], "error: the image 'tinny.sif' does not exist", "did you mean 'tiny.sif'?"),
        (["report", "tinny.sif"], "error: 'tinny.sif' does not exist", "did you mean 'tiny.sif'?"),
        (
            ["run", "tiny.sif", "local", "--", "python3"],
            "error: the site 'local' comes after the image 'tiny.sif'",
            "`recipe run local tiny.sif -- python3`",
        ),
        (["init", "minst"], "error: there is no example 'minst'", "did you mean `recipe init mnist`?"),
    ],
)
def test_misuse_is_explained(recipe: Call, tmp_path: Path, words: list[str], first: str, fix: str) -> None:
    (tmp_path / "tiny.sif").write_bytes(SIF)
    answer = recipe(*words)
    assert (answer.code, answer.out) == (2, "")
    lines = without_codes(answer.err).splitlines()
    assert lines[0].startswith(first)
    assert lines[-1].startswith(f"  fix: {fix}")
    assert left(tmp_path) == ["tiny.sif"]


def test_an_unknown_site(recipe: Call, mnist: Path) -> None:
    for command in ("build", "plan", "check"):
        answer = recipe(command, "lumi-gg", mnist)
        assert (answer.code, answer.out) == (2, ""), command
        assert "fix: did you mean 'lumi-g'?" in answer.err


def test_a_broken_recipe_is_exit_2_with_every_fault(recipe: Call, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text("nmae: x\ndependencies:\n  - numpy==\n  - pip:\n      - scipy=1\n", encoding="utf-8")
    for command in (["build", "local"], ["plan", "local"], ["check"], ["check", "local"]):
        answer = recipe(*command, "broken.yml")
        assert (answer.code, answer.out) == (2, "")
        assert without_codes(answer.err).count("error: ") == 3
        assert "at:  broken.yml:1: nmae" in answer.err
    assert left(tmp_path) == ["broken.yml"]


def test_sites_are_listed(recipe: Call) -> None:
    answer = recipe("sites")
    assert (answer.code, answer.err) == (0, "")
    assert [line.split()[0] for line in answer.out.splitlines()] == ["site", *find_site_files()]
    found = json.loads(recipe("sites", "--format", "json").out)
    assert {item["name"]: item["vendor"] for item in found["sites"]}["dawn"] == "intel"


@rows("name", sorted(find_site_files()))
def test_a_site_is_shown_with_its_sources(recipe: Call, name: str) -> None:
    answer = recipe("sites", name)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"{name}: ")
    assert re.search(r"^  \S+ \(20\d\d-", answer.out, re.MULTILINE)
    assert json.loads(recipe("sites", name, "--format", "json").out)["name"] == name


def test_sites_of_the_user_are_found(recipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "lumi-x.yaml").write_text("extends: lumi-g\nname: lumi-x\ntitle: Own\n", encoding="utf-8")
    (folder / "bad.yaml").write_text("name: [\n", encoding="utf-8")
    monkeypatch.setenv("RECIPE_SITES", str(folder))
    answer = recipe("sites")
    assert answer.code == 0
    assert "lumi-x" in answer.out
    assert "bad.yaml:" in answer.err


def test_check_of_all_sites_exits_0(recipe: Call, mnist: Path, tmp_path: Path) -> None:
    answer = recipe("check", mnist)
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()] == ["site", *find_site_files()]
    assert re.search(r"^lumi-g +ok +2\.8\.0\+rocm6\.4 +/", answer.out, re.MULTILINE)
    assert left(tmp_path) == []


def test_check_of_named_sites_exits_3_when_one_refuses(recipe: Call, recipes: Path, tmp_path: Path) -> None:
    answer = recipe("check", "lumi-g", "dawn", recipes / "mnist-local.yml")
    assert answer.code == 3
    assert re.search(r"^lumi-g +refused: torch-build", answer.out, re.MULTILINE)
    assert "error[" not in answer.out
    assert "error[torch-build]: 'torch==2.13.0' cannot run on this site" in answer.err
    assert recipe("check", "dawn", recipes / "mnist-local.yml").code == 0
    assert left(tmp_path) == []


def test_check_speaks_json(recipe: Call, recipes: Path) -> None:
    answer = recipe("check", "--format", "json", "lumi-g", "dawn", recipes / "mnist-local.yml")
    assert answer.code == 3
    found = {item["site"]: item for item in json.loads(answer.out)["outcomes"]}
    assert found["lumi-g"]["torch"] is None
    assert (found["lumi-g"]["ok"], found["dawn"]["ok"]) == (False, True)
    assert found["lumi-g"]["findings"][0]["code"] == "torch-build"


@pytest.mark.parametrize("command", ["plan", "build"])
def test_a_refused_target_is_exit_3_and_writes_nothing(
    recipe: Call, recipes: Path, tmp_path: Path, command: str
) -> None:
    answer = recipe(command, "lumi-g", recipes / "mnist-local.yml")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error[torch-build]: 'torch==2.13.0' cannot run on this site")
    assert left(tmp_path) == []


def test_plan_writes_a_folder_and_names_it(recipe: Call, mnist: Path, tmp_path: Path) -> None:
    answer = recipe("plan", "dawn", mnist, "-o", "kit")
    assert (answer.code, answer.out) == (0, "kit\n")
    assert answer.err.startswith("note[site-driver-unknown]: the GPU driver of 'dawn' is unknown")
    plan = from_json((tmp_path / "kit" / "plan.json").read_text(encoding="utf-8"))
    assert plan.tool == f"recipe {__version__}"
    assert all((tmp_path / "kit" / file.path).is_file() for file in plan.files)
    assert (tmp_path / "kit" / "smoke" / "__main__.py").is_file()
    assert recipe("plan", "dawn", mnist, "-o", "kit").code == 0
    assert recipe("plan", "dawn", mnist).out == "mnist-dawn.plan\n"
    assert left(tmp_path) == ["kit", "mnist-dawn.plan"]


def test_fault_08_a_quiet_plan_says_nothing(recipe: Call, mnist: Path, tmp_path: Path) -> None:
    answer = recipe("plan", "-q", "dawn", mnist, "-o", "kit")
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert (tmp_path / "kit" / "plan.json").is_file()


def test_plan_does_not_write_into_a_folder_of_someone_else(recipe: Call, mnist: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    answer = recipe("plan", "dawn", mnist, "-o", "mine")
    assert (answer.code, answer.out) == (2, "")
    assert "holds files that recipe did not write" in answer.err
    assert left(tmp_path / "mine") == ["thesis.tex"]


def test_plan_show_prints_and_writes_nothing(recipe: Call, mnist: Path, tmp_path: Path) -> None:
    answer = recipe("plan", "mn5", mnist, "--show")
    assert answer.code == 0
    for word in ("mnist.mn5.docker", "bash 1-build-image.sh", "bash 2-convert.sh", "(as a job: 2-convert.sbatch)"):
        assert word in answer.out
    assert left(tmp_path) == []


@rows(
    ("site", "name", "first"),
    [
        ("mn5", "Dockerfile", "FROM nvcr.io/nvidia/pytorch:"),
        ("frontier", "def", "Bootstrap: docker"),
        ("frontier", "mnist-frontier.def", "Bootstrap: docker"),
        ("lumi-g", "environment.yml", "name: mnist"),
        ("lumi-g", "run/gpu.sbatch", "#!/usr/bin/env bash"),
        ("lumi-g", "gpu.sbatch", "#!/usr/bin/env bash"),
    ],
)
def test_plan_prints_one_file_and_nothing_else(
    recipe: Call, mnist: Path, tmp_path: Path, site: str, name: str, first: str
) -> None:
    answer = recipe("plan", site, mnist, "--print", name)
    assert (answer.code, answer.err) == (0, "")
    assert any(line.startswith(first) for line in answer.out.splitlines()[:4])
    assert left(tmp_path) == []


def test_plan_names_the_files_it_has(recipe: Call, mnist: Path) -> None:
    answer = recipe("plan", "mn5", mnist, "--print", "Dockerfil")
    assert (answer.code, answer.out) == (2, "")
    assert "fix: did you mean 'Dockerfile'? its files: " in answer.err


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(recipe: Call, recipes: Path, tmp_path: Path) -> None:
    for option in ("-n", "--dry-run"):
        answer = recipe("build", "local", recipes / "mnist-local.yml", option)
        assert answer.code == 0
        assert answer.out.startswith("digits.local.layers: digits-local.sif\n")
        assert "torch       2.13.0+cpu\n" in answer.out
        assert answer.err.startswith("note[unpinned]: no version given for: numpy")
    assert left(tmp_path) == []


def test_a_dry_run_prints_the_plan_of_another_machine(recipe: Call, recipes: Path, tmp_path: Path) -> None:
    """What this one lacks is an error after it."""
    answer = recipe("build", "lumi-g", recipes / "mnist.yml", "-n", "--account", "project_465000001")
    assert answer.code == 4
    assert "  step 1      bash 1-build-image.sh" in answer.out
    assert "error[not-this-site]" in answer.err
    assert left(tmp_path) == []


def test_quiet_leaves_the_notes_out(recipe: Call, recipes: Path) -> None:
    assert recipe("build", "local", recipes / "mnist-local.yml", "-n", "-q").err == ""


def test_an_output_that_exists_is_kept(recipe: Call, mnist: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.sif").write_bytes(BASE)
    answer = recipe("build", "local", mnist, "-o", "mine.sif")
    assert (answer.code, answer.out) == (2, "")
    assert without_codes(answer.err).startswith(f"error: the output '{tmp_path}/mine.sif' exists\n  fix: give --force")
    assert (tmp_path / "mine.sif").read_bytes() == BASE
    assert left(tmp_path) == ["mine.sif"]


def test_no_colour_leaves_a_pipe_or_a_terminal_that_wants_none(
    recipe: Call, mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not ANSI.search(recipe("plan", "dawn", mnist, "--show").err)
    monkeypatch.setattr(Stream, "terminal", True)
    assert ANSI.search(recipe("plan", "dawn", mnist, "--show").err)
    monkeypatch.setenv("NO_COLOR", "1")
    answer = recipe("plan", "dawn", mnist, "--show")
    assert answer.err
    assert not ANSI.search(answer.err)
    monkeypatch.setenv("NO_COLOR", "")
    assert ANSI.search(recipe("plan", "dawn", mnist, "--show").err)


def test_no_color_is_an_option_too(recipe: Call, recipes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stream, "terminal", True)
    answer = recipe("build", "local", recipes / "mnist-local.yml", "-n", "--no-color")
    assert answer.err.startswith("note[unpinned]: ")


def test_the_account_is_from_the_option_or_slurms_variable(
    recipe: Call, mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("plan", "lumi-g", mnist, "--print", "gpu.sbatch")
    assert "account" not in recipe(*words).out.split("# ")[0]
    assert "#SBATCH --account=project_1\n" in recipe(*words, "--account", "project_1").out
    monkeypatch.setenv("SBATCH_ACCOUNT", "project_2")
    assert "#SBATCH --account=project_2\n" in recipe(*words).out


@rows(
    ("option", "value"),
    [
        ("--account", "x\ntouch CANARY"),
        ("--account", "a b"),
        ("--account", ""),
        ("--base", "docker://x\nRUN touch CANARY"),
        ("--base", "docker://$(touch CANARY)"),
        ("--base", "{{ x }}.sif"),
        ("--torch-index", "https://x.example.org/\n--pre"),
        ("--torch-index", "ftp://x.example.org/"),
        ("--torch-index", "https://user:secret@x.example.org/"),
    ],
)
def test_options_are_checked_like_a_recipe(recipe: Call, mnist: Path, tmp_path: Path, option: str, value: str) -> None:
    answer = recipe("plan", "local", mnist, option, value)
    if not value:
        assert answer.code == 0
        return
    assert (answer.code, answer.out) == (2, "")
    assert "secret" not in without_codes(answer.err)
    assert left(tmp_path) == []


def test_a_mirror_of_torch_takes_the_place_of_the_index(recipe: Call, mnist: Path) -> None:
    words = ("plan", "local", mnist, "--print", "requirements-torch.txt")
    assert recipe(*words).out.startswith("--index-url https://download.pytorch.org/whl/cpu\ntorch==2.8.0+cpu\n")
    mirrored = recipe(*words, "--torch-index", "https://mirror.example.org/{token}/simple")
    assert mirrored.out.startswith("--index-url https://mirror.example.org/cpu/simple\n")
    assert recipe(*words, "--torch-index", "default").out.startswith("torch==2.8.0+cpu\n")


def test_a_base_of_the_recipe_is_read_from_its_folder(recipe: Call, tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "base.sif").touch()
    text = "name: x\ndependencies: [{pip: [six==1.16.0]}]\ncontainer: {base: base.sif}\n"
    (folder / "environment.yml").write_text(text, encoding="utf-8")
    answer = recipe("plan", "local", "sub/environment.yml", "--backend", "apptainer", "--print", "def")
    assert f"\nFrom: {folder}/base.sif\n" in answer.out
    (tmp_path / "other.sif").touch()
    answer = recipe(
        "plan", "local", "sub/environment.yml", "--backend", "apptainer", "--print", "def", "--base", "other.sif"
    )
    assert f"\nFrom: {tmp_path}/other.sif\n" in answer.out


def test_an_init_that_cannot_write_leaves_nothing(
    recipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        answer = recipe("init", "plots")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer.code == 2
    assert "'plots.yml': file too large" in answer.err
    assert "ulimit -f" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_init_writes_an_example_that_checks(recipe: Call, tmp_path: Path) -> None:
    listed = recipe("init", "--list").out
    assert "mnist: " in listed
    for name in re.findall(r"^(\S+): ", listed, re.MULTILINE):
        answer = recipe("init", name)
        assert answer.code == 0
        assert recipe("check", answer.out.strip()).code == 0
    assert recipe("init", "mnist").code == 2
    assert (tmp_path / "mnist.yml").is_file()


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, mnist: Path, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builder.execute.plan_folder.write_plan", broken)
    monkeypatch.setattr("builder.cli.plan.write_plan", broken)
    err = Stream()
    with contextlib.redirect_stderr(err), pytest.raises(RuntimeError, match="a fault of ours"):
        run(["plan", "local", str(mnist)])
    assert "please report it" in err.getvalue()


def test_a_plan_has_the_script_of_the_shape_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("env.yml").write_text("name: demo\ndependencies: [pip: [torch]]\n")
    assert run(["plan", "frontier", "env.yml", "-o", "kit", "--nodes", "3"]) == 0
    (script,) = Path("kit").glob("*-smoke-nodes.sbatch")
    assert "#SBATCH --nodes=3" in script.read_text()
    assert run(["plan", "frontier", "env.yml", "-o", "kit", "--gpus", "99"]) == 2
    assert "has 8 devices, not 99" in capsys.readouterr().err


CANNOT = (
    "with the backend 'cotainr' packages are downloaded inside the engine, while it builds\n"
    "  fix: choose --backend layers, or build where there is a network and copy the image\n"
)
OFFLINE = "error: no server is to be asked (--offline, RECIPE_OFFLINE), and "
REPRODUCE = (
    "error: --reproduce with --offline (RECIPE_OFFLINE): a second build starts with nothing but downloads\n"
    "  fix: leave out one of them: what a container has installed, and base images, would have to be fetched again\n"
)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("fetch", "lumi-g"), f"error: {CANNOT}"),
        (("build", "lumi-g", "--offline"), OFFLINE + CANNOT),
        (("build", "lumi-g", "--offline", "-n"), OFFLINE + CANNOT),
        (("build", "local", "--offline", "--reproduce"), REPRODUCE),
    ],
)
def test_what_cannot_be_had_ahead(recipe: Call, words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    (tmp_path / "plain.yml").write_text("name: plain\ndependencies: [python=3.12, numpy]\n")
    answer = recipe(*words, "plain.yml")
    assert (answer.code, answer.out) == (2, "")
    assert text in without_codes(answer.err)
    assert left(tmp_path) == ["plain.yml"]


def test_a_dry_run_names_the_output_and_the_code(recipe: Call, tmp_path: Path) -> None:
    text = "name: demo\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.12\n  - numpy\n"
    (tmp_path / "demo.yml").write_text(text)
    answer = recipe("plan", "--show", "local", "demo.yml")
    assert "build demo-local.sif from" in answer.out
    assert "note[unpinned]: " in answer.err
    assert "at:  demo.yml:6" in answer.err
    answer = recipe("build", "-n", "local", "demo.yml", "-o", "digits.sif")
    assert "build digits.sif from" in answer.out
    assert "demo-local.sif" not in answer.out


def test_the_variable_of_an_account_is_named(recipe: Call, mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "bad name")
    answer = recipe("plan", "--show", "lumi-g", mnist)
    assert answer.code == 2
    assert "'bad name' cannot be the value of SBATCH_ACCOUNT" in answer.err
    assert "write its name alone, or unset SBATCH_ACCOUNT" in answer.err
    answer = recipe("plan", "--show", "lumi-g", mnist, "--account", "bad name")
    assert "'bad name' cannot be the value of --account" in answer.err


def test_help_of_a_group_cuts_no_sentence(recipe: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in recipe("cache", "--help").out.replace("[ARGS]...", "")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("words", [("inspect",), ("report",), ("diff", "demo.yml")])
def test_a_file_without_rights_has_a_fix(recipe: Call, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "noperm.txt").touch(mode=0)
    answer = recipe(*words, "noperm.txt")
    assert answer.code == 2
    assert "error[path-refused]: 'noperm.txt' may not be read" in answer.err
    assert "fix: it is your own: `chmod u+r noperm.txt`" in answer.err
