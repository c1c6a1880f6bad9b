"""An option with an empty value, as of a shell variable that is not set, is refused: it is not left out in silence."""

from __future__ import annotations

import pytest

from builder.cli.main import run

LINES = (
    *(f"check local env.yml {option}=" for option in ("--base", "--backend", "--driver", "--torch-index")),
    *(f"build local env.yml --submit {option}=" for option in ("--partition", "--qos", "--time", "--mem")),
)


@pytest.mark.parametrize("line", LINES)
def test_an_empty_value_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # a command is prepared once
        assert run(line.split()) == 2
        option = line.split()[-1].removesuffix("=")
        said = capsys.readouterr().err
        assert said.startswith(f"error[usage]: the value of '{option}' is empty\n  fix: ")


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_the_size_of_a_cache_is_a_number(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "prune", "--gib", value]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error[usage]: invalid value for '--gib'")
    assert "RECIPE_CACHE_GIB" not in said
