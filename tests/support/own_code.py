"""The source of our own package: each file is read and parsed once for all tests that look at it."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "builder"
# Each imports itself and what stands before it, wherever in a file the import is.
FLOORS = (
    "sif", "audit", "layers", "smoke", "model", "parse", "system", "resolve", "compile", "inspect", "report", "lock",
    "execute", "slurm", "pipeline", "cli",
)  # fmt: skip


@cache
def files() -> tuple[Path, ...]:
    """Every Python file of the package, also the templates and what runs inside images."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, as `ast.walk` yields them."""
    return tuple(ast.walk(tree_of(path)))


@cache
def comments_of(path: Path) -> tuple[str, ...]:
    tokens = tokenize.generate_tokens(io.StringIO(text_of(path)).readline)
    return tuple(token.string for token in tokens if token.type == tokenize.COMMENT)
