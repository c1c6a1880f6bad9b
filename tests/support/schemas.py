"""Write the JSON Schemas in builder/data/schema: `PYTHONPATH=tests python -m support.schemas`.

Types, required keys and choices are read from the dataclasses that decode the files, the text of a key from the comment
after its field, and patterns from the rules of the parsers. What an editor shows as wrong, `recipe` refuses, too.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import msgspec

from builder.model.config import Config
from builder.model.recipe import Container
from builder.model.site import Purpose, Site
from builder.model.text import PATH, VARIABLE
from builder.parse import container, environment_yml, site_options, site_rules

DRAFT = "https://json-schema.org/draft/2020-12/schema"
FOLDER = Path(__file__).parents[2] / "builder" / "data" / "schema"
SCALAR = {"type": ["string", "number", "boolean"]}  # kept as it was written
Schema = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A conda environment file, with the section of recipe that conda ignores."""

    name: str = ""  # of the image; default: the file's name
    channels: tuple[str, ...] = ()  # conda's channels, the first one wins
    dependencies: tuple[str, ...] = ()  # conda's packages, and pip's below `- pip:`
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment, as conda sets them
    prefix: str = ""  # where an export was installed; it is ignored
    category: str = ""  # conda-lock's; it is ignored
    platforms: tuple[str, ...] = ()  # of other programs; they are ignored
    container: Container = field(default_factory=Container)


ROOTS: Mapping[str, type[Any]] = {"environment": Environment, "site": Site, "config": Config}
TITLES = {"environment": "environment file of recipe", "site": "site file of recipe", "config": "settings of recipe"}
LINES = {  # what a dataclass does not say; from the pages that describe the keys
    "Container.gpu": "Vendors that the file is meant for: amd, nvidia, intel, cpu.",
    "Container.base": "Base image: docker://NAME:TAG, oras://, library://, or the path of a .sif file.",
    "Container.python": "Where packages go: base (the base image's Python), env (a new environment), auto.",
    "Container.system": "Packages of the base image's distribution: NAME or NAME=VERSION.",
    "Container.files": "Files and folders to copy: source, relative to this file, and full path in the image.",
    "Container.env": "Variables of the image.",
    "Container.run": "Shell commands after the packages.",
    "Container.labels": "Labels of the image.",
    "Container.smoke": "What the test of a built image checks.",
    "Smoke.imports": "Modules that must import.",
    "Smoke.workloads": "Workloads of the test suite; an empty list: none.",
    "Environment.container": "What recipe adds to an environment: base image, files, variables, commands.",
    "Site.sources": "Name of a source: what it is, and the day it was checked.",
    "Site.hostnames": "Shell patterns of the names of its nodes.",
}


def _pattern(form: re.Pattern[str], *, most: int = 0) -> Schema:
    """The pattern of a whole text, without Python's own syntax."""
    return {"pattern": f"^(?:{form.pattern})$", **({"maxLength": most} if most else {})}


# What the parsers ask beyond a type; a list and a table are described by their items.
RULES: Mapping[str, Schema] = {
    "Environment.name": _pattern(environment_yml.NAME, most=environment_yml.NAME_LIMIT),
    "Environment.variables": {"propertyNames": _pattern(VARIABLE), "additionalProperties": SCALAR},
    "Environment.dependencies": {
        "items": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "object",
                    "properties": {"pip": {"type": ["array", "null"], "items": {"type": "string"}}},
                    "required": ["pip"],
                    "additionalProperties": False,
                },
            ]
        }
    },
    "Container.base": {"pattern": f"^(?:{container.REFERENCE.pattern}|{container.IMAGE_FILE.pattern})$"},
    "Container.system": {"items": {"type": "string", **_pattern(container.SYSTEM)}},
    "Container.files": {
        "propertyNames": _pattern(PATH),
        "additionalProperties": {"type": "string", "pattern": f"^/(?:{PATH.pattern})$"},
    },
    "Container.env": {"propertyNames": _pattern(VARIABLE), "additionalProperties": SCALAR},
    "Container.labels": {"propertyNames": _pattern(container.LABEL), "additionalProperties": SCALAR},
    "Smoke.imports": {"items": {"type": "string", **_pattern(container.MODULE)}},
    "Site.name": _pattern(site_options.NAME),
    "Source.checked": _pattern(site_rules.DATE),
    "Scheduler.jobs": {"propertyNames": {"enum": list(get_args(Purpose))}},
    "Scheduler.gpu_option": _pattern(site_rules.GPU_OPTION),
    "Runtime.modules": {"items": {"type": "string", **_pattern(site_options.MODULE)}},
    "Runtime.run_modules": {"items": {"type": "string", **_pattern(site_options.MODULE)}},
    "BuildSettings.modules": {"items": {"type": "string", **_pattern(site_options.MODULE)}},
    "Launch.cpu_masks": {"items": {"type": "string", **_pattern(site_rules.CPU_MASK)}},
    "Launch.master_port": _pattern(site_options.PORT),
    "BaseImage.reference": _pattern(site_options.REFERENCE),
}


