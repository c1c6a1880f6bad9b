"""Checks that every workload shares: error, device, torch, time, ranks."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from .checks import (
    BACKENDS,
    Check,
    ResultView,
    find_vendor,
    join_limited,
    look_up,
    show,
    to_figure,
    to_integer,
    to_number,
)


def check_error(facts: ResultView) -> List[Check]:
    ok = "error" in facts.result and facts.result["error"] is None
    measured = "none" if ok else show(facts.result.get("error"))
    return [Check("error", ok, measured, "none")]


def check_device(facts: ResultView) -> List[Check]:
    """Check that the run used the expected kind of device and vendor."""
    kind, wanted = facts.find("device", "type"), facts.expected.get("device")
    any_kind = wanted in (None, "auto")
    ok = kind in BACKENDS if any_kind and isinstance(kind, str) else kind is not None and kind == wanted
    checks = [Check("device", ok, _name_device(facts), "any" if any_kind else show(wanted))]
    vendor = facts.expected.get("vendor")
    if vendor is not None:
        found = find_vendor(facts.find("torch"), kind)
        measured = f"{found} (torch {show(facts.find('torch', 'version'))})"
        checks.append(Check("vendor", found == vendor, measured, show(vendor)))
    return checks


def _name_device(facts: ResultView) -> str:
    kind, name = facts.find("device", "type"), facts.find("device", "name")
    return show(kind) if kind in (None, "cpu") or name is None else f"{show(kind)} ({show(name)})"


def check_torch(facts: ResultView) -> List[Check]:
    """Check that torch has the expected version."""
    wanted, found = facts.expected.get("torch"), facts.find("torch", "version")
    if wanted is None:
        return []
    # a version without a local part ("2.6.0") accepts any build of it ("2.6.0+rocm6.2.4")
    public = found.split("+")[0] if isinstance(found, str) else None
    return [Check("torch", wanted in (found, public) and found is not None, show(found), show(wanted))]


def check_time(facts: ResultView) -> List[Check]:
    """Check that the run kept its time limit."""
    limit, taken = to_number(facts.expected.get("seconds")), to_number(facts.find("seconds", "total"))
    ok = limit is not None and taken is not None and 0 <= taken <= limit
    return [
        Check(
            "seconds", ok, to_figure(facts.find("seconds", "total")), f"<= {to_figure(facts.expected.get('seconds'))}"
        )
    ]


def check_ranks(facts: ResultView) -> List[Check]:
    """Check that every rank reported and finished, and no others."""
    world, entries = facts.count_expected_ranks(), facts.list_ranks()
    by_rank = {to_integer(entry.get("rank")): entry for entry in entries}
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
    measured = join_limited([f"{finished} of {world} finished", *faults], 5)
    extra = len(entries) - len(set(by_rank) & set(range(world)))
    if extra:
        measured += f"; {extra} not expected"
    return [Check("ranks", finished == world and not extra, measured, f"all {world} finished")]


def check_backend(facts: ResultView) -> List[Check]:
    """Check that all ranks used the same kind of device, and its backend."""
    kinds = sorted({show(look_up(entry, "device", "type")) for entry in facts.list_ranks()})
    checks = [Check("one kind of device", len(kinds) == 1, ", ".join(kinds) or "missing", "the same on every rank")]
    kind = facts.find("device", "type")
    allowed = BACKENDS.get(kind, ()) if isinstance(kind, str) else ()
    found = facts.find("backend")
    checks.append(Check("backend", found in allowed, show(found), " or ".join(allowed) or "a known device"))
    if kind in ("cuda", "xpu"):
        checks.append(_check_distinct_gpus(facts.list_ranks()))
    return checks


def _check_distinct_gpus(entries: Sequence[Dict[str, Any]]) -> Check:
    """Check that each rank of a host has its own GPU, unless the host shows fewer GPUs than it has ranks."""
    hosts: Dict[str, List[Dict[str, Any]]] = {}
    for entry in entries:
        hosts.setdefault(show(entry.get("host")), []).append(entry)
    used = wanted = 0
    shared: List[str] = []
    for host, members in hosts.items():
        counts = [to_integer(look_up(member, "device", "count")) or 0 for member in members]
        identities = [look_up(member, "device", "identity") for member in members]
        used += len({name for name in identities if isinstance(name, str) and name})
        # if a rank sees exactly one GPU, the launcher gave each rank its own
        wanted += len(members) if max(counts) in (0, 1) else min(len(members), max(counts))
        for name in {name for name in identities if isinstance(name, str) and identities.count(name) > 1}:
            users = [show(member.get("rank")) for member in members if look_up(member, "device", "identity") == name]
            shared.append(f"ranks {', '.join(users[:8])} of {host} use one")
    measured = f"{used} GPUs on {len(hosts)} hosts"
    if used != wanted and shared:
        measured += f": {join_limited(sorted(shared))}"
    return Check("gpus", bool(entries) and used == wanted, measured, f"{wanted} GPUs for {len(entries)} ranks")


def check_modules(facts: ResultView) -> List[Check]:
    """Every module was imported."""
    wanted, by_name = (
        facts.expected.get("modules"),
        {show(entry.get("name")): entry for entry in facts.list_rows("imports")},
    )
    if not isinstance(wanted, (list, tuple)) or not wanted:
        return [Check("imports", False, show(wanted), "names of modules")]
    checks = []
    for name in map(show, wanted):
        entry = by_name.get(name, {})
        ok = "error" in entry and entry["error"] is None and to_number(entry.get("seconds")) is not None
        measured = show(entry.get("version") or "imported") if ok else show(entry.get("error") or "not tried")
        checks.append(Check(f"import {name}", ok, measured, "imported"))
    return checks
