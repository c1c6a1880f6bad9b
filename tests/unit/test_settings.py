"""Files of settings: their rank, what becomes of a value, who may have written them, and what is wrong with them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run

Write = Callable[..., Path]
ENVIRONMENT = "name: demo\nchannels: [conda-forge]\ndependencies: [python=3.12, numpy=2.2.6]\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the file of the user or of the system; an environment file is in the current folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path / 'none'}:{tmp_path / 'system'}")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "RECIPE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.yml").write_text(ENVIRONMENT)

    def do(text: str, *, owner: str = "user") -> Path:
        path = tmp_path / owner / "recipe" / "config.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    return do


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, tuple[str, str]]]:
    """What `recipe config` says: value and source of each setting."""

    def do(*words: str) -> dict[str, tuple[str, str]]:
        capsys.readouterr()
        assert run(["config", "--format", "json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        return {
            one["name"]: (one["value"] or "", f"{one['file']}:{one['line']}" if one["file"] else one["origin"])
            for one in found["settings"]
        }

    return do


def test_without_a_file_everything_is_built_in(write: Write, show: Callable[..., dict[str, tuple[str, str]]]) -> None:
    del write
    assert show() == {
        "site": ("", "built in"),
        "account": ("", "built in"),
        "indexes.pypi": ("", "built in"),
        "indexes.torch": ("", "built in"),
        "cache": (f"{Path.cwd()}/.cache/recipe", "built in"),
        "color": ("auto", "built in"),
    }


def test_the_rank_is_line_environment_user_system(
    write: Write, show: Callable[..., dict[str, tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = write(
        "cache: /a\ncolor: never\naccount: {lumi-g: a, mn5: b}\nindexes: {pypi: https://a.org/s}\n", owner="system"
    )
    assert show()["cache"] == ("/a", f"{system}:1")
    user = write("cache: ~/x\naccount:\n  lumi-g: c\nindexes:\n  torch: default\n")
    found = show()
    assert found["cache"] == (f"{Path.cwd()}/x", f"{user}:1")
    assert found["account.lumi-g"] == ("c", f"{user}:3")
    assert found["account.mn5"] == ("b", f"{system}:3")
    assert found["indexes.pypi"] == ("https://a.org/s", f"{system}:4")
    assert found["indexes.torch"] == ("default", f"{user}:5")
    assert found["color"] == ("never", f"{system}:2")
    monkeypatch.setenv("RECIPE_CACHE_DIR", "/b")
    monkeypatch.setenv("SBATCH_ACCOUNT", "d")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret@b.org/s")
    monkeypatch.setenv("RECIPE_TORCH_INDEX", "https://c.org/{token}")
    monkeypatch.setenv("NO_COLOR", "")
    found = show()
    assert found["cache"] == ("/b", "RECIPE_CACHE_DIR")
    assert found["account"] == ("d", "SBATCH_ACCOUNT")
    assert "account.lumi-g" not in found
    assert found["indexes.pypi"] == ("https://***@b.org/s", "PIP_INDEX_URL")
    assert found["indexes.torch"] == ("https://c.org/{token}", "RECIPE_TORCH_INDEX")
    assert found["color"] == ("auto", "NO_COLOR")
    assert show("--no-color")["color"] == ("never", "--no-color")


def test_nothing_of_a_file_is_left_in_the_environment(write: Write, show: Callable[..., object]) -> None:
    write("cache: /a\ncolor: never\nindexes: {pypi: https://a.org/s, torch: default}\n")
    before = dict(os.environ)
    show()
    assert dict(os.environ) == before


def test_the_site_of_a_line_that_names_none_is_said(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("site: lumi-g\n")
    assert run(["check", "env.yml"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"site: lumi-g, by {path}:1\n")
    assert [line.split()[0] for line in out.splitlines()] == ["site", "lumi-g"]
    assert run(["check", "dawn", "env.yml"]) == 0
    out, err = capsys.readouterr()
    assert "site: " not in err
    assert [line.split()[0] for line in out.splitlines()] == ["site", "dawn"]
    assert run(["check", "all", "env.yml"]) == 0
    out, err = capsys.readouterr()
    assert "site: " not in err
    assert len(out.splitlines()) > 15
    assert run(["plan", "env.yml", "-o", "x.plan", "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert "lumi-g" in Path("x.plan/plan.json").read_text()


def test_the_site_of_the_settings_is_in_the_fix_of_an_empty_line(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("site: lumi-g\n")
    for line, right in (("check", "check lumi-g env.yml"), ("build -n", "build lumi-g env.yml -n")):
        assert run(line.split()) == 2
        assert f"fix: `recipe {right}`" in capsys.readouterr().err


def test_a_site_that_does_not_exist_is_answered_with_the_nearest(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("\nsite: lumig\n")
    assert run(["check", "env.yml"]) == 2
    err = capsys.readouterr().err
    assert f"error[site-unknown]: there is no site 'lumig'\n  at:  {path}:2: site\n  fix: did you mean 'lumi-g'?" in err
    assert run(["check", "lumi-g", "env.yml"]) == 0


def test_each_site_has_its_account(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("account: {lumi-g: project_1, mn5: abc12}\n")

    def find_accounts(*words: str) -> dict[str, set[str]]:
        assert run(["plan", "-f", "-q", "lumi-g", "mn5", "env.yml", "-o", "out", *words]) == 0
        scripts = sorted(Path("out").rglob("*.sbatch"))
        lines = [(path.parts[1], line) for path in scripts for line in path.read_text().splitlines()]
        found: dict[str, set[str]] = {}
        for name, line in lines:
            if "--account=" in line and line.startswith("#SBATCH"):
                found.setdefault("mn5" if "mn5" in name else "lumi-g", set()).add(line.partition("=")[2])
        return found

    assert find_accounts() == {"lumi-g": {"project_1"}, "mn5": {"abc12"}}
    assert find_accounts("--account=x") == {"lumi-g": {"x"}, "mn5": {"x"}}
    assert find_accounts("--account=") == {}
    monkeypatch.setenv("SBATCH_ACCOUNT", "y")
    assert find_accounts() == {"lumi-g": {"y"}, "mn5": {"y"}}


def test_a_mirror_and_a_cache_reach_the_commands(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("indexes: {torch: 'https://mirror.example.org/{token}'}\ncache: /nothere/${HOME}\n")
    Path("env.yml").write_text("dependencies: [python=3.12, pip: [torch==2.8.0]]\n")
    assert run(["plan", "lumi-g", "env.yml", "--show", "--backend", "apptainer"]) == 0
    assert "https://mirror.example.org/rocm" in capsys.readouterr().out
    assert run(["cache", "ls"]) == 0
    assert f"/nothere{Path.cwd()}" in "".join(capsys.readouterr())


FAULTS = [  # text, code, line and key, message, fix
    ("site: [a]", "wrong-type", "1: site", "expected text, found a list", "write a text"),
    (
        "site: A b",
        "config-value",
        "1: site",
        "'A b' cannot be the name of a site",
        "write a name that `recipe sites` lists",
    ),
    (
        "account: me",
        "wrong-type",
        "1: account",
        "expected a table of keys, found the text 'me'",
        "write it as 'KEY: value' lines",
    ),
    (
        "account:\n  mn5: 465",
        "wrong-type",
        "2: account.mn5",
        "expected text, found the number 465",
        'put quotes round it: mn5: "465"',
    ),
    (
        "account:\n  mn5: a b",
        "config-value",
        "2: account.mn5",
        "'a b' cannot be a Slurm account",
        "write its name alone, as in mn5: project_1",
    ),
    (
        "account:\n  M N: a",
        "config-value",
        "2: account.M N",
        "'M N' cannot be the name of a site",
        "write a name that `recipe sites` lists",
    ),
    (
        "color: blue",
        "wrong-choice",
        "1: color",
        "expected one of auto, never, found the text 'blue'",
        "allowed: auto, never",
    ),
    (
        "color: nevr",
        "wrong-choice",
        "1: color",
        "expected one of auto, never, found the text 'nevr'",
        "did you mean 'never'? allowed: auto, never",
    ),
    (
        "cache: x",
        "config-value",
        "1: cache",
        "'x' cannot be the cache: it is not an absolute path",
        "begin it with / or ~/; ${NAME} is replaced, $( ) is not",
    ),
    (
        "cache: /x/$(id)",
        "config-value",
        "1: cache",
        "'/x/$(id)' cannot be the cache: it is not an absolute path",
        "begin it with / or ~/; ${NAME} is replaced, $( ) is not",
    ),
    (
        "cache: /x/${NOT_SET_HERE}",
        "config-value",
        "1: cache",
        "'/x/${NOT_SET_HERE}' cannot be the cache: NOT_SET_HERE is not set",
        "write the path of a folder of your own",
    ),
    (
        "cache: /dev/null",
        "config-value",
        "1: cache",
        "'/dev/null' cannot be the cache: it is no folder",
        "write the path of a folder of your own",
    ),
    (
        "indexes:\n  pypi: ftp://a.org",
        "config-value",
        "2: indexes.pypi",
        "the address 'ftp://a.org' begins with 'ftp:'",
        "allowed: https, http, file",
    ),
    (
        "indexes:\n  pypi: simple",
        "config-value",
        "2: indexes.pypi",
        "the address 'simple' is not a URL, or contains characters that a URL cannot have",
        "check it; write a special character as %XX",
    ),
    ("indexes: [a]", "wrong-type", "1: indexes", "expected a table of keys, found a list", "known keys: pypi, torch"),
    (
        "- site: x",
        "config-empty",
        "",
        "the config file is no table of keys",
        "known keys: site, account, indexes, cache, color",
    ),
    ("site: a\nsite: b", "yaml-duplicate", "2", "the key 'site' occurs twice, first in line 1", "keep one of them"),
    ("\tsite: a", "yaml-tab", "1", "a tab is used for indentation", "use spaces in its place"),
]


@rows("case", FAULTS, ids=lambda case: case[0])
def test_a_fault_has_its_line_and_its_fix(
    case: tuple[str, str, str, str, str], write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code, where, message, fix = case
    path = write(f"{text}\n")
    at = f"{path}:{where}" if where else str(path)
    for line in (["check", "lumi-g", "env.yml"], ["config"], ["doctor", "local"]):
        capsys.readouterr()
        assert run(line) == 2
        assert capsys.readouterr().err == f"error[{code}]: {message}\n  at:  {at}\n  fix: {fix}\n"
    for line in (["init", "-f"], ["explain", "glibc"], ["schema", "site"], ["completion", "bash"]):
        assert run(line) == 0


def test_all_faults_of_both_files_are_said_at_once(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("color: blue\ncache: x\n")
    write("site: A B\n", owner="system")
    assert run(["sites"]) == 2
    assert capsys.readouterr().err.count("error[") == 3  # both of one file, and one of the other


def test_an_unknown_key_is_a_warning_with_the_nearest(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("colour: never\nindexes:\n  pypy: https://a.org\n  torch: default\n")
    assert run(["check", "lumi-g", "env.yml"]) == 0
    err = capsys.readouterr().err
    known = "known keys: account, cache, color, indexes, site"
    assert f"warning[config-key]: unknown key 'colour': it is ignored\n  at:  {path}:1: colour\n" in err
    assert f"  fix: did you mean 'color'? {known}\n" in err
    assert f"  at:  {path}:3: indexes.pypy\n  fix: did you mean 'pypi'? known keys: pypi, torch\n" in err
    assert run(["check", "-q", "lumi-g", "env.yml"]) == 0
    assert capsys.readouterr().err == ""


def test_security_what_others_can_write_is_not_used(
    write: Write, show: Callable[..., dict[str, tuple[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("cache: /a\n")
    for place, mode in ((path, 0o606), (path.parent, 0o777)):
        before = place.stat().st_mode
        place.chmod(mode)
        assert run(["sites"]) == 0
        err = capsys.readouterr().err
        what = "config file" if place == path else "folder of the config file"
        message = f"the {what} '{place}' may be written by every user of this machine: it is not used"
        assert f"warning[config-foreign]: {message}" in err
        assert f"fix: look at what is in it, then `chmod o-w {place}`" in err
        assert show()["cache"][1] == "built in"
        place.chmod(before)
    assert show()["cache"][0] == "/a"


def test_security_a_login_is_never_printed(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    for address in ("https://me:hunter2@a.org/s", "https://a.org/t/hunter2/s", "https://hunter2@a.org/s"):
        for key in ("pypi", "torch"):
            path = write(f"indexes:\n  {key}: {address}\n")
            path.chmod(0o644)
            for line in (["config"], ["config", "--format", "json"], ["check", "lumi-g", "env.yml"]):
                assert run(line) == (2 if key == "torch" else 0)
                out, err = capsys.readouterr()
                assert "hunter2" not in out + err
                assert ("warning[config-login]" in out + err or "config-login" in out) == (key == "pypi")


def test_a_relative_folder_of_settings_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, show: Callable[..., dict[str, tuple[str, str]]]
) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "config.yaml").write_text("cache: /a\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", ".")
    assert show()["cache"][1] == "built in"


def test_what_is_never_read_is_said(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("account: {lumi: a}\n")
    path.with_name("config.yml").write_text("cache: /a\n")
    assert run(["config"]) == 0
    out, err = capsys.readouterr()
    assert f"warning[config-name]: '{path.with_name('config.yml')}' is not read\n  fix: name it config.yaml\n" in err
    assert f"warning[site-unknown]: there is no site 'lumi'\n  at:  {path}:1: account.lumi\n" in err
    assert f"user file:    read     {path}\n" in out
    assert "system file:  missing" in out


def test_a_file_that_is_missing_is_looked_for_and_no_more(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look a file: nothing of the reader is loaded."""
    del write

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a file that is missing is not read")

    monkeypatch.setattr("builder.cli.settings._read", refused)
    assert run(["sites", "-q"]) == 0
