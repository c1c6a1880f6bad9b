"""`recipe check --fix`: exact edits of lines, comments and order kept; nothing where no fix is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.fixing import corrected
from builder.cli.main import run
from builder.model.finding import Edit

Capture = pytest.CaptureFixture[str]
FAULTY = """\
nmae: demo  # nmae is the name
chanels: [conda-forge]
dependencies:
  - python=3.12
  - numpy=>1.26   # a comment that stays
  - pandas: 2.2
  - "scipy=1.11"
  - git+https://example.org/x.git
  - pip:
    - rich=13.7
    - --extra-index-urls https://example.org/simple
container:
  gpus: [cpu]
"""
RIGHT = """\
name: demo  # nmae is the name
channels: [conda-forge]
dependencies:
  - python=3.12
  - numpy>=1.26   # a comment that stays
  - pandas=2.2
  - "scipy=1.11"
  - pip:
    - rich==13.7
    - --extra-index-url https://example.org/simple
    - git+https://example.org/x.git
container:
  gpu: [cpu]
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("environment.yml")


def test_every_exact_fault_is_corrected_in_its_line(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text(FAULTY)
    assert run(["check", "--fix", "local", str(env)]) == 0
    out, err = capsys.readouterr()
    assert env.read_text() == RIGHT
    assert out.startswith("--- a/environment.yml\n+++ b/environment.yml\n@@")
    assert "-nmae: demo  # nmae is the name\n" in out
    assert err == "8 lines corrected\n"
    assert [path.name for path in env.absolute().parent.iterdir()] == ["environment.yml"]
    assert run(["check", "local", str(env)]) == 0


@pytest.mark.parametrize("words", [["--fix", "--diff"], ["--fix", "-n"], ["--diff"]])
def test_diff_prints_and_writes_nothing(words: list[str], env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text(FAULTY)
    assert run(["check", *words, "local", str(env)]) == 0
    assert "+name: demo" in capsys.readouterr().out
    assert env.read_text() == FAULTY


def test_without_an_exact_fix_it_refuses(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text("name: demo\ndependencies:\n  - 3.12\n")
    assert run(["check", "--fix", "local", str(env)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: no finding has an exact fix" in err
    assert env.read_text().endswith("  - 3.12\n")


def test_warnings_without_an_edit_are_nothing_to_correct(env: Path, capsys: Capture) -> None:
    env.write_text("name: demo\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.12\n  - numpy\n")
    assert run(["check", "--fix", "lumi-g", str(env)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "nothing to correct: no finding has an exact fix\n")


def test_a_file_that_cannot_be_read_is_said_once(env: Path, capsys: Capture) -> None:
    env.write_bytes("name: demo\n".encode("utf-16"))
    assert run(["check", "--fix", "local", str(env)]) == 2
    assert capsys.readouterr().err.count("UTF-16") == 1


def test_a_diff_of_windows_lines_shows_no_carriage_return(env: Path, capsys: Capture) -> None:
    env.write_bytes(FAULTY.replace("\n", "\r\n").encode())
    assert run(["check", "--fix", "-n", "local", str(env)]) == 0
    out, _ = capsys.readouterr()
    assert "+name: demo  # nmae is the name\n" in out
    assert "\r" not in out
    assert "\\u000d" not in out


def test_lines_are_counted_and_not_edits(env: Path, capsys: Capture) -> None:
    env.write_text(
        "name: demo\ndependencies:\n  - python=3.12\n  - conda-forge::pip::six\n  - git+https://x.org/a.git\n"
    )
    assert run(["check", "--fix", "local", str(env)]) in (0, 2)
    out, err = capsys.readouterr()
    added = [line for line in out.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert f"{len(added)} lines corrected" in err, (out, err)
    assert len(added) > 1


def test_what_the_resolver_found_is_corrected_too(env: Path) -> None:
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - torch=2.8.0\n  - pip:\n    - numpy\n")
    assert run(["check", "--fix", "local", str(env)]) == 0
    assert "  - pytorch=2.8.0\n" in env.read_text()
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - pip:\n    - torch==2.8.0+cu128\n")
    assert run(["check", "--fix", "lumi-g", str(env)]) == 0
    assert "    - torch==2.8.0\n" in env.read_text()


def test_a_file_that_is_right_stays(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - numpy=1.26\n")
    run(["check", "local", str(env)])
    capsys.readouterr()
    assert run(["check", "--fix", "local", str(env)]) in (0, 2)
    assert capsys.readouterr().out == ""
    assert env.read_text().endswith("numpy=1.26\n")


@pytest.mark.parametrize(("line", "old"), [("- a a", "a"), ("- abc", "b"), ("- x  # a", "a"), ("- a-b", "a")])
def test_words_that_do_not_stand_there_once_are_left(line: str, old: str) -> None:
    assert corrected(line, [Edit(file="x", line=1, old=old, new="z")]) == (line, 0)


def test_line_ends_and_a_missing_last_one_are_kept() -> None:
    edit = Edit(file="x", line=2, old="b", new="c")
    assert corrected("a\r\nb\r\n", [edit]) == ("a\r\nc\r\n", 1)
    assert corrected("a\nb", [edit]) == ("a\nc", 1)
    assert corrected("a\n", [edit]) == ("a\n", 0)


MOVED = """\
name: demo
# what the node has
system:  # of the distribution
  - ffmpeg

  - libgl1
dependencies:
  - python=3.12
run:
- |
  echo one
    echo two
container:   # ours
    gpu: [cpu]

# the end
"""
IN_PLACE = """\
name: demo
# what the node has
dependencies:
  - python=3.12
container:   # ours
    gpu: [cpu]
    system:  # of the distribution
      - ffmpeg

      - libgl1
    run:
    - |
      echo one
        echo two

# the end
"""


def fixed(env: Path, text: str) -> str:
    """The file after --fix, which check takes then."""
    env.write_text(text)
    assert run(["check", "--fix", "local", str(env)]) == 0
    assert run(["check", "local", str(env)]) == 0
    assert [path.name for path in env.absolute().parent.iterdir()] == ["environment.yml"]
    return env.read_text()


def refused(env: Path, text: str) -> None:
    """No fix is exact: the file stays as it is."""
    env.write_text(text)
    assert run(["check", "--fix", "local", str(env)]) == 2
    assert env.read_text() == text


def test_keys_move_into_the_container_with_their_comments(env: Path) -> None:
    assert fixed(env, MOVED) == IN_PLACE


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_container_is_made_where_there_is_none(env: Path, end: str) -> None:
    found = fixed(env, f"name: demo\ngpu: [cpu]\ndependencies: [python=3.12]\nsystem: [ffmpeg]{end}")
    assert found.startswith("name: demo\ndependencies: [python=3.12]\n")
    assert found.strip().endswith("container:\n  gpu: [cpu]\n  system: [ffmpeg]")


def test_a_container_in_one_line_or_with_that_key_is_left(env: Path) -> None:
    refused(env, "name: demo\nsystem: [ffmpeg]\ndependencies: [python=3.12]\ncontainer: {gpu: [cpu]}\n")
    text = "name: demo\nsystem: [ffmpeg]\ndependencies: [python=3.12]\ncontainer:\n  system: [libgl1]\n"
    refused(env, text)


def test_items_after_an_empty_pip_go_below_it(env: Path) -> None:
    text = (
        "name: demo\ndependencies:\n  - python=3.12\n  - pip:  # these\n  - numpy==2.2.6  # one\n\n  # two\n  - six\n"
    )
    assert fixed(env, text).endswith("  - pip:  # these\n    - numpy==2.2.6  # one\n\n    # two\n    - six\n")
    refused(env, "name: demo\ndependencies:\n  - pip:\n  - numpy==2.2.6\n  - python=3.12\n")
    refused(env, "name: demo\ndependencies:\n  - pip:\n  - conda-forge::numpy\n")


def test_tabs_become_spaces_where_nothing_else_indents(env: Path) -> None:
    text = "name: demo\r\ndependencies:\r\n\t- python=3.12\r\n\t- pip:\r\n\t\t- numpy==2.2.6\t# one\r\n"
    env.write_bytes(text.encode())
    assert run(["check", "--fix", "local", str(env)]) == 0
    assert env.read_bytes() == text.replace("\t\t", "    ").replace("\t-", "  -").encode()
    refused(env, "name: demo\ndependencies:\n  - pip:\n\t- numpy==2.2.6\n")


def test_values_get_their_quotes(env: Path) -> None:
    text = "name: demo\ndependencies: [python=3.12]\ncontainer:\n  system: [ffmpeg]\n  run: [yes]  # it\n"
    assert fixed(env, text).endswith('  run: ["yes"]  # it\n')


def test_what_would_be_no_yaml_is_not_written(env: Path) -> None:
    refused(env, "name: demo\nsystem: [ffmpeg,\nlibgl1]\ndependencies: [python=3.12]\n")