def make_schemas() -> dict[str, str]:
    """Make the text of every schema, by its name."""
    return {name: f"{json.dumps(_make(name), indent=2)}\n" for name in ROOTS}


def _make(name: str) -> Schema:
    _, found = msgspec.json.schema_components([ROOTS[name]], ref_template="#/$defs/{name}")
    classes = {kind.__name__: kind for kind in _list_classes(ROOTS[name])}
    tables = {title: _describe(found[title], classes[title], unknown=name == "site") for title in sorted(found)}
    root = tables.pop(ROOTS[name].__name__)
    if name == "environment":
        root["properties"]["channels"]["type"] = ["array", "string", "null"]
        root["required"] = []
    if name == "site":
        root = _allow_extending(root, tables)
    for table in (root, *tables.values()):
        if not table.get("required"):
            table.pop("required", None)
    # `$schema` in a file is the habit of editors for JSON; YAML has a comment for it.
    return {"$schema": DRAFT, **root, "title": TITLES[name], "$defs": tables}


def _list_classes(kind: type[Any]) -> Iterator[type[Any]]:
    module = inspect.getmodule(kind)
    yield kind
    for owner in {module, inspect.getmodule(Container)}:
        yield from (item for _, item in inspect.getmembers(owner, inspect.isclass) if item is not kind)


def _describe(table: Schema, kind: type[Any], *, unknown: bool) -> Schema:
    """Add to a table what msgspec does not see: comments, rules, and the values that the decoder takes."""
    comments = dict(re.findall(r"^    (\w+): [^#\n]*?  # (.+)$", inspect.getsource(kind), re.MULTILINE))
    for key, value in table["properties"].items():
        name = f"{kind.__name__}.{key}"
        value.pop("default", None)
        value.update(RULES.get(name, {}))
        kinds = value.get("anyOf", [])
        if unknown and {"type": "null"} in kinds and {"type": "string"} not in kinds:
            kinds.append({"const": "unknown"})
        if value.get("type") in ("array", "object"):
            value["type"] = [value["type"], "null"]  # nothing is an empty one
        elif kind in (Environment, Container) and "type" in value:
            value["type"] = [value["type"], "null"]
        elif kind in (Environment, Container) and not kinds:
            table["properties"][key] = value = {"anyOf": [{**value}, {"type": "null"}]}
        if text := LINES.get(name) or comments.get(key, ""):
            value["description"] = text
    table.pop("title", None)
    return {**table, "additionalProperties": False}


def _allow_extending(root: Schema, tables: dict[str, Schema]) -> Schema:
    """Require all keys of a site file that stands alone; one with `extends` gives the keys that differ."""
    below = {}
    for key, value in root["properties"].items():
        title = str(value.get("$ref", "")).rpartition("/")[2]
        if title:
            below[key] = {"required": tables[title].pop("required")}
            root["properties"][key] = {"anyOf": [value, {"type": "null"}]}
    # a GPU is optional; with one, its keys are required
    below["gpu"] = {"if": {"type": "object"}, "then": {"required": tables["Gpu"].pop("required")}}
    tables["Job"].pop("required")
    whole = {"required": [key for key in root.pop("required") if key != "name"], "properties": below}
    root["properties"]["extends"] = {"type": "string", "description": "The site whose keys this one inherits."}
    return {**root, "required": ["name"], "if": {"not": {"required": ["extends"]}}, "then": whole}


def write_schemas() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in make_schemas().items():
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_schemas()
