"""Judge what every workload shares: its error, its device, its torch, its time, its ranks."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from .checks import BACKENDS, Check, Facts, figure, inside, listed, number, show, vendor_of, whole


def error(facts: Facts) -> List[Check]:
    """Nothing went wrong."""
    ok = "error" in facts.result and facts.result["error"] is None
    measured = "none" if ok else show(facts.result.get("error"))
    return [Check("error", ok, measured, "none")]


def device(facts: Facts) -> List[Check]:
    """The run was on the kind of device, and the vendor's, that was asked for."""
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


def _named(facts: Facts) -> str:
    kind, name = facts.at("device", "type"), facts.at("device", "name")
    return show(kind) if kind in (None, "cpu") or name is None else f"{show(kind)} ({show(name)})"


def torch(facts: Facts) -> List[Check]:
    """torch has the version that was asked for."""
    wanted, found = facts.expected.get("torch"), facts.at("torch", "version")
    if wanted is None:
        return []
    # a version without a local part ("2.6.0") asks for any build of it ("2.6.0+rocm6.2.4")
    public = found.split("+")[0] if isinstance(found, str) else None
    return [Check("torch", wanted in (found, public) and found is not None, show(found), show(wanted))]


def time(facts: Facts) -> List[Check]:
    """The run kept its limit."""
    limit, taken = number(facts.expected.get("seconds")), number(facts.at("seconds", "total"))
    ok = limit is not None and taken is not None and 0 <= taken <= limit
    return [Check("seconds", ok, figure(facts.at("seconds", "total")), f"<= {figure(facts.expected.get('seconds'))}")]


def every_rank(facts: Facts) -> List[Check]:
    """Every rank reported and finished, and no other did."""
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
    measured = listed([f"{finished} of {world} finished", *faults], 5)
    extra = len(entries) - len(set(by_rank) & set(range(world)))
    if extra:
        measured += f"; {extra} not expected"
    return [Check("ranks", finished == world and not extra, measured, f"all {world} finished")]


def backend(facts: Facts) -> List[Check]:
    """All ranks were on the same kind of device, and talked by what belongs to it."""
    kinds = sorted({show(inside(entry, "device", "type")) for entry in facts.ranks()})
    checks = [Check("one kind of device", len(kinds) == 1, ", ".join(kinds) or "missing", "the same on every rank")]
    kind = facts.at("device", "type")
    allowed = BACKENDS.get(kind, ()) if isinstance(kind, str) else ()
    found = facts.at("backend")
    checks.append(Check("backend", found in allowed, show(found), " or ".join(allowed) or "a known device"))
    if kind in ("cuda", "xpu"):
        checks.append(_distinct_gpus(facts.ranks()))
    return checks


def _distinct_gpus(entries: Sequence[Dict[str, Any]]) -> Check:
    """Each rank of a host has its own GPU, unless the host shows fewer GPUs than it has ranks."""
    hosts: Dict[str, List[Dict[str, Any]]] = {}
    for entry in entries:
        hosts.setdefault(show(entry.get("host")), []).append(entry)
    used = wanted = 0
    for members in hosts.values():
        counts = [whole(inside(member, "device", "count")) or 0 for member in members]
        identities = [inside(member, "device", "identity") for member in members]
        used += len({name for name in identities if isinstance(name, str) and name})
        # seeing exactly one GPU means that the launcher gave each rank its own
        wanted += len(members) if max(counts) in (0, 1) else min(len(members), max(counts))
    measured = f"{used} GPUs on {len(hosts)} hosts"
    return Check("gpus", bool(entries) and used == wanted, measured, f"{wanted} GPUs for {len(entries)} ranks")


def modules(facts: Facts) -> List[Check]:
    """Every module was imported."""
    wanted, by_name = facts.expected.get("modules"), {show(entry.get("name")): entry for entry in facts.rows("imports")}
    if not isinstance(wanted, (list, tuple)) or not wanted:
        return [Check("imports", False, show(wanted), "names of modules")]
    checks = []
    for name in map(show, wanted):
        entry = by_name.get(name, {})
        ok = "error" in entry and entry["error"] is None and number(entry.get("seconds")) is not None
        measured = show(entry.get("version") or "imported") if ok else show(entry.get("error") or "not tried")
        checks.append(Check(f"import {name}", ok, measured, "imported"))
    return checks
