"""Exports of other systems and lists of installed packages: what Linux cannot install is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.model.finding import BuilderError, ConfigError, Finding, UnsupportedError, select_errors
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve


def faults(path: Path, text: str, *, site: str = "local") -> tuple[Finding, ...]:
    path.write_text(text)
    with pytest.raises(BuilderError) as caught:
        resolve(load_recipe(path), load_site(site), context=Context())
    return select_errors(caught.value.findings)


@pytest.mark.parametrize(
    ("line", "code"),
    [("pywin32==306", "export-system"), ("pyobjc-core", "export-system"), ("cudatoolkit", "name-import")],
)
def test_what_linux_cannot_install_is_refused(tmp_path: Path, line: str, code: str) -> None:
    found = faults(tmp_path / "x.txt", f"six\n{line}\n")
    assert [one.code for one in found] == [code]
    assert line in found[0].message


def test_the_fix_of_a_windows_package_works(tmp_path: Path) -> None:
    found = faults(tmp_path / "x.txt", "six\npywin32==306\n")
    right = found[0].fix.partition("write '")[2].removesuffix("'")
    assert right.startswith("pywin32")
    (tmp_path / "x.txt").write_text(f"six\n{right}\n")
    resolve(load_recipe(tmp_path / "x.txt"), load_site("local"), context=Context())


def test_what_debian_lists_is_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path / "x.txt", "six\npkg-resources==0.0.0\n")
    assert (fault.code, fault.fix[:9]) == ("name-import", "remove it")


def test_a_build_for_windows_is_refused(tmp_path: Path) -> None:
    text = "dependencies:\n  - python=3.10\n  - mkl=2021.4.0=haa95532_640\n"
    (fault,) = faults(tmp_path / "x.yml", text, site="lumi-g")
    assert fault.code == "export-system"
    assert "Windows" in fault.message


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("dependencies: [six]\ncontainer:\n  run:\n    - echo\n    - false\n", '"false"'),
        ("dependencies: [six]\ncontainer: {python: '3.10'}\n", "python=3.10"),
        ("dependencies:\n  - pip: [python==3.11]\n", "python=3.11"),
    ],
)
def test_a_fix_repeats_what_was_written(tmp_path: Path, text: str, written: str) -> None:
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "x.yml")
    assert written in caught.value.findings[0].fix
    assert "run[" not in caught.value.findings[0].fix


def test_the_vendors_of_a_fix_serve_the_site(tmp_path: Path) -> None:
    text = "dependencies: [python=3.12, pip, pip: ['jax[cuda12]==0.6.0']]\n"
    for fault in faults(tmp_path / "x.yml", text, site="lumi-g"):
        assert "[cpu]" not in fault.fix


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("pip install torch==2.8.0", "torch==2.8.0"),
        ("!pip install six", "six"),
        ("conda install six", "six"),
    ],
)
def test_a_command_in_a_list_of_packages_is_called_so(tmp_path: Path, line: str, right: str) -> None:
    (tmp_path / "x.txt").write_text(f"{line}\n")
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "x.txt")
    assert f"write '{right}' alone" in caught.value.findings[0].fix


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf_16_is_called_so_with_and_without_its_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.yml").write_text("dependencies: [six]\n", encoding=encoding)
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "x.yml")
    assert "is UTF-16 text" in caught.value.findings[0].message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_requirements_are_read_by_their_mark_as_by_pip(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.txt").write_text("six==1.16.0\r\n-r y.txt\r\n", encoding=encoding)
    (tmp_path / "y.txt").write_text("numpy==1.26.0\r\n", encoding=encoding)
    assert [line.text for line in load_recipe(tmp_path / "x.txt").pip] == ["six==1.16.0", "numpy==1.26.0"]


def test_half_a_letter_behind_a_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\xff\xfes")
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "x.txt")
    assert caught.value.findings[0].code == "file-encoding"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            "dependencies: ['black[jupyter]']",
            "conda-bracket",
            "'[jupyter]' in 'black[jupyter]' is ignored, as by conda",
        ),
        (
            "platform: linux-64\ndependencies: [six]",
            "unknown-key",
            "unknown key 'platform': it is ignored, as by conda",
        ),
        ("channel_priority: strict\ndependencies: [six]", "unknown-key", "is ignored, as by conda"),
        ("allow-pypi-requests: true\ndependencies: [six]", "unknown-key", "is ignored, as by conda"),
    ],
)
def test_what_conda_ignores_is_a_warning(tmp_path: Path, text: str, code: str, message: str) -> None:
    (tmp_path / "x.yml").write_text(text + "\n", encoding="utf-8")
    recipe = load_recipe(tmp_path / "x.yml")
    (told,) = recipe.warnings
    assert (told.code, told.level, message in told.message) == (code, "warning", True)
    assert [spec.text for spec in recipe.conda] in (["black"], ["six"])


@pytest.mark.parametrize("channel", ["./mine", "/srv/channel", "~/channel"])
def test_a_folder_is_no_channel_of_a_build(tmp_path: Path, channel: str) -> None:
    (tmp_path / "x.yml").write_text(f"channels: ['{channel}']\ndependencies: [six]\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "x.yml")
    assert "is a folder of this machine" in caught.value.findings[0].message


def test_a_folder_of_keys_is_no_package(tmp_path: Path) -> None:
    for name in (".ssh", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "setup.py").touch()
    (tmp_path / "x.txt").write_text("./.ssh\n./mine\n", encoding="utf-8")
    with pytest.raises(UnsupportedError) as caught:
        resolve(load_recipe(tmp_path / "x.txt"), load_site("local"), context=Context())
    assert [one.message for one in caught.value.findings if one.code == "file-source"] == [
        "'./.ssh' is where keys or passwords are kept"
    ]
