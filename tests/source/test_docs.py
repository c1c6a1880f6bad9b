"""The pages for users, held to the code: their commands parse, their files exist, their tables are complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import click
from support.rows import rows

from builder.cli.init import RECIPES
from builder.cli.main import COMMANDS, run_cli
from builder.compile.backends import BACKENDS
from builder.compile.compile import compile_plan
from builder.model.finding import BuilderError, UnsupportedError
from builder.model.plan import Plan
from builder.model.recipe import Container
from builder.model.site import BaseImage, BuildSettings, Gpu, Job, Launch, Network, Node, Runtime, Scheduler, Site
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import BUNDLED, load_site
from builder.resolve.resolve import resolve

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SITES = sorted(path.stem for path in BUNDLED.glob("*.yaml"))
SITE_PAGES = {path.stem: path for path in (ROOT / "docs" / "sites").glob("*.md")}
INVENTED = {"tiger", "./tiger.yaml", "SITE", "NAME"}  # sites that only the pages know
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SETTING = re.compile(r"\bRECIPE_[A-Z_]*[A-Z]\b")


@dataclass(frozen=True)
class Line:
    """A command line of a page; `shown` in a block, where it must be complete, or inside a sentence."""

    page: str
    text: str
    shown: bool


def command_lines() -> Iterator[Line]:
    """Every line that begins with `recipe`, after a prompt or variables, in blocks and in sentences."""
    for path in PAGES:
        page = path.relative_to(ROOT).as_posix()
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("    "):
                for part in re.split(r"&&|\|\||[|;]", line.strip().removeprefix("$ ")):
                    if _is_ours(part):
                        yield Line(page, part.strip(), True)
            else:
                yield from (Line(page, span, False) for span in SPAN.findall(line) if _is_ours(span))


def _is_ours(text: str) -> bool:
    words = [word for word in text.split() if not ASSIGNMENT.fullmatch(word)]
    return words[:1] == ["recipe"] and len(words) > 1


LINES = list(command_lines())


def test_the_pages_show_every_command() -> None:
    shown = {line.text.split("recipe ", 1)[1].split()[0] for line in LINES}
    assert shown == set(COMMANDS)
    assert len(LINES) > 40


@rows("line", LINES, ids=lambda line: f"{line.page}: {line.text}")
def test_a_command_line_parses(line: Line) -> None:
    text = re.sub(r"\[([A-Z]+)\](?:\.\.\.)?", r"\1", line.text)
    words = [word for word in shlex.split(text, comments=True) if not ASSIGNMENT.fullmatch(word)]
    name, arguments = words[1], words[2:]
    command = run_cli.get_command(click.Context(run_cli), name)
    assert command is not None, f"there is no command '{name}'"
    try:
        found = command.make_context(name, arguments, parent=click.Context(run_cli, **run_cli.context_settings))
    except click.MissingParameter:
        assert not line.shown, "an argument is missing"
        return
    site = found.params.get("site")
    assert site is None or site in {*SITES, *INVENTED}, f"there is no site '{site}'"
    example = found.params.get("example")
    assert example in (None, "EXAMPLE", "site") or [*RECIPES.glob(f"{example}.*")], f"there is no example '{example}'"


@rows("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_named_files_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        assert other.is_file(), target
        headings = re.findall(r"^#+ (.+)$", other.read_text(encoding="utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, target
    for span in SPAN.findall(text):
        for word in re.findall(r"(?<![\w/.-])(?:builder|tests|docs|setup|benchmarks)/[\w./-]*", span):
            if not re.search(r"[A-Z]{2,}|\bX\b", word):
                assert (ROOT / word).exists(), word


def plans_of(site: str) -> list[Plan]:
    """The example's plan, once for each backend of a site that serves it."""
    found = []
    for backend in BACKENDS:
        for example in ("mnist.yml", "pytorch-rocm.yml", "finetune.txt"):
            recipe = load_recipe(RECIPES / example)
            try:
                target = resolve(recipe, load_site(site), context=Context(backend=backend, tool="recipe"))
                found.append(compile_plan(target))
            except UnsupportedError:
                continue
    return found


def test_every_site_has_a_page() -> None:
    """`test_the_index_has_every_page` holds that the index links it."""
    assert sorted(SITE_PAGES) == SITES


