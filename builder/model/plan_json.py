"""A plan as JSON and back: sorted, the same bytes for the same plan, and read as strictly as it is written."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator

from builder.layering.bounded import parse_json
from builder.model.finding import ConfigError, Finding, Place, without_edits
from builder.model.plain_path import is_plain
from builder.model.plan import Plan
from builder.model.safe import shown
from builder.model.typed import MismatchError, typed

SCHEMA = 1
LIMIT = 64 * 1024 * 1024  # bytes
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)  # of a step: it names a log


def to_json(plan: Plan) -> str:
    """Write a plan as JSON text that ends with a newline."""
    content = {"schema": SCHEMA, **without_edits(dataclasses.asdict(plan))}
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str | bytes, *, file: str = "plan.json") -> Plan:
    """Read a plan again; raises ConfigError with the first fault and the path of its key."""
    try:
        content = parse_json(text, limit=LIMIT)
    except ValueError as error:
        raise _fault(f"the plan is not JSON: {shown(str(error))}", file=file, key="") from None
    if not isinstance(content, dict):
        raise _fault("the plan is not a JSON object", file=file, key="")
    try:
        plan = typed(Plan, content, schema=SCHEMA, what="plan")
    except MismatchError as error:
        raise _fault(error.message, file=file, key=error.key) from None
    for key, said in _odd(plan):
        raise _fault(said, file=file, key=key)
    return plan


def _odd(plan: Plan) -> Iterator[tuple[str, str]]:
    """What leads out of the plan folder, or has a name that a log cannot have."""
    # A plan around an image that is there already names it by its absolute path, and makes nothing.
    made = any(step.produces and step.kind not in ("smoke", "verify") for step in plan.steps)
    paths = [("image", plan.image)] if made or not plan.image.startswith("/") else []
    for number, step in enumerate(plan.steps):
        key = f"steps[{number}]"
        if not _NAME.fullmatch(step.name):
            yield f"{key}.name", f"'{shown(step.name)}' cannot be the name of a step"
        paths += [(f"{key}.script", step.script), *([(f"{key}.batch", step.batch)] if step.batch else [])]
        paths += [(f"{key}.produces[{at}]", name) for at, name in enumerate(step.produces)]
    paths += [(f"files[{number}].path", file.path) for number, file in enumerate(plan.files)]
    paths += [(f"copies[{number}].path", copy.path) for number, copy in enumerate(plan.copies)]
    for key, path in paths:
        if not is_plain(path):
            yield key, f"'{shown(path)}' is not a plain path inside the plan folder"


def _fault(message: str, *, file: str, key: str) -> ConfigError:
    fix = "write the plan folder again with `recipe plan`"
    return ConfigError(Finding(code="plan-faulty", message=message, at=Place(file=file, key=shown(key)), fix=fix))
