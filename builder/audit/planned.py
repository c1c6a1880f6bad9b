"""The audit that a plan asks for: `audit.json` of its folder, and what the packages of a built image are by it.

    {"schema": 1, "site": NAME, "machine": {as Machine}, "folders": [...], "cpu": false, "ignored": false}

`folders` of the image hold what the recipe installs ("" is all of it); where there are none, it is what the base image
does not list in BASE_LIST. With `cpu` a framework without GPU code is what the recipe asks for. Where packages were to
be `ignored`, what is wrong is printed and stops nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..sif.bounded import BoundsError, open_file, read_json
from ..sif.removal import remove
from ..sif.squashfs import FILE, LINK
from . import CODE, REPORT
from .content import AuditError, Candidate
from .distribution import Distribution, Inventory, make_inventory
from .gpu_verdict import Judgement, Machine, Verdict, judge
from .images import merge_layers, open_member
from .installed import TreeScan

# What installs and then does not use the GPU; what does not load at all is found when it is imported.
WRONG: tuple[Judgement, ...] = ("other vendor", "wrong runtime major", "no code for this GPU", "CPU only")
BASE_LIST = "opt/recipe/base-packages.txt"  # name==version of what the base image's Python had before
SITES = ("site-packages/", "dist-packages/")
SHOWN = 3  # packages in one message


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """The GPU that an image is for, and where in the image to look."""

    site: str
    machine: Machine
    folders: tuple[str, ...] = ()
    cpu: bool = False
    ignored: bool = False


def read_audit_plan(path: Path) -> AuditPlan | None:
    """Read `audit.json`, None where the plan has none or a damaged one."""
    if not path.is_file():
        return None
    try:
        found: Any = read_json(path)
        words: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found["machine"].items()
        }
        machine = Machine(**words)
        folders = tuple(str(name) for name in found["folders"])
        words = {name: found[name] is True for name in ("cpu", "ignored")}
        return AuditPlan(site=str(found["site"]), machine=machine, folders=folders, **words)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_installed(path: Path, folders: Sequence[str]) -> Inventory:
    """What is installed in an image or in the squashfs file of one; raises AuditError and OSError."""
    tree, before = TreeScan(), ""
    with open_file(path) as file:
        for name, (member, reader) in merge_layers(file, path).items():
            if name == BASE_LIST and member.kind == FILE:
                with open_member(reader, member) as content:
                    before = content.read(0, min(content.size, 1 << 22)).decode(errors="replace")
            if not _is_wanted(name, folders):
                continue
            if member.kind == LINK:
                tree.link(name)
            else:
                tree.take(Candidate(path=name, size=member.size, open=partial(open_member, reader, member)))
    found = tree.make_inventory("image", whole=False)
    names = {normalize(line) for line in before.split()}
    rest = [one for one in found.distributions if normalize(f"{one.name}=={one.version}") not in names]
    return make_inventory("image", rest, names=found.names, unread=found.unread)


def normalize(name: str) -> str:
    """A distribution's name as all spellings of it have it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_wanted(path: str, folders: Sequence[str]) -> bool:
    if folders:
        return any(not folder or path.startswith(f"{folder}/") for folder in folders)
    return any(part in path for part in SITES)


def judge_installed(distributions: Iterable[Distribution], plan: AuditPlan) -> tuple[Verdict, ...]:
    """The verdicts on what was installed; `wrong` is what stops a build."""
    found = judge(make_inventory("image", list(distributions)), plan.machine)
    judged = [says for says in WRONG if not (plan.cpu and says == "CPU only")]
    # An instruction that the processor lacks ends a job, and no import on the machine that builds.
    variants = [verdict for verdict in found if verdict.variant and verdict.says == "other processor"]
    return tuple(
        replace(verdict, wrong=verdict.wrong and (verdict.says in judged or verdict in variants)) for verdict in found
    )


def describe(plan: AuditPlan, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The report as plain data: schema 1, `ok`, and every package that has to do with a GPU."""
    return {
        "schema": 1, "site": plan.site, "machine": asdict(plan.machine), "ignored": plan.ignored,
        "ok": not any(verdict.wrong for verdict in verdicts), "packages": len(verdicts),
        "verdicts": [
            {"verdict": one.says, **{name: value for name, value in asdict(one).items() if name != "says"}}
            for one in verdicts if one.wrong or one.variant or one.says != "CPU only"
        ],
    }  # fmt: skip


def explain_wrong(plan: AuditPlan, verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """One sentence about what is wrong and its fix, "" where nothing is."""
    bad = [verdict for verdict in verdicts if verdict.wrong]
    if not bad:
        return "", ""
    parts = [
        f"'{one.name}' {one.version} is wrong for '{plan.site}': {one.reason}" + (f" ({one.file})" if one.file else "")
        for one in bad[:SHOWN]
    ]
    more = [f"{len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    text = "".join(letter if letter.isprintable() else "?" for letter in "; ".join([*parts, *more]))
    return text, make_fix(plan.site, cpu=any(verdict.says == "CPU only" for verdict in bad))


def make_fix(site: str, *, cpu: bool) -> str:
    """What to do about a wrong package."""
    more = "add 'cpu' to container.gpu, or " if cpu else ""
    return (
        f"leave it out, or install its build for this GPU (`recipe sites {site}` shows it); "
        f"where it is only used without a GPU: {more}--ignore {CODE}"
    )


def finish(plan: AuditPlan, verdicts: Sequence[Verdict], draft: Path) -> tuple[str, str]:
    """Write the report next to a draft; where something is wrong the draft keeps a name that no image gets.

    Returns the sentence about it and its fix, "" where nothing is wrong or it is to be ignored.
    """
    folder, name = draft.parent, draft.name.rpartition(".part")[0] or draft.name
    text = json.dumps(describe(plan, verdicts), indent=2, sort_keys=True) + "\n"
    path, failed = folder / REPORT, folder / f"{name}.failed"
    path.unlink(missing_ok=True)
    remove(failed)  # of an earlier build
    path.write_text(text, encoding="utf-8")
    for one in verdicts:
        if one.variant and not one.wrong:
            print(f"recipe: note: '{one.name}' {one.version} is the variant '{one.variant}': {one.reason}", flush=True)
    message, fix = explain_wrong(plan, verdicts)
    if not message:
        return "", ""
    if plan.ignored:
        print(f"recipe: note: {message}; ignored", flush=True)
        return "", ""
    draft.replace(failed)
    print(f"recipe: the image stays under the name '{failed.name}', the report is '{REPORT}'", flush=True)
    return message, fix


def judge_image(plan: AuditPlan, draft: Path) -> tuple[str, str]:
    """Audit an image that an engine made, as `finish`; what cannot be read is printed and stops nothing."""
    path = draft / "img.sqfs" if draft.is_dir() else draft
    try:
        found = read_installed(path, plan.folders)
    except (AuditError, BoundsError, OSError) as error:
        print(f"recipe: note: the packages of '{draft.name}' are not audited: {error}", flush=True)
        return "", ""
    return finish(plan, judge_installed(found.distributions, plan), draft)
