"""The folder travels with plans: Python 3.10 and the standard library, run by hand."""

import ast
import sys
from pathlib import Path

import pytest
from support.rows import rows

import builder.layers

FOLDER = Path(builder.layers.__file__).parent
FILES = sorted(FOLDER.rglob("*.py")) + sorted((FOLDER.parent / "sif").rglob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


@rows("file", FILES, ids=lambda file: str(file.relative_to(FOLDER.parent)))
def test_is_python_3_10_and_the_standard_library(file: Path) -> None:
    # py-rattler is asked for when a recipe has conda packages, in a process of its own.
    more = {"rattler"} if file.name == "conda_worker.py" else set()
    found = imported(ast.parse(file.read_text(), feature_version=(3, 10)))
    assert found - set(sys.stdlib_module_names) == more


def test_what_compiles_runs_on_the_pythons_of_old_images() -> None:
    text = (FOLDER / "bytecode_worker.py").read_text()
    tree = ast.parse(text, feature_version=(3, 7))  # SyntaxError: what is newer
    assert imported(tree) <= {"__future__", "gc", "importlib", "marshal", "os", "sys", "warnings"}
    with pytest.raises(SyntaxError):
        ast.parse("if (found := 1): pass", feature_version=(3, 7))
