"""Judge a result from its numbers; needs the standard library only and never fails on an altered result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

SCHEMA = 1
# A net that learns nothing scores 0.1. Two epochs of 8,000 images reach 0.97 on MNIST and 0.98 on drawn digits.
ACCURACY_FLOORS = {"mnist": 0.95, "drawn": 0.90}
LOSS_FRACTION = 0.5  # the last tenth of the steps against the first tenth
BACKENDS = {"cuda": ("nccl",), "xpu": ("xccl", "ccl"), "cpu": ("gloo",)}

Plain = Union[str, int, float]


@dataclass(frozen=True)
class Check:
    """One judgement: what was measured against what was expected."""

    name: str
    ok: bool
    measured: Plain
    expected: Plain


def judge(result: object, expected: Optional[Mapping[str, Any]] = None) -> List[Check]:
    """Judge a result; ``expected`` replaces what the result itself says was expected of it.

    A field that is missing or of the wrong type is a failed check, never an exception.
    """
    if not isinstance(result, dict):
        return [Check("result", False, type(result).__name__, "an object")]
    facts = _Facts(result, expected)
    schema = result.get("schema")
    if schema is True or schema != SCHEMA:
        return [Check("schema", False, show(schema), SCHEMA)]
    workload = result.get("workload")
    rules = _RULES.get(workload) if isinstance(workload, str) else None
    if rules is None:
        return [Check("workload", False, show(workload), " or ".join(_RULES))]
    return [check for rule in rules for check in rule(facts)]


def passed(checks: Sequence[Check]) -> bool:
    """Whether there are checks and every one is good."""
    return bool(checks) and all(check.ok for check in checks)


def vendor_of(torch: object, kind: object) -> str:
    """Name the vendor that a run was on, from torch's build versions and the device type it used."""
    builds = torch if isinstance(torch, dict) else {}
    if kind == "cpu":
        return "cpu"
    if kind == "xpu":
        return "intel"
    if kind == "cuda" and builds.get("hip"):
        return "amd"
    if kind == "cuda" and builds.get("cuda"):
        return "nvidia"
    return "unknown"


def show(value: object) -> str:
    """Show any value in at most 160 printable characters."""
    if value is None:
        return "missing"
    if isinstance(value, (dict, list)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) > 10**30:
        return "a huge number"  # str() of one refuses past 4300 digits
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return text if len(text) <= 160 else text[:157] + "..."


class _Facts:
    """A result read with care: every look-up may miss."""

    def __init__(self, result: Dict[str, Any], expected: Optional[Mapping[str, Any]]) -> None:
        self.result = result
        own = result.get("expected")
        self.expected: Mapping[str, Any] = expected if expected is not None else own if isinstance(own, dict) else {}

    def at(self, *keys: str) -> Any:
        value: Any = self.result
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def ranks(self) -> List[Dict[str, Any]]:
        found = self.result.get("ranks")
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []

    def world(self) -> Optional[int]:
        return whole(self.expected.get("ranks"))


def number(value: object) -> Optional[float]:
    """The value as a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: object) -> Optional[int]:
    """The value as a whole number that anything here could count, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else None


def _error(facts: _Facts) -> List[Check]:
    ok = "error" in facts.result and facts.result["error"] is None
    measured = "none" if ok else show(facts.result.get("error"))
    return [Check("error", ok, measured, "none")]


def _accuracy(facts: _Facts) -> List[Check]:
    source = facts.at("data", "source")
    floor = ACCURACY_FLOORS.get(source) if isinstance(source, str) else None
    value = number(facts.at("accuracy"))
    ok = floor is not None and value is not None and floor <= value <= 1.0
    limit = f">= {floor}" if floor is not None else f"a floor for {show(source)} digits"
    return [Check("accuracy", ok, _figure(facts.at("accuracy")), limit)]


