"""Every code that resolve and compile can give has a page, and the example of every page is what really happens."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.code_source import source_codes
from support.own_code import PACKAGE, files, nodes_of
from support.rows import rows

from builder.cli.check_formats import list_codes
from builder.cli.check_formats import read_page as rule_page
from builder.cli.explain import CLASSES, list_classed_codes
from builder.cli.output import format_finding
from builder.compile.compile import compile_plan
from builder.model.finding import BuilderError, Finding
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "checks"
NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")
FILE = re.compile(r"^`(?P<name>[\w.-]+)`:\n\n```(?:yaml|text)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"^```console\n\$ recipe check (?P<words>[^\n]+)\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL)

# The site's file is refused before, or a check does not know how the image is run: see the pages. What is said of a
# lock needs one: tests/unit/test_lock.py. What is said of the environment needs that: tests/unit/test_checks.py. What
# is said of a closure needs an index: tests/engines/test_closure.py.
WITHOUT_EXAMPLE = {
    "apptainer-rootless", "client-digest", "index-login", "launch-nested", "launch-shape", "launch-torchrun",
    "layers-runtime", "local-gpu", "lock-missing", "lock-stale", "not-looked-up", "torch-brought", "tykky-path",
}  # fmt: skip

# Modules that read recipe files; what else is parsed has no pages.
READING = {
    "matchspec",
    "container",
    "environment_yml",
    "other_formats",
    "recipe",
    "requirement",
    "requirements_txt",
    "copied_files",
    "written_secrets",
}


def codes() -> set[str]:
    """Every code in the source; a backend's name stands for itself and for every key that it cannot serve."""
    found: set[str] = set()
    for folder in ("resolve", "compile", "parse"):
        for path in files():
            if PACKAGE / folder not in path.parents or (folder == "parse" and path.stem not in READING):
                continue
            for node in nodes_of(path):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                    code = next(word.value for word in node.keywords if word.arg == "code")
                    found |= {code.value} if isinstance(code, ast.Constant) else set()
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                    "check_unsupported_keys",
                    "check_constraints",
                ):
                    found |= set(_unserved(node))
    return found


def _unserved(call: ast.Call) -> Iterator[str]:
    words = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg in ("keys", "backend")}
    for key in words.get("keys", ("constraints",)):
        yield f"{words['backend']}-{key}"


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page in its parts."""

    level: str
    files: dict[str, str]
    words: tuple[str, ...]
    shown: str


def page_of(code: str) -> Page:
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {code}\n"), code
    level = re.search(r"Level: (error|warning|note)\.$", text, re.MULTILINE)
    assert level, code
    call = CALL.search(text)
    files = {match["name"]: match["text"] for match in FILE.finditer(text)}
    words = tuple(shlex.split(call["words"])) if call else ()
    return Page(level=level[1], files=files, words=words, shown=call["shown"] if call else "")


def findings_of(page: Page) -> tuple[Finding, ...]:
    """What the page's command finds; its files lie in the current folder."""
    words = list(page.words)
    options = {}
    while words[0].startswith("--"):
        name, value, *words = words
        options[name.removeprefix("--")] = value
    site, env = words
    try:
        return compile_plan(resolve(load_recipe(Path(env)), load_site(site), context=Context(**options))).findings
    except BuilderError as error:
        return error.findings


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert set(NAMES) == codes()


def test_the_list_has_every_page_under_its_level() -> None:
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (Errors|Warnings|Notes)$", text, flags=re.MULTILINE)[1:]
    for title, part in zip(parts[::2], parts[1::2], strict=True):
        listed = re.findall(r"^\| \[([a-z-]+)\]\(\1\.md\) \| [^|]+ \|$", part, re.MULTILINE)
        assert listed == [code for code in NAMES if f"{page_of(code).level.title()}s" == title]


@rows("code", [code for code in NAMES if code not in WITHOUT_EXAMPLE])
def test_the_example_is_what_happens(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of(code)
    assert page.files, code
    monkeypatch.chdir(tmp_path)
    for name, text in page.files.items():
        Path(name).write_text(text, encoding="utf-8")
    for folder_or_file in ("mypackage", "notes.txt"):  # what recipes of pages name beside themselves
        if any(folder_or_file in text for text in page.files.values()):
            Path(folder_or_file).mkdir()
            (Path(folder_or_file) / "pyproject.toml").touch()
    found = [finding for finding in findings_of(page) if finding.code == code]
    assert page.shown == "".join(f"{line}\n" for finding in found for line in format_finding(finding, codes=True))
    assert found
    assert found[0].level == page.level


def test_the_addresses_of_machine_output_are_pages() -> None:
    """SARIF's rules carry the pages, and `--ignore` knows their names."""
    assert list_codes() == tuple(NAMES)
    assert all(rule_page(code).startswith(f"# {code}\n") for code in NAMES)


def test_every_code_of_the_source_has_a_page_or_a_class() -> None:
    assert set(list_classed_codes()) == source_codes() - set(list_codes())
    assert set(list_codes()) <= source_codes()
    assert len(list_classed_codes()) == len(set(list_classed_codes()))


def test_the_page_of_all_codes_has_the_classes() -> None:
    page = (PAGES / "README.md").read_text(encoding="utf-8").partition("## Codes without a page")[2]
    assert sorted(re.findall(r"`([a-z0-9][a-z0-9-]*)`", page)) == sorted(list_classed_codes())
    assert [one.text for one in CLASSES if one.text not in " ".join(page.split())] == []
