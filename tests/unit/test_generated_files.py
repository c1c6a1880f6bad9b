"""What is generated is what it says: YAML, JSON, old Python, lines as Unix ends them."""

from __future__ import annotations

import json

import pytest
import yaml
from support.matrix import ROOT, plans

from builder.compile.render import TEMPLATES


def test_yaml_is_read_as_it_was_meant() -> None:
    count = 0
    for case, plan in plans():
        for file in plan.files:
            if not file.path.endswith((".yml", ".yaml")):
                continue
            count += 1
            document = yaml.safe_load(file.text)
            assert list(document) == ["name", "channels", "dependencies"], case.name
            *conda, last = document["dependencies"]
            lines = [*conda, *(last["pip"] if isinstance(last, dict) else [last])]
            assert lines, case.name
            assert all(isinstance(line, str) for line in [document["name"], *document["channels"], *lines]), case.name
    assert count > 20


def test_json_is_read_again() -> None:
    for _, plan in plans():
        for file in plan.files:
            if file.path.endswith(".json"):
                assert json.loads(file.text)


@pytest.mark.parametrize("name", ["protect.py", "verify.py"])
def test_python_of_images_is_old_python(name: str) -> None:
    """Base images have Pythons as old as 3.6 (SLES); no newer grammar may be used."""
    import ast

    ast.parse((TEMPLATES / name).read_text(encoding="utf-8"), feature_version=(3, 7))


def test_templates_end_lines_as_unix_does() -> None:
    for path in (ROOT / "builder" / "data").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":  # of a test that imports a template
            text = path.read_bytes()
            assert b"\r" not in text, path
            assert b"\t" not in text, path
