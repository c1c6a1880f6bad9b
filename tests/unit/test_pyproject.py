"""A pyproject.toml as the environment file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.model.finding import ConfigError
from builder.model.recipe import InputChoice, Recipe
from builder.parse.recipe import load_recipe

PROJECT = """[project]
name = "My.App"
version = "1"
requires-python = ">=3.10, <3.14"
dependencies = [
  "numpy>=1.26",
  "torch==2.6.0",
]
[project.optional-dependencies]
plots = ["matplotlib==3.9"]
all = ["my-app[plots]", "tqdm"]
[dependency-groups]
dev = [{ include-group = "lint" }, "pytest"]
lint = ["ruff==0.5"]
"""


def load(folder: Path, text: str, name: str = "pyproject.toml", **chosen: object) -> Recipe:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, choice=InputChoice(**chosen))  # type: ignore[arg-type]


def texts(recipe: Recipe) -> list[str]:
    return [line.text for line in recipe.pip]


def test_dependencies_and_python_are_read_with_their_lines(tmp_path: Path) -> None:
    recipe = load(tmp_path, PROJECT)
    assert (recipe.name, recipe.kind, texts(recipe)) == ("My.App", "project", ["numpy>=1.26", "torch==2.6.0"])
    assert [line.line for line in recipe.pip] == [6, 7]
    assert [(spec.text, spec.line) for spec in recipe.conda] == [("python>=3.10,<3.14", 4)]


@rows(
    ("chosen", "more"),
    [
        ({"extras": ("plots",)}, ["matplotlib==3.9"]),
        ({"extras": ("ALL",)}, ["matplotlib==3.9", "tqdm"]),
        ({"groups": ("dev",)}, ["ruff==0.5", "pytest"]),
        ({"extras": ("plots",), "groups": ("lint",)}, ["matplotlib==3.9", "ruff==0.5"]),
    ],
)
def test_extras_and_groups_add_their_packages(tmp_path: Path, chosen: dict[str, object], more: list[str]) -> None:
    assert texts(load(tmp_path, PROJECT, **chosen))[2:] == more


def test_the_project_itself_is_installed_where_it_is_asked_for(tmp_path: Path) -> None:
    assert "." not in texts(load(tmp_path, PROJECT))
    recipe = load(tmp_path, PROJECT, project=True)
    assert (texts(recipe)[-1], recipe.options) == (".", ("--install-project",))


def test_a_group_that_names_the_project_installs_it(tmp_path: Path) -> None:
    recipe = load(tmp_path, PROJECT + 'job = ["my-app[plots]"]\n', groups=("job",))
    assert texts(recipe)[2:] == ["matplotlib==3.9", "."]


@rows(
    ("source", "became"),
    [
        ('{ git = "https://x.org/a", tag = "v1", subdirectory = "py" }', "a[io] @ git+https://x.org/a@v1#subdirectory=py"),
        ('{ git = "ssh://git@x.org/a", rev = "abc" }', "a[io] @ git+ssh://git@x.org/a@abc"),
        ('{ url = "https://x.org/a-1-py3-none-any.whl" }', "a[io] @ https://x.org/a-1-py3-none-any.whl"),
        ('{ path = "lib" }', "./lib[io]"),
        ('{ path = "./lib", editable = true }', "-e ./lib[io]"),
        ('{ workspace = true }', "./lib[io]"),
        (
            "[{ path = 'lib', marker = \"sys_platform == 'linux'\" },"
            " { url = 'https://x.org/a.zip', marker = \"sys_platform != 'linux'\" }]",
            "./lib[io]",
        ),
        ('{ path = "lib", extra = "other" }', "a[io]>=1"),
        ('{ index = "torch" }', "a[io]>=1"),
    ],
)  # fmt: skip
def test_a_source_of_uv_takes_the_place_of_a_requirement(tmp_path: Path, source: str, became: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "pyproject.toml").write_text('[project]\nname = "A"\n')
    text = f"""[project]
name = "x"
dependencies = ["a[io]>=1"]
[tool.uv.sources]
a = {source}
[tool.uv.workspace]
members = ["li*"]
[[tool.uv.index]]
name = "torch"
url = "https://download.pytorch.org/whl/cu128"
explicit = true
"""
    recipe = load(tmp_path, text)
    assert texts(recipe) == [became]
    assert recipe.pip[0].name == "a"
    used = ("https://download.pytorch.org/whl/cu128",) if "torch" in source else ()
    assert recipe.pip_options.extra_index_urls == used


def test_indexes_and_constraints_of_uv_are_options(tmp_path: Path) -> None:
    text = """[project]
