"""Plans of small bash scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builder.model.plan import Plan, PlanFile, Step


def make_plan(steps: dict[str, dict[str, Any]] | None = None, **changes: Any) -> Plan:
    """A plan whose steps are given as name -> fields, `text` being the script."""
    given = steps if steps is not None else {"build": {"text": "echo image >image.sif", "produces": ("image.sif",)}}
    files = [PlanFile(path=f"{name}.sh", text=fields["text"], executable=True) for name, fields in given.items()]
    made = []
    for name, fields in given.items():
        rest = {key: value for key, value in fields.items() if key != "text"}
        made.append(Step(**{"name": name, "kind": "build", "why": f"{name} it", "script": f"{name}.sh", **rest}))
    content: dict[str, Any] = {
        "target": "demo.local.apptainer",
        "recipe": "demo",
        "site": "local",
        "backend": "apptainer",
        "vendor": "cpu",
        "image": "image.sif",
        "image_kind": "sif",
        "base": "docker://example",
        "steps": tuple(made),
        "files": tuple(files),
    }
    return Plan(**{**content, **changes})


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    """Makes plans."""
    return make_plan
