"""The folder runs in images: old Pythons, torch and the standard library only, no module of ours."""

import ast
import sys
from pathlib import Path

from support.rows import rows

import builder.smoke

FOLDER = Path(builder.smoke.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
ALLOWED = {*sys.stdlib_module_names, "torch"}
NEEDS_TORCH = {"allreduce", "ddp", "pi", "probe", "rendezvous", "training"}


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


@rows("file", FILES, ids=lambda file: file.stem)
def test_is_python_3_8(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert futures or file.name == "__init__.py"


@rows("file", FILES, ids=lambda file: file.stem)
def test_imports_torch_and_the_standard_library_only(file: Path) -> None:
    assert imported(ast.parse(file.read_text())) <= ALLOWED


@rows("file", [file for file in FILES if file.stem not in NEEDS_TORCH], ids=lambda file: file.stem)
def test_is_imported_without_torch(file: Path) -> None:
    at_top = ast.Module(
        body=[node for node in ast.parse(file.read_text()).body if not isinstance(node, ast.FunctionDef)]
    )
    in_classes = [node for node in ast.walk(at_top) if isinstance(node, ast.Import)]
    assert not any(alias.name.split(".")[0] == "torch" for node in in_classes for alias in node.names)


def test_there_are_files() -> None:
    assert len(FILES) > 15
