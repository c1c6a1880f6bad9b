"""Read a table of GPU facts.

In each row `source` names entries of the table's `sources`, which have their dates, and `unsure` the fields that were
seen second-hand or inferred. Versions are text, as the publishers write them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from builder.model.decode import Decoder
from builder.model.document import parse_yaml, read_text
from builder.model.finding import ConfigError, Finding, Place

TABLES = Path(__file__).parents[2] / "data" / "gpu"

T = TypeVar("T")


def load(name: str, kind: type[T]) -> T:
    """Read one table; raises ConfigError with every fault of the file."""
    file = str(TABLES / name)
    tree = parse_yaml(read_text(TABLES / name, what="table of GPU facts"), file=file)
    if tree is None:
        fault = Finding(
            code="table-empty", message=f"the table '{name}' is empty", at=Place(file=file), fix="reinstall"
        )
        raise ConfigError(fault)
    decoder = Decoder(file=file)
    table = decoder.table(tree, kind, key="")
    if table is None or decoder.findings:
        raise ConfigError(*decoder.findings)
    return table