def _loss(facts: _Facts) -> List[Check]:
    first, last = number(facts.at("training", "first_loss")), number(facts.at("training", "last_loss"))
    ok = first is not None and last is not None and 0 <= last <= LOSS_FRACTION * first
    measured = f"{_figure(facts.at('training', 'first_loss'))} to {_figure(facts.at('training', 'last_loss'))}"
    broken = whole(facts.at("training", "non_finite"))
    return [
        Check("loss falls", ok, measured, f"to <= {LOSS_FRACTION} of the first"),
        Check("losses finite", broken == 0, show(facts.at("training", "non_finite")), "0 not finite"),
    ]


def _device(facts: _Facts) -> List[Check]:
    kind, wanted = facts.at("device", "type"), facts.expected.get("device")
    any_kind = wanted in (None, "auto")
    ok = kind in BACKENDS if any_kind and isinstance(kind, str) else kind is not None and kind == wanted
    checks = [Check("device", ok, _named(facts), "any" if any_kind else show(wanted))]
    vendor = facts.expected.get("vendor")
    if vendor is not None:
        found = vendor_of(facts.at("torch"), kind)
        measured = f"{found} (torch {show(facts.at('torch', 'version'))})"
        checks.append(Check("vendor", found == vendor, measured, show(vendor)))
    return checks


def _named(facts: _Facts) -> str:
    kind, name = facts.at("device", "type"), facts.at("device", "name")
    return show(kind) if kind in (None, "cpu") or name is None else f"{show(kind)} ({show(name)})"


def _torch(facts: _Facts) -> List[Check]:
    wanted, found = facts.expected.get("torch"), facts.at("torch", "version")
    if wanted is None:
        return []
    # a version without a local part ("2.6.0") asks for any build of it ("2.6.0+rocm6.2.4")
    public = found.split("+")[0] if isinstance(found, str) else None
    return [Check("torch", wanted in (found, public) and found is not None, show(found), show(wanted))]


def _time(facts: _Facts) -> List[Check]:
    limit, taken = number(facts.expected.get("seconds")), number(facts.at("seconds", "total"))
    ok = limit is not None and taken is not None and 0 <= taken <= limit
    return [Check("seconds", ok, _figure(facts.at("seconds", "total")), f"<= {_figure(facts.expected.get('seconds'))}")]


def _every_rank(facts: _Facts) -> List[Check]:
    world, entries = facts.world(), facts.ranks()
    by_rank = {whole(entry.get("rank")): entry for entry in entries}
    if world is None or world < 1 or world > 10**6:
        return [Check("ranks", False, f"{len(entries)} reported", show(facts.expected.get("ranks")))]
    faults = []
    finished = 0
    for rank in range(world):
        entry = by_rank.get(rank)
        if entry is None:
            faults.append(f"rank {rank} never reported")
        elif entry.get("finished") is not True or entry.get("ended") not in (None, "exit status 0"):
            how = show(entry.get("ended") or "did not finish")
            faults.append(f"rank {rank} {how} while {show(entry.get('state'))}")
        else:
            finished += 1
    more = f" and {len(faults) - 4} more" if len(faults) > 4 else ""
    measured = "; ".join([f"{finished} of {world} finished", *faults[:4]]) + more
    extra = len(entries) - len(set(by_rank) & set(range(world)))
    if extra:
        measured += f"; {extra} not expected"
    return [Check("ranks", finished == world and not extra, measured, f"all {world} finished")]


def _checksums(facts: _Facts) -> List[Check]:
    world, entries = facts.world(), facts.ranks()
    sums = [entry.get("checksum") for entry in entries]
    known = {text for text in sums if isinstance(text, str) and text}
    complete = len(sums) == world and all(isinstance(text, str) and text for text in sums)
    one = len(known) == 1 and complete
    start = {entry.get("initial_checksum") for entry in entries if isinstance(entry.get("initial_checksum"), str)}
    moved = one and not (known & start)
    idle = whole(facts.at("training", "epochs_run")) == 0  # resumed at its end: nothing was left to train
    still = one and not moved and not idle
    measured = f"{len(known)} among {len(sums)} ranks" + (", as before the training" if still else "")
    return [Check("parameters agree", one and (moved or idle), measured, f"1 among {show(world)} ranks")]


