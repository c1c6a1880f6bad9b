"""The floors of the house: imports point one way, each library has one door, files and functions fit a screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.own_code import FLOORS, PACKAGE, files, nodes_of, text_of, tree_of

# What travels in plan folders and runs without the rest of us: of the house it imports itself and this.
TRAVELS = {"sif": ("sif",), "audit": ("audit", "sif"), "layers": ("layers", "audit", "sif"), "smoke": ("smoke",)}
EVERY = [path for path in files() if path.relative_to(PACKAGE).parts[0] in FLOORS]
FILES = [path for path in EVERY if path.relative_to(PACKAGE).parts[0] not in TRAVELS]  # `data` is no package
ONE_DOOR = {
    "subprocess": "system/process.py",
    "yaml": "parse/yaml.py",
    "jinja2": "compile/render.py",
    "docker": "execute/docker_daemon.py",  # the daemon
}
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
def imports(path: Path, *, lazy: bool = True) -> tuple[tuple[str, int], ...]:
    """Every module that a file imports, with the line; without `lazy` only what is imported with the file itself."""
    return tuple(_imports(path, lazy=lazy))


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Every function that a file calls by its bare name, with the line."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno


def _imports(path: Path, *, lazy: bool) -> Iterator[tuple[str, int]]:
    nodes: list[ast.AST] = list(tree_of(path).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _module_of(node, path)
            yield module, node.lineno
            # `from builder.compile.backends import docker` imports a module.
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
        elif lazy or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            nodes += list(ast.iter_child_nodes(node))


def _module_of(node: ast.ImportFrom, path: Path) -> str:
    """The whole name of a module that is imported from; only what travels imports by relative names."""
    if node.level == 0:
        return node.module or ""
    parts = path.relative_to(PACKAGE.parent).parts
    assert parts[1] in TRAVELS, f"{path}:{node.lineno}: a relative import"
    return ".".join([*parts[: len(parts) - node.level], *([node.module] if node.module else [])])


MODULES = {name_of(path): path for path in EVERY}


def ids(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_imports_point_one_way() -> None:
    faults = []
    for path in EVERY:
        own = path.relative_to(PACKAGE).parts[0]
        allowed = TRAVELS.get(own, FLOORS[: FLOORS.index(own) + 1])
        for module, line in imports(path):
            parts = module.split(".")
            above = parts[0] == "builder" and len(parts) > 1 and parts[1] not in ("__version__", *allowed)
            if above:
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
        if path.relative_to(PACKAGE).parts[0] in ("model", "parse"):
            text = text_of(path)
            assert "environ[" not in text, ids(path)
            assert "getenv" not in text, ids(path)
            assert not {module.split(".")[0] for module, _ in imports(path)} & (IMPURE - {"urllib"}), ids(path)


def test_no_module_imports_itself_in_a_circle() -> None:
    assert circles({name: modules_of(path) for name, path in MODULES.items()}) == set()


def test_no_package_imports_itself_in_a_circle() -> None:
    graph: dict[str, set[str]] = {floor: set() for floor in FLOORS}
    for path in EVERY:
        for module in modules_of(path):
            if module.count("."):
                graph[path.relative_to(PACKAGE).parts[0]].add(module.split(".")[1])
    assert circles(graph) == set()


def modules_of(path: Path) -> set[str]:
    """Modules of ours that a file imports, also inside of its functions."""
    return {module for module, _ in imports(path) if module in MODULES} - {name_of(path)}


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of things each of which leads to every other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, left = set[str](), list(graph[start])
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                left += graph.get(one, ())
        reached[start] = seen
    rings = (frozenset(two for two in graph if two in reached[one] and one in reached[two]) for one in graph)
    return {ring for ring in rings if len(ring) > 1}


def test_names_say_what_is_in_them() -> None:
    assert not [ids(path) for path in FILES if path.stem in VAGUE or path.parent.name in VAGUE]


def test_a_module_has_a_name_of_its_own() -> None:
    """A command of cli/ and the reader of a model in parse/ may have the name of what they serve."""
    places: dict[str, set[str]] = {}
    for path in EVERY:
        room = path.parent.relative_to(PACKAGE).as_posix()
        pair = room == "parse" and (PACKAGE / "model" / path.name).is_file()
        if not path.stem.startswith("__") and room != "cli" and not pair:
            places.setdefault(path.stem, set()).add(room)
    same = {name: " ".join(sorted(rooms)) for name, rooms in places.items() if len(rooms) > 1}
    assert same == {}


def test_files_and_functions_fit_a_screen() -> None:
    faults = []
    for path in files():
        if (length := len(text_of(path).splitlines())) > 400:
            faults.append(f"{ids(path)} has {length} lines")
        for node in nodes_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (length := lines_of(node)) > 40:
                faults.append(f"{ids(path)}:{node.lineno}: {node.name} has {length} lines")
    assert faults == []


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its docstring."""
    own = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    return own if ast.get_docstring(node) is None else own - ((first.end_lineno or 0) - first.lineno + 1)


def test_modules_classes_and_long_functions_are_described() -> None:
    """A short function needs no sentence that repeats its name."""
    faults = []
    for path in FILES:
        tree = tree_of(path)
        if path.name != "__init__.py" and not ast.get_docstring(tree):
            faults.append(ids(path))
        for node in tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
                continue
            short = isinstance(node, ast.FunctionDef) and (node.end_lineno or node.lineno) - node.lineno < 25
            if not short and not ast.get_docstring(node):
                faults.append(f"{ids(path)}:{node.lineno}: {node.name}")
    assert faults == []


def test_nothing_prints_but_the_command_line() -> None:
    files = [path for path in FILES if path.relative_to(PACKAGE).parts[0] != "cli"]
    assert [f"{ids(path)}:{line}" for path in files for name, line in calls(path) if name == "print"] == []


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by their names alone; `make unit` would not see it, which looks at no other folder."""
    names = [path.name for path in Path(__file__).resolve().parents[1].rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
