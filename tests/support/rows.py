"""Tables as one test: a test of its own for each of thousands of short rows costs more than what it tests."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

MOST = 20  # failing rows that are shown whole


def rows(
    names: str | Sequence[str], table: Iterable[Any], *, ids: Iterable[str] | Callable[[Any], Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, in one test that tries every row and names those that fail.

    Each row has a `tmp_path` and a `monkeypatch` of its own and its own output in `capsys`; fixtures that are made
    for a test are shared by the rows.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    lines = [tuple(row) if len(keys) > 1 else (row,) for row in table]
    labels = [ids(line[0]) for line in lines] if callable(ids) else list(ids) if ids is not None else lines
    assert lines, "a table without rows tests nothing"
    assert len(labels) == len(lines)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def whole(**fixtures: Any) -> None:
            faults = []
            for number, (label, line) in enumerate(zip(labels, lines, strict=True)):
                try:
                    _one(test, number, fixtures, dict(zip(keys, line, strict=True)))
                except (Exception, pytest.fail.Exception, pytest.skip.Exception):  # a row that skips is no row
                    faults.append(f"row {number}, {label}:\n{traceback.format_exc()}")
            if faults:
                left = f"\n{len(faults) - MOST} more rows fail" if len(faults) > MOST else ""
                first = f"{len(faults)} of {len(lines)} rows fail\n"
                pytest.fail(first + "\n".join(faults[:MOST]) + left, pytrace=False)

        signature = inspect.signature(test)
        own = [value for name, value in signature.parameters.items() if name not in keys]
        whole.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return whole

    return decorate


def _one(test: Callable[..., None], number: int, fixtures: dict[str, Any], row: dict[str, Any]) -> None:
    mine = dict(fixtures)
    if isinstance(mine.get("tmp_path"), Path):
        mine["tmp_path"] = mine["tmp_path"] / f"row-{number}"
        mine["tmp_path"].mkdir()
    if "capsys" in mine:
        mine["capsys"].readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in mine:
            mine["monkeypatch"] = patch
        test(**mine, **row)