def _shares(facts: _Facts) -> List[Check]:
    world, train = facts.world(), whole(facts.at("data", "train"))
    epochs = whole(facts.at("training", "epochs_run"))
    seen = [whole(entry.get("samples")) for entry in facts.ranks()]
    if not world or world < 1 or train is None or epochs is None:
        return [Check("samples", False, show(facts.at("data", "train")), "an equal share for each rank")]
    share = train // world * epochs
    lowest = min((count for count in seen if count is not None), default=None)
    ok = len(seen) == world and all(count == share for count in seen)
    return [Check("samples", ok, f"{show(lowest)} at least on {len(seen)} ranks", f"{show(share)} on each of {world}")]


def _rank_losses(facts: _Facts) -> List[Check]:
    broken = [show(entry.get("rank")) for entry in facts.ranks() if number(entry.get("last_loss")) is None]
    ok = bool(facts.ranks()) and not broken
    measured = f"not on rank {', '.join(broken[:8])}" if broken else f"on {len(facts.ranks())} ranks"
    return [Check("rank losses finite", ok, measured, "on every rank")]


def _rank_devices(facts: _Facts) -> List[Check]:
    entries = facts.ranks()
    kinds = sorted({show(_in(entry, "device", "type")) for entry in entries})
    checks = [Check("one kind of device", len(kinds) == 1, ", ".join(kinds) or "missing", "the same on every rank")]
    kind = facts.at("device", "type")
    allowed = BACKENDS.get(kind, ()) if isinstance(kind, str) else ()
    backend = facts.at("backend")
    checks.append(Check("backend", backend in allowed, show(backend), " or ".join(allowed) or "a known device"))
    if kind in ("cuda", "xpu"):
        checks.append(_distinct_gpus(entries))
    return checks


def _distinct_gpus(entries: Sequence[Dict[str, Any]]) -> Check:
    """Each rank of a host has its own GPU, unless the host shows fewer GPUs than it has ranks."""
    hosts: Dict[str, List[Dict[str, Any]]] = {}
    for entry in entries:
        hosts.setdefault(show(entry.get("host")), []).append(entry)
    used = wanted = 0
    for members in hosts.values():
        counts = [whole(_in(member, "device", "count")) or 0 for member in members]
        identities = [_in(member, "device", "identity") for member in members]
        used += len({name for name in identities if isinstance(name, str) and name})
        # seeing exactly one GPU means that the launcher gave each rank its own
        wanted += len(members) if max(counts) in (0, 1) else min(len(members), max(counts))
    measured = f"{used} GPUs on {len(hosts)} hosts"
    return Check("gpus", bool(entries) and used == wanted, measured, f"{wanted} GPUs for {len(entries)} ranks")


def _imports(facts: _Facts) -> List[Check]:
    wanted, found = facts.expected.get("modules"), facts.at("imports")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    by_name = {show(entry.get("name")): entry for entry in entries}
    if not isinstance(wanted, (list, tuple)) or not wanted:
        return [Check("imports", False, show(wanted), "names of modules")]
    checks = []
    for name in map(show, wanted):
        entry = by_name.get(name, {})
        ok = "error" in entry and entry["error"] is None and number(entry.get("seconds")) is not None
        measured = show(entry.get("version") or "imported") if ok else show(entry.get("error") or "not tried")
        checks.append(Check(f"import {name}", ok, measured, "imported"))
    return checks


def _in(entry: Mapping[str, Any], *keys: str) -> Any:
    value: Any = entry
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _figure(value: object) -> Plain:
    found = number(value)
    return show(value) if found is None else round(found, 4)


_Rule = Callable[[_Facts], List[Check]]
_RULES: Dict[str, Tuple[_Rule, ...]] = {
    "mnist": (_error, _accuracy, _loss, _device, _torch, _time),
    "ddp": (
        _error, _every_rank, _accuracy, _loss, _rank_losses, _checksums, _shares, _device, _rank_devices, _torch, _time,
    ),
    "imports": (_error, _imports, _time),
}  # fmt: skip
