"""Judge a result by its numbers; standard library only, and it never fails on an altered result."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import check_figures, check_probe, mpi_library
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


def check_mpi(facts: ResultView) -> List[Check]:
    """Check that the launcher's ranks are one MPI world, and whose library they loaded."""
    world, entries = facts.count_expected_ranks() or 0, facts.list_ranks()
    sizes = sorted({show(look_up(entry, "mpi", "size")) for entry in entries})
    ranks = {to_integer(look_up(entry, "mpi", "rank")) for entry in entries}
    lefts = {to_integer(look_up(entry, "mpi", "left")) for entry in entries}
    sums = sorted({show(look_up(entry, "mpi", "sum")) for entry in entries})
    hosts = sorted({show(entry.get("host")) for entry in entries})
    reached = sum(look_up(entry, "mpi", "hosts") == hosts for entry in entries)
    everyone = set(range(world))
    measured = f"{', '.join(sizes) or 'no'} ranks in an MPI world, {len(ranks)} different MPI ranks"
    if world == 1:
        measured += "; one rank shows that an MPI loads, not that ranks meet: two do"
    origins = sorted({show(look_up(entry, "mpi", "from")) for entry in entries})
    names = sorted({show(look_up(entry, "mpi", "version")) for entry in entries})
    files = sorted({show(look_up(entry, "mpi", "library")) for entry in entries})
    library = f"{', '.join(origins)}: {join_limited(names, 2)} ({join_limited(files, 2)})"
    wanted = facts.expected.get("mpi")
    return [
        Check("mpi world", sizes == [str(world)] and ranks == everyone, measured, f"one world of {world} ranks"),
        Check("mpi sum", sums == [str(world * (world + 1) // 2)], join_limited(sums), str(world * (world + 1) // 2)),
        Check("mpi neighbours", lefts == everyone, f"values of {len(lefts & everyone)} ranks", f"of {world} ranks"),
        Check(
            "mpi hosts", bool(hosts) and reached == len(entries), f"reached by {reached} ranks", f"{len(hosts)} by all"
        ),
        Check(
            "mpi library", len(files) == 1 and (wanted is None or origins == [wanted]), library, show(wanted or "any")
        ),
    ]


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


SCHEMA = 1


def judge(result: object, expected: Optional[Mapping[str, Any]] = None) -> List[Check]:
    """Judge a result; ``expected`` replaces the expectations in the result itself.

    A missing field, or one of the wrong type, is a failed check, never an exception.
    """
    if not isinstance(result, dict):
        return [Check("result", False, "nothing" if result is None else type(result).__name__, "an object")]
    facts = ResultView(result, expected)
    schema = result.get("schema")
    if schema is True or schema != SCHEMA:
        return [Check("schema", False, show(schema), SCHEMA)]
    workload = result.get("workload")
    rules = _RULES.get(workload) if isinstance(workload, str) else None
    if rules is None:
        return [Check("workload", False, show(workload), " or ".join(_RULES))]
    return [check for rule in rules for check in rule(facts)]


def has_passed(checks: Sequence[Check]) -> bool:
    """Whether there are checks and all of them passed."""
    return bool(checks) and all(check.ok for check in checks)


def explain(result: object) -> List[str]:
    """Say what caused failed checks and what to do, in lines to print; [] where the checks say all that is known."""
    if not isinstance(result, dict) or result.get("workload") != "mpi":
        return []
    return mpi_library.explain(ResultView(result, None))


def _check_ranks_of_start(facts: ResultView) -> List[Check]:
    """Check the ranks of a start by a launcher; otherwise it is one process."""
    return check_ranks(facts) if facts.expected.get("ranks") is not None else []


_Rule = Callable[[ResultView], List[Check]]
_DEVICE = (check_device, check_torch)
_RULES: Dict[str, Tuple[_Rule, ...]] = {
    "probe": (
        check_error, check_ranks, check_probe.check_sums, check_probe.check_affinity,
        check_probe.check_devices, check_probe.check_network, check_probe.check_variables, check_probe.check_caches,
        check_probe.check_workers, *_DEVICE, check_backend, check_time,
    ),
    "mnist": (
        check_error, check_figures.check_accuracy, check_figures.check_loss, *_DEVICE,
        check_time,
    ),
    "ddp": (
        check_error, check_ranks, check_figures.check_accuracy, check_figures.check_loss,
        check_figures.check_rank_losses, check_figures.check_checksums, check_figures.check_shares,
        check_figures.check_orders, *_DEVICE, check_backend, check_time,
    ),
    "pi": (
        check_error, check_ranks, check_figures.check_integral, check_figures.check_times,
        check_torch, check_time,
    ),
    "allreduce": (
        check_error, check_ranks, check_figures.check_bandwidth, *_DEVICE,
        check_backend, check_time,
    ),
    "mpi": (check_error, check_ranks, check_mpi, check_time),
    "startup": (
        check_error, _check_ranks_of_start, check_figures.check_start, *_DEVICE, check_time,
    ),
    "imports": (check_error, check_modules, check_time),
}  # fmt: skip