name = "x"
dependencies = ["a"]
[tool.uv]
constraint-dependencies = ["b<2"]
prerelease = "allow"
no-binary-package = ["a"]
[[tool.uv.index]]
name = "mine"
url = "https://x.org/simple"
[[tool.uv.index]]
url = "https://y.org/simple"
default = true
[[tool.uv.index]]
name = "unused"
url = "https://z.org/simple"
explicit = true
"""
    options = load(tmp_path, text).pip_options
    assert (options.index_url, options.extra_index_urls) == ("https://y.org/simple", ("https://x.org/simple",))
    assert (options.pre, options.no_binary) == (True, ("a",))
    assert [line.text for line in options.constraints] == ["b<2"]


def test_the_container_section_is_tool_recipe(tmp_path: Path) -> None:
    recipe = load(tmp_path, PROJECT + '[tool.recipe]\ngpu = ["amd"]\nsystem = ["git"]\nenv = { N = 3 }\n')
    assert (recipe.container.gpu, recipe.container.system, recipe.container.env) == (("amd",), ("git",), {"N": "3"})
    assert recipe.lines["container.gpu"] == 16


def test_only_what_is_installed_changes_the_digest(tmp_path: Path) -> None:
    first = load(tmp_path, PROJECT).digest
    assert load(tmp_path, PROJECT.replace('"1"', '"2"') + "[tool.ruff]\nline-length = 99\n").digest == first
    assert load(tmp_path, PROJECT, extras=("plots",)).digest != first


def test_a_file_of_another_name_is_known_by_its_tables(tmp_path: Path) -> None:
    assert texts(load(tmp_path, PROJECT, name="other.toml")) == ["numpy>=1.26", "torch==2.6.0"]
    with pytest.raises(ConfigError, match="is a TOML file, not a recipe"):
        load(tmp_path, "[package]\nname = 'a'\n", name="Cargo.toml")


def test_input_kind_says_what_a_name_does_not(tmp_path: Path) -> None:
    assert texts(load(tmp_path, "numpy\n", name="deps", kind="pip")) == ["numpy"]
    assert load(tmp_path, "dependencies: [numpy]\n", name="deps", kind="conda").conda[0].name == "numpy"


def test_json_is_read_as_yaml_is(tmp_path: Path) -> None:
    text = '{\n\t"name": "j",\n\t"dependencies": ["python=3.12", {"pip": ["torch"]}],\n'
    text += '\t"variables": {"A": "\\ud83d\\ude00"}\n}'
    recipe = load(tmp_path, text, name="environment.json")
    yaml = load(
        tmp_path, "name: j\ndependencies: [python=3.12, {pip: [torch]}]\nvariables: {A: \U0001f600}\n", name="e.yml"
    )
    same = ("name", "conda", "pip", "variables", "container")
    assert [getattr(recipe, name) == getattr(yaml, name) for name in same] == [True, False, False, True, True]
    assert [(spec.text, spec.line) for spec in recipe.conda] == [("python=3.12", 3)]
    assert texts(recipe) == texts(yaml) == ["torch"]


@rows(
    ("text", "name"),
    [
        (PROJECT, "My.App"),
        ('[workspace]\nname = "sim"\n[dependencies]\nnumpy = "*"\n', "sim"),
        ("name: y\ndependencies: [numpy]\n", "y"),
        ('{"name": "j", "dependencies": ["numpy"]}', "j"),
        ("numpy==2.0.0\n", "recipe"),
    ],
)
def test_standard_input_is_known_by_its_content(
    text: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load_recipe(Path("-"), choice=InputChoice(stdin=text.encode()))
    assert (recipe.name, recipe.file, recipe.folder) == (name, "-", ".")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["check", "lumi-g", "-"]) == 0
    assert capsys.readouterr().out.startswith("site")


def test_a_folder_with_a_project_alone_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    assert run(["check", "lumi-g"]) == 2
    assert "`recipe check lumi-g environment.yml`" in capsys.readouterr().err
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    assert run(["check", "lumi-g"]) == 2
    assert "`recipe check lumi-g pyproject.toml`" in capsys.readouterr().err
    assert run(["check", "lumi-g", "."]) == 2
    assert "give the file in it: pyproject.toml" in capsys.readouterr().err


@rows(
    ("words", "what"),
    [
        (["lock", "local", "-"], "a lock is written next to its environment file, and '-' is standard input"),
        (["check", "--fix", "local", "-"], "--fix corrects a file, and '-' is standard input"),
        (["check", "local", "--environment", "e.yml"], "ENV is an argument, not an option: `recipe check local e.yml`"),
        (["check", "local", "e.yml", "--extra", "a"], "is a conda environment file, which has no --extra"),
    ],
)
def test_wrong_uses_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yml").write_text("dependencies: [numpy]\n")
    assert run(words) == 2
    assert what in capsys.readouterr().err


def test_the_fix_for_a_stale_lock_names_the_chosen_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    assert run(["check", "local", "pyproject.toml", "--locked", "--extra", "plots", "--group", "dev"]) == 3
    assert "`recipe lock local pyproject.toml --extra plots --group dev`" in capsys.readouterr().err


def test_an_edit_of_a_project_keeps_its_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "x"\ndependencies = [\n  "torch==2.6.0",\n  "torchvision==0.20.0",\n]\n')
    run(["check", "local", "pyproject.toml", "--fix"])
    assert load_recipe(path).pip[0].text == "torch==2.6.0"
    assert path.read_text().count('"') == 6


@rows(
    ("extras", "warned"),
    [
        ('a = ["x[b]", "tqdm"]\nb = ["x[a]"]', 1),
        ('a = ["x[a]", "tqdm"]', 1),
        ('a = ["x[b,c]"]\nb = ["x[c]"]\nc = ["tqdm"]', 0),
    ],
)
def test_extras_in_a_circle_are_read_once_with_a_warning(tmp_path: Path, extras: str, warned: int) -> None:
    text = f'[project]\nname = "x"\ndependencies = ["six"]\n[project.optional-dependencies]\n{extras}\n'
    recipe = load(tmp_path, text, extras=("a",))
    assert texts(recipe) == ["six", "tqdm"]
    found = [finding for finding in recipe.warnings if finding.code == "project-extra"]
    assert len(found) == warned
    assert all("in a circle" in finding.message and finding.at and finding.at.line for finding in found)


@rows(
    ("line", "where"),
    [
        ('no-index = "yes"', "no-index"),
        ("no-binary = ['six']", "no-binary"),
        ("no-build = 1", "no-build"),
        ("prerelease = 3", "prerelease"),
        ('index-url = ["https://a.example"]', "index-url"),
        ('index = "https://a.example"', "index"),
        ('extra-index-url = "https://a.example"', "extra-index-url"),
        ("no-binary-package = 3", "no-binary-package"),
        ("find-links = { a = 1 }", "find-links"),
        ('dev-dependencies = "pytest"', "dev-dependencies"),
        ('workspace = "a"', "workspace"),
        ('index = [{ url = 3, name = "a" }]', "index[0].url"),
        ('index = [{ url = "https://a.example", explicit = "yes" }]', "index[0].explicit"),
        ('index = [{ url = "https://a.example", default = 1 }]', "index[0].default"),
        ('sources.six = "git+https://a.example"', "sources.six"),
        ("sources.six = { git = 3 }", "sources.six.git"),
        ('sources.six = { path = ".", editable = "yes" }', "sources.six.editable"),
        ('sources.unused = { index = ["a"] }', "sources.unused.index"),
        ('sources.six = [{ url = "https://a.example", marker = 3 }]', "sources.six[0].marker"),
    ],
)
def test_each_wrong_type_of_uv_is_one_fault_with_its_line(tmp_path: Path, line: str, where: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f'[project]\nname = "x"\ndependencies = ["six"]\n[tool.uv]\n{line}\n')
    found = [(fault.code, fault.at and fault.at.line, fault.at and fault.at.key) for fault in raised.value.findings]
    assert found == [("wrong-type", 5, f"tool.uv.{where}")]


@pytest.mark.parametrize("text", [",".join(f"!=3.{n}.1" for n in range(900)), "===3.12", "===x", ">=3.10 <4", "^3.12"])
def test_what_is_no_range_of_pythons_is_called_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f'[project]\nname = "x"\ndependencies = ["six"]\nrequires-python = "{text}"\n')
    assert [fault.code for fault in raised.value.findings] == ["project-python"]
    assert raised.value.findings[0].fix == "write it as in '>=3.10,<3.14'"
