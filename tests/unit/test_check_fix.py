"""`recipe check --fix`: exact edits of lines, comments and order kept; nothing where no fix is exact."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from support.codes import without_codes
from support.rows import rows

from builder.cli.corrections import apply_edits
from builder.cli.main import run
from builder.model.finding import Edit, find_typo
from builder.parse.recipe import load_recipe

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
  system: [git]
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
  system: [git]
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
    assert err == "8 lines corrected\nlocal: ok\n"
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
    assert "note[nothing-exact]: no finding has an exact fix" in err
    assert env.read_text().endswith("  - 3.12\n")


def test_warnings_without_an_edit_are_nothing_to_correct(env: Path, capsys: Capture) -> None:
    env.write_text("name: demo\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.12\n  - numpy\n")
    assert run(["check", "--fix", "lumi-g", str(env)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "nothing to correct: no finding has an exact fix\nlumi-g: ok\n")


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


SLIPS = "name: x\ndependencies:\n  - python=3.12\n  - pip:\n    - torch=2.8.0\n    - sklearn\n    - cv2\n"


@pytest.mark.parametrize("sites", [["local"], ["local", "lumi-g"], []])
def test_faults_behind_a_fault_are_corrected_too(sites: list[str], env: Path, capsys: Capture) -> None:
    env.write_text(SLIPS)
    assert run(["check", "--fix", "--diff", *sites, str(env)]) == 0
    assert "3 lines can be corrected: `recipe check" in capsys.readouterr().err
    assert run(["check", "--fix", *sites, str(env)]) == 0
    assert "3 lines corrected" in capsys.readouterr().err
    assert "torch==2.8.0\n    - scikit-learn\n    - opencv-python\n" in env.read_text()
    assert run(["check", *sites, str(env)]) == 0


@pytest.mark.parametrize("sites", [["local"], ["lumi-g", "mn5"]])
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (SLIPS.replace("2.8.0", "2.99.0"), "torch-unknown"),
        (SLIPS + "    - torchvision==0.1\n", "torch"),
        (SLIPS + "  - numpy: 1\n    - x y\n", ""),
    ],
)
def test_after_a_correction_the_verdict_is_that_of_check(
    text: str, code: str, sites: list[str], env: Path, capsys: Capture
) -> None:
    env.write_text(text)
    tried = run(["check", "--fix", "--diff", *sites, str(env)])
    dry = capsys.readouterr().err
    assert env.read_text() == text
    made = run(["check", "--fix", *sites, str(env)])
    said = capsys.readouterr().err
    again = run(["check", *sites, str(env)])
    left = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("error[", "  fix: "))]
    assert (tried, made) == (again, again) != (0, 0)
    assert f"error[{code}" in said
    errors = [one for one in left if one.startswith("error[")]
    assert all(line in said and line in dry for line in errors), (errors, said)


def test_a_file_that_is_right_stays(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - numpy=1.26\n")
    run(["check", "local", str(env)])
    capsys.readouterr()
    assert run(["check", "--fix", "local", str(env)]) in (0, 2)
    assert capsys.readouterr().out == ""
    assert env.read_text().endswith("numpy=1.26\n")


@rows(("line", "old"), [("- a a", "a"), ("- abc", "b"), ("- x  # a", "a"), ("- a-b", "a")])
def test_words_that_do_not_stand_there_once_are_left(line: str, old: str) -> None:
    assert apply_edits(line, [Edit(file="x", line=1, old=old, new="z")]) == (line, 0)


def test_line_ends_and_a_missing_last_one_are_kept() -> None:
    edit = Edit(file="x", line=2, old="b", new="c")
    assert apply_edits("a\r\nb\r\n", [edit]) == ("a\r\nc\r\n", 1)
    assert apply_edits("a\nb", [edit]) == ("a\nc", 1)
    assert apply_edits("a\n", [edit]) == ("a\n", 0)


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


@pytest.mark.parametrize("name", ["empty.yml", "empty.txt"])
def test_an_empty_file_has_nothing_to_correct(name: str, env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.with_name(name).write_text("")
    assert run(["check", "--fix", "local", name]) == 2
    assert "error[" in capsys.readouterr().err


def test_the_mode_of_a_corrected_file_stays(env: Path) -> None:
    env.write_text(FAULTY)
    env.chmod(0o640)
    assert run(["check", "--fix", "local", str(env)]) == 0
    assert (env.read_text(), stat.S_IMODE(env.stat().st_mode)) == (RIGHT, 0o640)


def test_a_file_without_write_permission_stays(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text(FAULTY)
    env.chmod(0o444)
    assert run(["check", "--fix", "local", str(env)]) == 2
    assert "error: 'environment.yml' may not be written\n  fix: " in without_codes(capsys.readouterr().err)
    assert (env.read_text(), stat.S_IMODE(env.stat().st_mode)) == (FAULTY, 0o444)
    assert run(["check", "--fix", "--diff", "local", str(env)]) == 0


@rows(
    "line",
    [
        "--no-cache", "--no-cach-dir", "--no-idx-cache", "--only-bin-pkgs :all:", "--pre-release", "--pre=no",
        "--no-index=false", "torchvision==0.20.0", "numpy=1.26=py312_0", "--timeou 30",
    ],
)  # fmt: skip
def test_an_edit_that_would_change_the_meaning_is_not_made(line: str, env: Path) -> None:
    before = f"name: demo\ndependencies:\n  - python=3.12\n  - pip:\n    - torch==2.8.0\n    - {line}\n"
    env.write_text(before)
    run(["check", "--fix", "local", str(env)])
    assert env.read_text() == before


@pytest.mark.parametrize("item", ["python=3.11t", "requirements: more.txt", "numpy[builds_nr=3]"])
def test_an_item_of_conda_is_not_made_another_one(item: str, env: Path) -> None:
    before = f"name: demo\ndependencies:\n  - {item}\n  - scipy\n"
    env.write_text(before)
    assert run(["check", "--fix", "local", str(env)]) == 2
    assert env.read_text() == before


def test_an_option_of_pips_command_line_is_named_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nc.txt"
    file.write_text("torch==2.8.0\n--no-cache\n")
    assert run(["check", "--fix", "local", str(file)]) == 2
    assert file.read_text() == "torch==2.8.0\n--no-cache\n"
    assert "pip takes the option '--no-cache' on its command line only" in capsys.readouterr().err


def test_only_a_single_slip_is_a_typing_error() -> None:
    vendors = ("amd", "cpu", "intel", "nvidia")
    assert [find_typo(word, known=vendors) for word in ("nvdia", "Nvidia", "intl", "gpu", "and", "nvidea")] == [
        "nvidia", "nvidia", "intel", "", "", "nvidia",
    ]  # fmt: skip
    assert find_typo("--no-cache", known=("--no-index", "--no-binary")) == ""
    assert find_typo("abcdx", known=("abcda", "abcdb")) == ""
    assert find_typo("extra_index-url", known=("extra-index-url",)) == "extra-index-url"


@pytest.mark.parametrize(
    "items",
    [
        "  - pip\n    - torch\n",
        "  - pip\n    - numpy\n    - torch\n",
        "  - pip:\n  - torch\n",
        "  - pip:\n  - numpy\n    - torch\n",
    ],
)
def test_what_is_meant_below_pip_comes_there(items: str, env: Path) -> None:
    env.write_text(f"name: t\ndependencies:\n  - python=3.12\n{items}")
    run(["check", "--fix", "local", str(env)])
    recipe = load_recipe(env)
    assert [spec.name for spec in recipe.conda] == ["python"]
    assert recipe.pip[-1].name == "torch"


@pytest.mark.parametrize(
    ("items", "fix"),
    [
        ("  - pip\n    - torch\n", "write '- pip:', with '- torch' indented below it"),
        ("  - pip:\n    - numpy\n      - torch\n", "begin '- torch' in the column of '- numpy', below '- pip:'"),
        ("  - pip:\n  - numpy\n    - torch\n", "indent this line and the one before it below '- pip:', in one column"),
        ("  - pip:\n    - numpy\n  - torch\n", "indent it below '- pip:' if pip is to install it, or write pytorch"),
    ],
)
def test_the_fix_of_a_wrong_column_stays_below_pip(
    items: str, fix: str, env: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env.write_text(f"name: t\ndependencies:\n  - python=3.12\n{items}")
    run(["check", "local", str(env)])
    assert f"fix: {fix}\n" in capsys.readouterr().err


def test_a_byte_order_mark_stays(env: Path) -> None:
    env.write_bytes(b"\xef\xbb\xbf" + FAULTY.encode())
    assert run(["check", "--fix", "local", str(env)]) == 0
    assert env.read_bytes() == b"\xef\xbb\xbf" + RIGHT.encode()


@pytest.mark.parametrize("text", [FAULTY, f"{FAULTY}# {'long' * 9000}\n"], ids=["short", "long"])
def test_a_file_with_several_names_is_corrected_by_each(env: Path, text: str) -> None:
    env.write_text(text)
    other, mode = env.with_name("other.yml"), stat.S_IMODE(env.stat().st_mode)
    other.hardlink_to(env)
    assert run(["check", "--fix", "local", str(env)]) == 0
    assert other.samefile(env)
    assert other.read_text() == text.replace(FAULTY, RIGHT)
    assert stat.S_IMODE(env.stat().st_mode) == mode
    assert sorted(path.name for path in env.absolute().parent.iterdir()) == sorted([env.name, other.name])


def test_what_is_left_is_printed_with_its_warnings(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - nunpy\n  - pip: [rich=13.7]\n")
    assert run(["check", "--fix", "local", str(env)]) == 0
    err = capsys.readouterr().err
    assert "'nunpy' is not a known package" in err
    assert "1 line corrected" in err


def test_an_import_name_is_reported_for_conda_as_for_pip(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"cv2": "opencv", "sklearn": "scikit-learn", "PIL": "pillow", "yaml": "pyyaml", "bs4": "beautifulsoup4"}
    env.write_text(f"name: demo\ndependencies: [python=3.12, openssl, opencv, {', '.join(names)}]\n")
    assert run(["check", "local", str(env)]) == 0
    err = capsys.readouterr().err
    assert [line.split()[-1] for line in err.splitlines() if line.startswith("  fix: write ")] == list(names.values())


@rows(
    ("line", "after"),
    [
        ("- {pandas: 2.2}", "- pandas=2.2"),
        ("- { pandas: 2.2 }  # pinned", "- pandas=2.2  # pinned"),
        ("- {pandas: 2.2, numpy: 1.0}", None),
    ],
)
def test_a_key_in_braces_loses_its_braces(line: str, after: str | None) -> None:
    edit = Edit(file="x.yml", line=1, old="pandas: 2.2", new="pandas=2.2")
    assert apply_edits(f"{line}\n", [edit]) == ((f"{line}\n", 0) if after is None else (f"{after}\n", 1))


@rows(
    ("before", "after"),
    [
        ("  - pyhton=3.11\n  - pip\n", "  - python=3.11\n  - pip\n"),
        ("  - pythn>=3.10\n", "  - python>=3.10\n"),
        ("  - conda-forge::pyton\n", "  - conda-forge::python\n"),
        ("  - pyhton=3.11\n  - python=3.12\n", None),  # two lines of it
        ("  - pyhton=3.11\n  - pyton=3.12\n", None),  # corrected, conda would refuse both
        ("  - torch\n  - pytorch=2.5\n", "  - pytorch=2.5\n"),
        ("  - pytorch=2.5\n  - torch=2.5\n", "  - pytorch=2.5\n"),
        ("  - pytorch=2.5\n  - torch=2.4\n", None),
        ("\t- six=1.16\n  # a comment\n\t- pip:\n\t\t- rich==13.7\n",
         "  - six=1.16\n  # a comment\n  - pip:\n    - rich==13.7\n"),
        ("\t- six=1.16\n  - rich=13.7\n", None),
    ],
)  # fmt: skip
def test_a_corrected_file_can_be_read(env: Path, capsys: Capture, before: str, after: str | None) -> None:
    head = "name: x\ndependencies:\n"
    env.write_text(head + before)
    run(["check", "--fix", "local", str(env)])
    capsys.readouterr()
    assert env.read_text() == head + (before if after is None else after)


@pytest.mark.parametrize("name", ["pyton", "pythn>=3.10", "pyhton==3.11"])
def test_a_misspelt_python_of_pip_is_a_warning(name: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"{name}\nsix==1.16\n")
    assert run(["check", "local", str(file)]) == 0
    told = capsys.readouterr().err
    assert "warning[name-near]" in told
    assert "in an environment.yml write '- python" in told
