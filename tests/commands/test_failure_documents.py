"""Formats for programs: stdout holds one whole document for every failure, and stderr the text for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from builder.cli.main import COMMANDS, run, run_cli

LONG = "a" * 300
ENVIRONMENT = "name: demo\nchannels: [conda-forge]\ndependencies: [python=3.12, numpy]\n"


def list_formats() -> list[tuple[str, str]]:
    """Every command that has --format, with each of its formats for programs."""
    found = []
    for name in COMMANDS:
        command = run_cli.get_command(click.Context(run_cli), name)
        inner = {f"{name} {word}": one for word, one in getattr(command, "commands", {}).items() if not one.hidden}
        for line, one in (inner or {name: command}).items():
            kinds = [param.type for param in one.params if "--format" in param.opts]
            kinds = [kind for kind in kinds if "json" in kind.choices]  # those of `lock` are forms of its result
            found += [(line, shape) for kind in kinds for shape in kind.choices if shape not in ("text", "table")]
    return found


FORMATS = list_formats()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "demo.yml").write_text(ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def read_codes(text: str, *, shape: str) -> list[str]:
    """The codes of the findings in a document, which is whole."""
    if shape == "github":
        lines = text.splitlines()
        assert all(line.startswith("::error ") for line in lines), text
        return [line.partition("title=")[2].partition("::")[0] for line in lines]
    tree = json.loads(text)
    if shape == "sarif":
        (ran,) = tree["runs"]
        places = [one["toolConfigurationNotifications"] for one in ran.get("invocations", ())]
        return [
            *(note["descriptor"]["id"] for notes in places for note in notes),
            *(result["ruleId"] for result in ran["results"]),
        ]
    assert tree["schema"] == 1
    return [finding["code"] for finding in tree["findings"]]


def test_the_commands_with_formats_are_known() -> None:
    assert {line for line, _ in FORMATS} == {
        "check", "config", "explain", "sites", "doctor", "status", "cache ls", "diff", "inspect", "report",
    }  # fmt: skip


@pytest.mark.parametrize(("line", "shape"), FORMATS)
@pytest.mark.parametrize("words", ["--nonsense", f"{LONG} {LONG}", "\udcff nowhere", "a b c d"])
@pytest.mark.usefixtures("folder")
def test_a_failure_is_a_whole_document(line: str, shape: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run([*line.split(), "--format", shape, *words.split()])
    out, err = capsys.readouterr()
    assert (code in (2, 4), bool(read_codes(out, shape=shape))) == (True, True), (code, out)
    assert "error[" in err


@pytest.mark.parametrize(("line", "shape"), FORMATS)
@pytest.mark.usefixtures("folder")
def test_a_wrong_variable_is_a_whole_document(
    line: str, shape: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", "~")
    assert run([*line.split(), f"--format={shape}", "demo.yml"]) == 2
    assert read_codes(capsys.readouterr().out, shape=shape) == ["variable"]


@pytest.mark.parametrize(
    ("line", "environment", "code"),
    [
        ("check --format json local demo.yml", {"RECIPE_TORCH_INDEX": "bad"}, "variable"),
        ("check --format json --fix local demo.yml", {}, "usage"),
        ("chek --format json local demo.yml", {}, "command-unknown"),
        ("--nonsense check --format json local demo.yml", {}, "usage"),
        ("cache ls --format json", {"RECIPE_CACHE_DIR": "demo.yml"}, "variable"),
        ("inspect --json no.sif", {}, "image-missing"),
        ("inspect --format json demo.yml --integrity --sbom x.json", {}, "usage"),
        ("sites nosuch --format text --format json", {}, "site-unknown"),
    ],
)
def test_the_document_holds_what_the_text_says(
    line: str, environment: Mapping[str, str], code: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert read_codes(out, shape="json") == [code]
    assert json.loads(out)["findings"][0]["message"] in err
    assert [path.name for path in folder.iterdir()] == ["demo.yml"]


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("check local demo.yml --format json --format xml", "json"),
        ("inspect demo.yml --format=sarif", "json"),
        ("check local demo.yml --format=sarif --format sarf", "sarif"),
        ("build --format json local demo.yml", "json"),
        ("lock local demo.yml --format=json", "json"),
        ("plan local demo.yml --json", "json"),
        ("cache prune --format json", "json"),
        ("cache --format json nothing", "json"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_format_has_a_document_too(line: str, shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert read_codes(capsys.readouterr().out, shape=shape)


@pytest.mark.parametrize(
    "line",
    [
        "check local no.yml",
        "sites no -- --format json",
        "build --format oci local demo.yml",
        "sites no --format txt",
        "sites no --format xml",
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_asks_for_no_document_gets_none(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("folder")
def test_a_document_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--format", "json", "--torch-index", "default", "local", "demo.yml", "gone.yml"]) == 2
    assert [outcome["file"] for outcome in json.loads(capsys.readouterr().out)["outcomes"]] == ["gone.yml", "demo.yml"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
@pytest.mark.usefixtures("folder")
def test_an_interrupt_and_a_fault_are_documents(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("builder.cli.sites.find_sites_folder", fail)
    if isinstance(error, KeyboardInterrupt):
        assert run(["sites", "--format", "json"]) == 130
    else:
        with pytest.raises(ZeroDivisionError):
            run(["sites", "--format", "json"])
    (code,) = read_codes(capsys.readouterr().out, shape="json")
    assert code == ("interrupted" if isinstance(error, KeyboardInterrupt) else "fault")


@pytest.mark.parametrize("name", ["APPTAINER_CACHEDIR", "RECIPE_MNIST", "RECIPE_UV", "RECIPE_CACHE_DIR", "TMPDIR"])
def test_doctor_reads_a_place_with_a_long_name(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, str(folder / ("9" * 400)))
    assert run(["doctor", "--offline", "--format", "json"]) in (0, 4)
    said = [reading["says"] for reading in json.loads(capsys.readouterr().out)["readings"]]
    assert any("99999" in text or "too long" in text for text in said)
