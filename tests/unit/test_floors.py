"""The floors of the house: imports point one way, each library has one door, files and functions fit a screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "builder"
FLOORS = ("model", "resolve", "compile", "execute", "pipeline", "cli")  # each imports itself and what stands before it
# `smoke` runs inside images: tests/unit/smoke holds it to the standard library. `data` is no package.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] in FLOORS)
ONE_DOOR = {
    "subprocess": "execute/process.py",
    "yaml": "model/document.py",
    "jinja2": "compile/render.py",
    "docker": "execute/locking/registry.py execute/doctor_docker.py",  # logins; the daemon
}
# The verdict on a workload's numbers is passed in the image and here, by one and the same code.
# The cache is the program's that travels with plans: shown and checked here by its own code.
# So is what knows the format of a SIF, how uv is told of packages that are there, what speaks to registries, and whose
# a folder is.
ACROSS = {
    ("execute/judgement.py", "builder.smoke.verdict"),
    *(
        ("execute/cache.py", f"builder.layering.{name}")
        for name in ("cache", "failure", "locks", "private", "shared", "store")
    ),
    ("execute/doctor.py", "builder.layering.failure"),
    ("execute/doctor.py", "builder.layering.programs"),
    ("execute/doctor_network.py", "builder.layering.bases.reference"),
    ("execute/doctor_places.py", "builder.layering.cache"),
    ("execute/doctor_places.py", "builder.layering.failure"),
    ("execute/locking/provided.py", "builder.layering.wheels.stubs"),
    ("execute/locking/uv.py", "builder.layering.failure"),
    ("execute/contents/sif.py", "builder.layering.image.placed"),
    ("execute/contents/sif.py", "builder.layering.image.sif"),
    ("execute/contents/image.py", "builder.layering.image.archive"),
    ("execute/contents/trees.py", "builder.layering.image.archive"),
    ("execute/contents/trees.py", "builder.layering.squash.listing"),
    ("execute/comparing/squashfs.py", "builder.layering.squash.listing"),
    ("execute/digest.py", "builder.layering.digest"),
    ("execute/fetch.py", "builder.layering.offline"),
    ("execute/folder.py", "builder.layering.marks"),
    ("execute/locking/pip.py", "builder.layering.wheels.stubs"),
    ("execute/locking/registry.py", "builder.layering.bases"),
    ("compile/content.py", "builder.layering.bases.reference"),
    ("execute/scratch.py", "builder.layering.private"),
}
# What a stranger may have written is read within the same bounds, and files below folders of somebody else are worked
# on, by the program that travels and on every floor. One uv is used by all.
ANYWHERE = ("builder.layering.uv", "builder.layering.bounded", "builder.layering.tree", "builder.layering.copies")
CLICK = "cli"  # the only floor that knows the command line
IMPURE = {
    "asyncio", "datetime", "getpass", "multiprocessing", "os", "platform", "random", "secrets", "select", "shutil",
    "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
REACHING = {"open", "print", "input", "eval", "exec", "__import__"}
VAGUE = {"base_utils", "common", "helper", "helpers", "manager", "misc", "tools", "util", "utils"}


def name_of(path: Path) -> str:
    """builder/model/plan.py is builder.model.plan."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, *, lazy: bool = True) -> tuple[tuple[str, int], ...]:
    """Every module that a file imports, with the line; without `lazy` only what is imported with the file itself."""
    return tuple(_imports(path, lazy=lazy))


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Every function that a file calls by its bare name, with the line."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno


def _imports(path: Path, *, lazy: bool) -> Iterator[tuple[str, int]]:
    nodes: list[ast.AST] = list(tree_of(path).body)
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


def test_imports_point_one_way() -> None:
    faults = []
    for path in FILES:
        own = path.relative_to(PACKAGE).parts[0]
        allowed = FLOORS[: FLOORS.index(own) + 1]
        for module, line in imports(path):
            parts = module.split(".")
            if module.startswith(ANYWHERE) or module == "builder.layering":
                continue
            if any(module.startswith(other) and ids(path) == file for file, other in ACROSS):
                continue
            if parts[0] == "builder" and len(parts) > 1 and parts[1] not in ("__version__", *allowed):
                faults.append(f"{ids(path)}:{line}: {own} imports {module}")
    assert faults == []


def test_libraries_have_one_door() -> None:
    faults = []
    for path in FILES:
        for module, line in imports(path):
            library = module.split(".")[0]
            if ids(path) not in ONE_DOOR.get(library, ids(path)).split():
                faults.append(f"{ids(path)}:{line}: {module} is imported in {ONE_DOOR[library]} alone")
            if library == "click" and not ids(path).startswith(CLICK):
                faults.append(f"{ids(path)}:{line}: {module}")
    assert faults == []


def test_every_door_is_used() -> None:
    for library, door in [(library, one) for library, doors in ONE_DOOR.items() for one in doors.split()]:
        assert library in {module for module, _ in imports(PACKAGE / door)}


def test_resolve_and_compile_know_nothing_of_the_machine() -> None:
    """Same inputs, same bytes: no clock, no environment, no network, no process; only the bundled tables are read."""
    faults = []
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] not in ("resolve", "compile"):
            continue
        used = [(module.split(".")[0], line) for module, line in imports(path) if not module.startswith("urllib.parse")]
        used = [(name, line) for name, line in used if name in IMPURE]
        used += [(name, line) for name, line in calls(path) if name in REACHING]
        faults += [f"{ids(path)}:{line}: {name}" for name, line in used]
    assert faults == []


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


def test_files_and_functions_fit_a_screen() -> None:
    faults = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if (length := len(path.read_text(encoding="utf-8").splitlines())) > 400:
            faults.append(f"{ids(path)} has {length} lines")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 60:
                    faults.append(f"{ids(path)}:{node.lineno}: {node.name} has {length} lines")
    assert faults == []


def test_public_things_are_described() -> None:
    faults = []
    for path in FILES:
        tree = tree_of(path)
        if path.name != "__init__.py" and not ast.get_docstring(tree):
            faults.append(ids(path))
        for node in tree.body:
            public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                faults.append(f"{ids(path)}:{node.lineno}: {node.name}")
    assert faults == []


def test_nothing_prints_but_the_command_line() -> None:
    files = [path for path in FILES if path.relative_to(PACKAGE).parts[0] != "cli"]
    assert [f"{ids(path)}:{line}" for path in files for name, line in calls(path) if name == "print"] == []


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by their names alone; `make unit` would not see it, which looks at no other folder."""
    names = [path.name for path in Path(__file__).resolve().parents[1].rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
