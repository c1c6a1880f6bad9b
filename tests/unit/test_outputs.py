"""What the commands have in common: help in groups, -v -q --no-color, JSON with a schema number, SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from support.faulty import RECIPES, faulty
from support.rows import rows

from builder.cli.help import EXAMPLES, GROUPS
from builder.cli.init import RECIPES as EXAMPLE_FOLDER
from builder.cli.main import COMMANDS, run, run_cli
from builder.cli.output import color_verdict, color_word
from builder.execute.progress import is_noise
from builder.parse.site import find_site_files

WORLDS = ("build", "smoke", "run", "convert", "plan", "check")
URI = re.compile(r"(?:[A-Za-z0-9._~/+,@=:!$&'()*;-]|%[0-9A-F]{2})+")


def _commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that can be typed, those of `recipe cache` too."""
    context = click.Context(run_cli)
    for name in COMMANDS:
        command = run_cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {word}", found) for word, found in command.commands.items())
        else:
            yield name, command


EVERY = dict(_commands())


@rows("name", EVERY)
def test_every_command_takes_the_options_of_what_is_shown(name: str) -> None:
    taken = {option for param in EVERY[name].params for option in param.opts}
    assert {"-v", "--verbose", "-q", "--quiet", "--no-color"} <= taken


@rows("name", {*COMMANDS, *(name for name, one in EVERY.items() if not one.hidden)})
def test_help_has_two_examples_and_fits_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert len(EXAMPLES[name]) == 2
    assert all(f"  {example}\n" in text for example in EXAMPLES[name])
    assert not re.search(r"[Ll]eaves? with|\bkits?\b|\bwhat this machine has of\b", text)
    if name in WORLDS:
        heads = [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][a-z]+:", line)]
        assert heads == [group for group in GROUPS if group in heads]
        assert {"Output", "Display"} <= set(heads)
        assert not {"Options", "Arguments"} & set(heads)


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECIPE_CACHE_DIR", str(tmp_path / "cache"))
    Path("environment.yml").write_text((EXAMPLE_FOLDER / "mnist-local.yml").read_text())

    def call(*words: str) -> Any:
        run(list(words))
        return json.loads(capsys.readouterr().out)

    return call


def _empty(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_empty, value.values()))
    return any(map(_empty, value)) if isinstance(value, list) else value == ""


@rows(
    "words",
    [
        "check --format json environment.yml", "sites --format json", "sites lumi-g --format json",
        "sites local --format json", "cache ls --format json",
    ],
)  # fmt: skip
def test_every_document_has_a_schema_number_and_null_for_nothing(documents: Any, words: str) -> None:
    found = documents(*words.split())
    assert next(iter(found)) == "schema"
    assert found["schema"] == 1
    assert not _empty(found)


def test_every_document_is_chosen_by_the_same_word() -> None:
    shapes = {
        name: next(param.type.choices for param in command.params if "--format" in param.opts)  # type: ignore[attr-defined]
        for name, command in EVERY.items()
        if any("--format" in param.opts for param in command.params) and name != "lock"  # its forms are other tools'
    }
    assert set(shapes) == {
        "check", "sites", "doctor", "status", "cache ls", "config", "diff", "inspect", "report", "explain",
    }  # fmt: skip
    assert all({"text", "json"} <= set(found) for found in shapes.values())
    old = {name for name, command in EVERY.items() if any("--json" in param.opts for param in command.params)}
    assert old == {"diff", "inspect", "report"}


