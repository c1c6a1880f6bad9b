"""Values of a recipe stand where they are data alone, and what becomes a name is refused when it is read.

That bash obeys none of them: tests/commands/test_script_injection.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import hostile
from support.matrix import target_plan

from builder.model.finding import ConfigError
from builder.model.recipe import Container
from builder.parse.recipe import load_recipe


def test_nothing_of_a_recipe_is_in_a_dockerfile_but_plain_values(tmp_path: Path) -> None:
    """Values stand in ENV lines, when they hold no character that Docker or Apptainer would read."""
    path = hostile.write(tmp_path, hostile.document())
    recipe = load_recipe(path, shown="hostile.yml")
    bare = replace(recipe, variables={}, container=replace(recipe.container, env={}))
    hostile_lines, bare_lines = (
        next(file.text for file in target_plan(one, site="local", backend="docker").files if file.path == "Dockerfile")
        for one in (recipe, bare)
    )
    added = [line for line in hostile_lines.splitlines() if line not in bare_lines.splitlines()]
    assert added
    assert all(re.fullmatch(r'ENV [VW][0-9]*="[A-Za-z0-9_./:,@%+= -]*"', line) for line in added)
    assert [line for line in hostile_lines.splitlines() if line not in added] == bare_lines.splitlines()


@pytest.mark.parametrize("site", ["local", "dawn", "frontier"])
def test_nothing_of_a_recipe_is_in_a_definition_file(site: str, tmp_path: Path) -> None:
    path = hostile.write(tmp_path, hostile.document())
    recipe = load_recipe(path, shown="hostile.yml")
    plain = replace(recipe, name="plain", variables={}, pip=(), container=Container(run=("true",)))
    texts = [
        next(file.text for file in target_plan(one, site=site, backend="apptainer").files if file.path.endswith(".def"))
        for one in (recipe, plain)
    ]
    assert texts[0] == texts[1]


def with_value(place: str, value: str) -> dict[str, Any]:
    """A small recipe with a value in a place."""
    small: dict[str, Any] = {"name": "x", "dependencies": ["numpy"], "container": {}}
    name, _, rest = place.partition(".")
    if place == "dependency":
        small["dependencies"] = [value]
    elif place == "version":
        small["dependencies"] = [f"numpy={value}"]
    elif place == "pip":
        small["dependencies"] = [{"pip": [value]}]
    elif place == "pip version":
        small["dependencies"] = [{"pip": [f"numpy=={value}"]}]
    elif place == "option":
        small["dependencies"] = ["numpy", {"pip": [f"--extra-index-url {value}", "six"]}]
    elif place == "channel":
        small["channels"] = [value]
    elif place == "variable name":
        small["variables"] = {value: "1"}
    elif name == "container":
        key, _, kind = rest.partition(" ")
        small["container"][key] = {value: "1"} if kind == "key" else [value] if kind == "item" else value
    else:
        small[name] = value
    return small


PLACES = (
    "name", "dependency", "version", "pip", "pip version", "option", "channel", "variable name", "container.env key",
    "container.labels key", "container.system item", "container.base", "container.python", "container.gpu item",
)  # fmt: skip


@pytest.mark.property
@pytest.mark.parametrize("place", PLACES)
def test_what_becomes_a_name_is_refused_when_it_is_read(place: str, tmp_path: Path) -> None:
    """Shell, Jinja and definition-file characters never get as far as the compiler where a name is meant."""
    for payload in hostile.PAYLOADS:
        if "touch" not in payload and "{" not in payload and "%" not in payload:
            continue
        path = tmp_path / "environment.yml"
        path.write_text(yaml.safe_dump(with_value(place, payload)), encoding="utf-8")
        try:
            load_recipe(path)
        except ConfigError:
            continue
        pytest.fail(f"{place}: {payload!r} was accepted")
