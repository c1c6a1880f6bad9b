"""The shares of false accepts and false refusals on the labelled recipes stay below the goals."""

from __future__ import annotations

import pytest

from verdicts.measure import SITES, Result, Row, measure, read_rows, write_recipe

ACCEPTED, REFUSED = 0.02, 0.005  # of the judged cells


@pytest.fixture(scope="module")
def result() -> Result:
    return measure(read_rows())


@pytest.mark.property
def test_few_recipes_are_judged_wrongly(result: Result) -> None:
    table = "\n".join([*result.wrong, *result.list_lines()])
    total = result.judged.total()
    assert total >= 1500
    assert result.accepted.total() <= ACCEPTED * total, table
    assert result.refused.total() <= REFUSED * total, table


def test_each_label_is_whole() -> None:
    rows = read_rows()
    assert len(rows) >= 400
    assert len({row.recipe for row in rows}) == len(rows)
    assert all(len(row.cells) == len(SITES) and {*row.cells} <= {*"+wx?"} and row.evidence for row in rows)
    assert 0.25 < sum(row.held for row in rows) / len(rows) < 0.42


def test_a_wrong_label_is_counted(tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [
        Row(kind="planted", recipe="torch==2.8.0", cells="x", evidence="planted"),
        Row(kind="planted", recipe="torch==99", cells="+", evidence="planted"),
        Row(kind="planted", recipe="torch==2.8.0+cpu", cells="w", evidence="planted"),
        Row(kind="planted", recipe="torch==2.7.0", cells="?", evidence="planted"),
    ]
    found = measure(rows, sites=("local",))
    counts = (found.judged, found.accepted, found.refused, found.silent)
    assert [one["planted"] for one in counts] == [3, 1, 1, 1]
    path = write_recipe(tmp_path_factory.mktemp("x"), "conda python=3.10 numpy pip:torch==2.8.0")
    assert path.read_text(encoding="utf-8").endswith("  - numpy\n  - pip:\n    - torch==2.8.0\n")