@pytest.mark.usefixtures("documents")
def test_quiet_leaves_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sites", "-q"]) == 0
    assert capsys.readouterr().out.startswith("site ")
    assert run(["cache", "ls", "-q", "-v", "--no-color"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["check", "-q", "lumi-g", "environment.yml"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "error[" in err
    assert "warning[" not in err


def test_words_have_their_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.cli.output.uses_color", lambda **_: True)
    assert color_word("pass") == "\x1b[32mpass\x1b[0m"
    assert color_word("refused: torch-build").startswith("\x1b[31m")
    assert color_verdict("ok    mnist 0.99\nFAIL  x: y\nthe smoke test failed: a.sif\nverdict: FAIL").split("\n") == [
        "\x1b[32mok\x1b[0m    mnist 0.99",
        "\x1b[31mFAIL\x1b[0m  x: y",
        "\x1b[31mthe smoke test failed\x1b[0m: a.sif",
        "verdict: \x1b[31mFAIL\x1b[0m",
    ]
    assert "\x1b[2J" not in color_verdict("ok \x1b[2J")


def test_the_live_line_shows_no_json() -> None:
    assert is_noise('verify: {"architectures": [], "python": "3.12"}')
    assert is_noise("verify: the recipe has no torch, nothing to ask")
    assert not is_noise("verify: error: no torch")
    assert not is_noise("verify: this torch does not say whether it has kernels for gfx90a")


# A file with the keys of a site is taken for one: then there is no file to say anything of.
FAULTY = [case for case in faulty(*RECIPES) if Path(case.path).parent == Path() and Path(case.path).suffix != ".yaml"]
SHIPPED = sorted(path for path in EXAMPLE_FOLDER.iterdir() if path.suffix in (".yml", ".txt"))
ALL = {case.path: case for case in FAULTY} | {path.name: path for path in SHIPPED}


@rows("name", ALL)
def test_sarif_is_what_code_hosts_take(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The required properties of SARIF 2.1.0 and the rules of github/codeql-action (issues 1738 and 2459)."""
    found = ALL[name]
    monkeypatch.chdir(found.parent if isinstance(found, Path) else found.placed(tmp_path))
    code = run(["check", "--format", "sarif", *find_site_files(), f"./{name}"])
    out = capsys.readouterr().out
    assert code in (0, 2, 3)
    check_sarif(json.loads(out), faulty=code != 0)


def check_sarif(log: dict[str, Any], *, faulty: bool) -> None:
    assert log["version"] == "2.1.0"
    assert log["$schema"].startswith("https://")
    (only,) = log["runs"]
    driver = only["tool"]["driver"]
    rules = {rule["id"]: rule for rule in driver["rules"]}
    assert len(rules) == len(driver["rules"])
    for rule in rules.values():
        assert rule["shortDescription"]["text"].strip()
        assert rule["help"]["text"].strip()
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
        page = Path(rule["helpUri"].removeprefix("file://"))
        assert rule["help"]["text"] == page.read_text(encoding="utf-8") or page.name == "README.md"
    assert only["results"] or not faulty
    for result in only["results"]:
        assert result["ruleId"] in rules
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"].strip()
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        uri = place["artifactLocation"]["uri"]
        assert URI.fullmatch(uri), uri
        assert uri.startswith("file:///") or not uri.startswith("/")
        assert ".." not in uri.split("/")


def test_sarif_of_an_odd_name_is_percent_encoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    below = tmp_path / "my envs"
    below.mkdir()
    (below / "a b%.yml").write_text("nmae: x\ndependencies: [python=3.12]\n")
    monkeypatch.chdir(below)
    for name in ("a b%.yml", str(below / "a b%.yml")):
        assert run(["check", "--format", "sarif", name]) == 2
        log = json.loads(capsys.readouterr().out)
        check_sarif(log, faulty=True)
        place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "my%20envs/a%20b%25.yml", "uriBaseId": "%SRCROOT%"}


@pytest.mark.parametrize("shape", ["json", "sarif", "github"])
def test_a_faulty_file_is_in_every_shape(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    Path("a,b.yml").write_text("name: x\ndependencies:\n\t- python=3.12\n")
    assert run(["check", "--format", shape, "lumi-g", "a,b.yml"]) == 2
    out = capsys.readouterr().out
    if shape == "github":
        assert out.startswith("::error file=a%2Cb.yml,line=3,title=")
        assert page.read_text().splitlines()[0] == "| file | site | outcome | torch |"
        assert "| a,b.yml |  | refused: " in page.read_text()
    else:
        assert json.loads(out)


def test_an_annotation_names_the_file_that_is_decoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """actions/toolkit, packages/core/src/command.ts: a property is encoded once, and only five characters are."""
    (tmp_path / ".git").mkdir()
    name = "sub/bad é%, a:b.yml"
    (tmp_path / "sub").mkdir()
    (tmp_path / name).write_text("nmae: x\ndependencies: [python=3.12]\n")
    monkeypatch.chdir(tmp_path / "sub")
    assert run(["check", "--format", "github", Path(name).name]) == 2
    found = re.match("::error file=([^,]*),", capsys.readouterr().out)
    assert found
    assert found[1] == "sub/bad é%25%2C a%3Ab.yml"


@rows("name", ["a\n::error::b.yml", "a|b.yml", "<img src=x>.yml", "\x1b[31m.yml"])
@rows("text", ["dependencies: [a b]\n", "dependencies: [python=3.12]\n"])
def test_security_18_a_file_of_any_name_is_in_every_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    """A name is neither an error nor a line or a cell of its own."""
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    Path(name).write_text(text, encoding="utf-8")
    for shape in ("json", "sarif", "github"):
        code = run(["check", "local", name, "--format", shape])
        out = capsys.readouterr().out
        assert code == (2 if "a b" in text else 0)
        assert "\x1b" not in out
        assert shape != "github" or all(
            line.startswith(("::error file=", "::notice file=")) for line in out.split("\n")[:-1]
        )
    rows = page.read_text(encoding="utf-8").splitlines()
    assert len(rows) == 3
    assert len(re.findall(r"(?<!\\)\|", rows[2])) == 5
    assert not re.search(r"(?<!\\)<", rows[2])


@pytest.mark.parametrize("shape", ["json", "sarif", "github"])
def test_a_name_that_is_no_text_is_refused_in_every_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shape: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x\udcff.yml").write_text("dependencies: [python=3.12]\n", encoding="utf-8")
    assert run(["check", "local", "x\udcff.yml", "--format", shape]) == 2
    out = capsys.readouterr().out
    assert "x\\" in out
    assert out.isascii()


@pytest.mark.parametrize(
    "name", sorted({path.name for path in EXAMPLE_FOLDER.iterdir() if path.stem.startswith("plots")})
)
def test_security_12_an_example_is_written_through_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A folder of somebody else's may hold links of these names to where nothing is yet."""
    monkeypatch.chdir(tmp_path)
    Path(name).symlink_to(tmp_path / "elsewhere")
    run(["init", "plots"])
    assert not (tmp_path / "elsewhere").exists()
