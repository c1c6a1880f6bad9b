"""The floors of the house: imports point one way, each library has one door, files and functions fit a screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "builder"
FLOORS = ("model", "resolve", "compile", "execute", "cli")  # each imports itself and what stands before it
# `smoke` runs inside images: tests/unit/smoke holds it to the standard library. `data` is no package.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] in FLOORS)
ONE_DOOR = {
    "subprocess": "execute/process.py",
    "yaml": "model/document.py",
    "jinja2": "compile/render.py",
}
# The verdict on a workload's numbers is passed in the image and here, by one and the same code.
# The cache is the program's that travels with plans: shown and checked here by its own code.
# So is what knows the format of a SIF, and how uv is told of packages that are there.
ACROSS = {
    ("execute/judgement.py", "builder.smoke.verdict"),
    ("execute/cache.py", "builder.layering.store"),
    ("execute/contents/sif.py", "builder.layering.image.placed"),
    ("execute/contents/sif.py", "builder.layering.image.sif"),
    ("execute/contents/trees.py", "builder.layering.squash.listing"),
    ("execute/comparing/squashfs.py", "builder.layering.squash.listing"),
    ("execute/digest.py", "builder.layering.digest"),
    ("execute/locking/pip.py", "builder.layering.wheels.stubs"),
}
CLICK = "cli"  # the only floor that knows the command line
IMPURE = {
    "asyncio", "datetime", "getpass", "multiprocessing", "os", "platform", "random", "secrets", "select", "shutil",
    "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
VAGUE = {"base_utils", "common", "helper", "helpers", "manager", "misc", "tools", "util", "utils"}


def name_of(path: Path) -> str:
    """builder/model/plan.py is builder.model.plan."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, *, lazy: bool = True) -> tuple[tuple[str, int], ...]:
    """Every module that a file imports, with the line; without `lazy` only what is imported with the file itself."""
    return tuple(_imports(path, lazy=lazy))


def _imports(path: Path, *, lazy: bool) -> Iterator[tuple[str, int]]:
    nodes: list[ast.AST] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield node.module or "", node.lineno
            # `from builder.compile.backends import docker` imports a module.
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif lazy or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            nodes += list(ast.iter_child_nodes(node))


MODULES = {name_of(path): path for path in FILES}


def ids(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_imports_point_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0]
    allowed = FLOORS[: FLOORS.index(own) + 1]
    for module, line in imports(path):
        parts = module.split(".")
        if any(module.startswith(other) and ids(path) == file for file, other in ACROSS):
            continue
        if parts[0] == "builder" and len(parts) > 1 and parts[1] != "__version__":
            assert parts[1] in allowed, f"{ids(path)}:{line}: {own} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_libraries_have_one_door(path: Path) -> None:
    for module, line in imports(path):
        door = ONE_DOOR.get(module.split(".")[0])
        assert door in (None, ids(path)), f"{ids(path)}:{line}: {module} is imported in {door} alone"
        if module.split(".")[0] == "click":
            assert ids(path).startswith(CLICK), f"{ids(path)}:{line}"


def test_every_door_is_used() -> None:
    for library, door in ONE_DOOR.items():
        assert library in {module for module, _ in imports(PACKAGE / door)}


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.relative_to(PACKAGE).parts[0] in ("resolve", "compile")], ids=ids
)
def test_resolve_and_compile_know_nothing_of_the_machine(path: Path) -> None:
    """Same inputs, same bytes: no clock, no environment, no network, no process; only the bundled tables are read."""
    found = {module.split(".")[0] for module, _ in imports(path) if not module.startswith("urllib.parse")}
    assert not found & IMPURE
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "eval", "exec", "__import__"}


def test_the_model_reads_files_and_no_settings() -> None:
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] == "model":
            text = path.read_text(encoding="utf-8")
            assert "environ[" not in text, ids(path)
            assert "getenv" not in text, ids(path)
            assert not {module.split(".")[0] for module, _ in imports(path)} & (IMPURE - {"urllib"}), ids(path)


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        name: {module for module, _ in imports(path, lazy=False) if module in MODULES and module != name}
        for name, path in MODULES.items()
    }
    assert len(tuple(TopologicalSorter(graph).static_order())) == len(MODULES)


def test_names_say_what_is_in_them() -> None:
    assert not [ids(path) for path in FILES if path.stem in VAGUE or path.parent.name in VAGUE]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=ids)
def test_files_and_functions_fit_a_screen(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_public_things_are_described(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.name != "__init__.py":
        assert ast.get_docstring(tree), ids(path)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{ids(path)}:{node.lineno}: {node.name}"


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_nothing_prints_but_the_command_line(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] == "cli":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{ids(path)}:{node.lineno}"


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by their names alone; `make unit` would not see it, which leaves out the engines."""
    names = [path.name for path in Path(__file__).resolve().parents[1].rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
