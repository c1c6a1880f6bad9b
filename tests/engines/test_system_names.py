"""Names of `container.system` and what apt-get makes of them: the real one, which only says what it would do."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_program import Done, run

from builder.compile.render import read_template
from builder.model.finding import ConfigError
from builder.parse.recipe import load_recipe

pytestmark = pytest.mark.engines


def system(folder: Path, *names: str, checked: bool = True) -> Done:
    """The part of install.sh, with apt-get in its dry mode; `checked` False is without our look at the names."""
    text = read_template("install.sh").replace("here=/opt/recipe/build", f"here={folder}")
    for old, new in (
        ("update -qq", "--version >/dev/null"),
        (" install -y", " install -s -y"),
        ("rm -rf /var/lib", ": "),
    ):
        assert old in text
        text = text.replace(old, new)
    text = text if checked else text.replace("        known_to_apt\n", "")
    (folder / "system.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    script = folder / "install.sh"
    script.write_text(text, encoding="utf-8")
    return run(["sh", script, "system"])


@pytest.mark.parametrize("names", [("g++",), ("libstdc++6", "g++", "less"), ("python3.11",), ("libsigc++-2.0-0v5",)])
def test_security_21_names_with_a_plus_or_a_dot_are_these_packages(names: tuple[str, ...], tmp_path: Path) -> None:
    done = system(tmp_path, *names).expect(0)
    assert "Remv" not in done.out


@pytest.mark.parametrize("name", ["a.+", "less+", "py.hon3", "li.less"])
def test_security_21_a_pattern_is_no_name(name: str, tmp_path: Path) -> None:
    done = system(tmp_path, "less", name).expect(1)
    assert f"there is no package '{name}' for the base image" in done.err


def test_security_21_apt_takes_a_pattern_for_packages(tmp_path: Path) -> None:
    """What the look at the names is for."""
    done = system(tmp_path, "less+", checked=False).expect(0)
    assert "Unable to locate" not in done.err


@pytest.mark.parametrize("name", ["less-", "a.-", "g++-", "less=590-", "less=590+", "-less", "+less"])
def test_security_21_a_name_that_removes_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "env.yml"
    path.write_text(f"dependencies: [numpy]\ncontainer: {{system: ['{name}']}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not the name of a distribution package"):
        load_recipe(path)