@rows("site", SITES)
def test_a_page_names_what_its_site_has(site: str) -> None:
    text = SITE_PAGES[site].read_text(encoding="utf-8")
    loaded, plans = load_site(site), plans_of(site)
    files = {file.path for plan in plans for file in plan.files}
    assert {plan.backend for plan in plans} == set(loaded.build.backends)
    scripts = set(re.findall(r"(?<![\w<-])(?:run/[a-z]+\.(?:sh|sbatch)|[1-9]-[a-z-]+\.(?:sh|sbatch))\b", text))
    assert scripts
    assert scripts <= files
    for backend in loaded.build.backends:
        assert f"`{backend}`" in text
    if loaded.gpu is not None and loaded.gpu.driver is not None:
        assert loaded.gpu.driver.split("-")[0] in text, "the driver has changed"
        assert str(loaded.gpu.driver_checked) in text, "the driver was seen on another day"
    for form in (loaded.scheduler.account_form,):
        assert form in text
    assert site == "local" or "**Nothing on this page was run" in text


def test_documented_variables_are_those_that_are_read() -> None:
    code = {
        name
        for path in (ROOT / "builder").rglob("*")
        if path.suffix in (".py", ".sh", ".j2")
        for name in SETTING.findall(path.read_text(encoding="utf-8"))
    }
    table = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert set(SETTING.findall(table)) == code
    for path in PAGES:
        named = set(SETTING.findall(path.read_text(encoding="utf-8")))
        assert {name for name in named if not name.startswith("RECIPE_TEST_")} <= code, path  # those are the tests' own


def test_the_command_table_is_complete() -> None:
    table = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `recipe ([a-z]+)", table, re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


def test_the_readme_is_a_page() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80
    assert "The licence and the authors of this project are not chosen yet." in lines


def test_the_index_has_every_page() -> None:
    index, nav = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/README.md", "mkdocs.yml"))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT / "docs").as_posix()
        if path.parent.name == "checks" and path.stem != "README":
            continue
        assert f": {page}\n" in nav
        assert page == "README.md" or f"({page}" in index, page


def test_each_page_of_a_site_names_a_python_for_recipe() -> None:
    assert all("\n## A Python for recipe\n" in path.read_text(encoding="utf-8") for path in SITE_PAGES.values())


def test_the_glossary_is_sorted_and_has_each_word_once() -> None:
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [row.partition(",")[0] for row in re.findall(r"^\| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)[2:]]
    assert len(words) > 40
    assert words == sorted({*words}, key=str.lower)


def test_the_exit_codes_are_those_of_the_errors() -> None:
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    raised = {BuilderError.exit_code, *(error.exit_code for error in BuilderError.__subclasses__())}
    assert listed == {0, 130, 143, *raised}


def test_the_container_section_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in rows if name.islower()] == [field.name for field in fields(Container)]


def test_the_container_example_is_a_recipe(tmp_path: Path) -> None:
    section = _fenced(ROOT / "docs" / "recipes.md")
    (tmp_path / "src").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").touch()
    file = tmp_path / "environment.yml"
    file.write_text(f"dependencies: [pytorch]\n{section}", encoding="utf-8")
    container = load_recipe(file).container
    assert all(getattr(container, field.name) for field in fields(Container))


def test_every_key_of_a_site_is_explained() -> None:
    text = (ROOT / "docs" / "own-site.md").read_text(encoding="utf-8")
    table = text[text.index("## Keys") :]
    named = set(re.findall(r"\w+", " ".join(SPAN.findall(table)) + " " + " ".join(re.findall(r"\*\*(\w+)\*\*", table))))
    for kind in (Site, Node, Gpu, Network, Scheduler, Job, Runtime, BaseImage, BuildSettings, Launch):
        assert is_dataclass(kind)
        for field in fields(kind):
            assert field.name in named, f"{kind.__name__}.{field.name}"
    for name in ("launcher", "command"):
        kind = Launch if name == "launcher" else Runtime
        assert set(get_args(get_type_hints(kind)[name])) <= set(re.findall(r"[\w-]+", table))


def test_the_example_of_a_site_makes_plans(tmp_path: Path) -> None:
    (tmp_path / "tiger.yaml").write_text(_fenced(ROOT / "docs" / "own-site.md"), encoding="utf-8")
    site = load_site("tiger", folder=tmp_path)
    plan = compile_plan(resolve(load_recipe(RECIPES / "mnist.yml"), site, context=Context(tool="recipe")))
    assert plan.expect["torch"].endswith("+cu128")
    assert "run/node.sbatch" in {file.path for file in plan.files}


def _fenced(path: Path) -> str:
    found = re.search(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]
