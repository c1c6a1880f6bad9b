"""Check the probe of the ranks: cores against masks, devices, architecture, network, variables, caches, workers."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set

from .checks import Check, ResultView, join_limited, look_up, select_rows, show, to_integer

NETWORK_FILE_SYSTEMS = {
    "lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "9p", "panfs", "weka", "wekafs", "daos",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.dfuse", "pvfs2", "orangefs",
}  # fmt: skip


def check_affinity(facts: ResultView) -> List[Check]:
    """Check that each rank may run only on cores of its mask, and on enough of them."""
    masks, least = facts.expected.get("masks"), to_integer(facts.expected.get("cores"))
    checks = []
    if isinstance(masks, list) and masks:
        faults = [fault for entry in facts.list_ranks() for fault in _find_stray_cores(entry, masks)]
        checks.append(_check(facts, "affinity", faults, "inside its mask", f"inside {len(masks)} masks"))
    if least is not None:
        faults = [
            f"rank {show(entry.get('rank'))} has {len(_read_cores(entry))}"
            for entry in facts.list_ranks()
            if len(_read_cores(entry)) < least
        ]
        checks.append(_check(facts, "cores", faults, f">= {least}", f">= {least} for each rank"))
    return checks


def _find_stray_cores(entry: Dict[str, Any], masks: List[Any]) -> List[str]:
    cores, local = _read_cores(entry), to_integer(entry.get("local_rank"))
    name = f"rank {show(entry.get('rank'))}"
    if local is None or not 0 <= local < len(masks):
        return [f"{name} has local rank {show(local)}, for which there is no mask"]
    allowed = parse_mask(masks[local])
    if not cores:
        return [f"{name} reported no cores"]
    stray = sorted(cores - allowed)
    return [f"{name} has core {format_cores(stray)} outside {format_cores(sorted(allowed))}"] if stray else []


def parse_mask(mask: object) -> Set[int]:
    """Parse a hexadecimal mask to its cores; an invalid mask has none."""
    try:
        bits = int(mask, 16) if isinstance(mask, str) and len(mask) <= 1024 else 0
    except ValueError:
        bits = 0
    return {core for core in range(bits.bit_length()) if bits >> core & 1}


def format_cores(cores: List[int], most: int = 16) -> str:
    """Format cores as Linux lists them: 1-7,9; so many ranges at most."""
    parts: List[List[int]] = []
    for core in cores:
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts[:most]) + (",..." if len(parts) > most else "")


def check_devices(facts: ResultView) -> List[Check]:
    """Check the number of devices that the ranks of a host see together, and their architecture."""
    checks = []
    count = to_integer(facts.expected.get("devices"))
    if count is not None:
        seen: Dict[str, Set[str]] = {}
        for entry in facts.list_ranks():
            found = seen.setdefault(show(entry.get("host")), set())
            found.update(show(device.get("identity")) for device in select_rows(entry.get("devices")))
        faults = [f"{len(found)} on {host}" for host, found in seen.items() if len(found) != count]
        checks.append(_check(facts, "devices", faults, f"{count} on each host", f"{count} on each host"))
    checks += _check_local_ranks(facts)
    wanted = facts.expected.get("gfx")
    if isinstance(wanted, str):
        faults = [fault for entry in facts.list_ranks() for fault in _find_other_architecture(entry, wanted)]
        built = facts.find("torch", "architectures")
        kernels = [name for name in built if isinstance(name, str)] if isinstance(built, list) else []
        checks.append(_check(facts, "architecture", faults, wanted, wanted))
        shown = " ".join(show(name) for name in kernels[:24]) or "none"
        checks.append(Check("kernels", covers(kernels, wanted), shown, f"with {show(wanted)}"))
    return checks


def _check_local_ranks(facts: ResultView) -> List[Check]:
    """Check that LOCAL_RANK is the index of a device that the rank sees: programs select theirs by it."""
    faults, told = [], False
    for entry in facts.list_ranks():
        said, count = look_up(entry, "variables", "LOCAL_RANK"), to_integer(look_up(entry, "device", "count"))
        if look_up(entry, "device", "type") == "cpu" or not isinstance(said, str) or not said.isdecimal():
            continue
        told = True
        if count is None or len(said) > 9 or int(said) >= count:
            faults.append(f"rank {show(entry.get('rank'))} has {show(said)} and sees {show(count)}")
    return [_check(facts, "LOCAL_RANK", faults, "an index", "the index of a device")] if told else []


def _find_other_architecture(entry: Dict[str, Any], wanted: str) -> List[str]:
    found = look_up(entry, "device", "architecture")
    name = found.split(":")[0] if isinstance(found, str) else None  # gfx90a:sramecc+:xnack-
    return [] if name == wanted else [f"rank {show(entry.get('rank'))} has {show(found)}"]


def covers(kernels: List[str], wanted: str) -> bool:
    """Whether one of torch's architectures runs on this one; NVIDIA's run on later ones of the same generation."""
    if wanted in kernels:
        return True
    if not wanted.startswith("sm_") or not wanted[3:].isdecimal():
        return False
    numbers = [int(name[3:]) for name in kernels if name.startswith("sm_") and name[3:].isdecimal()]
    return any(number // 10 == int(wanted[3:]) // 10 and number <= int(wanted[3:]) for number in numbers)


def check_network(facts: ResultView) -> List[Check]:
    """Check that the first collective of every rank used the expected network."""
    wanted = facts.expected.get("network")
    if not isinstance(wanted, str) or not wanted:
        return []
    texts = [text for text in wanted.lower().split("|") if text]
    faults = []
    for entry in facts.list_ranks():
        told = look_up(entry, "network", "lines"), look_up(entry, "network", "libraries")
        words = [word.lower() for found in told if isinstance(found, list) for word in found if isinstance(word, str)]
        if not any(text in word for text in texts for word in words):
            used = look_up(entry, "network", "used")
            faults.append(f"rank {show(entry.get('rank'))} used {show(used)}")
    return [_check(facts, "network", faults, show(wanted), show(wanted))]


def check_variables(facts: ResultView) -> List[Check]:
    """Check that every rank has the expected variables."""
    wanted = facts.expected.get("variables")
    checks = []
    for name, value in wanted.items() if isinstance(wanted, dict) else ():
        faults = [
            f"rank {show(entry.get('rank'))} has {show(look_up(entry, 'variables', name))}"
            for entry in facts.list_ranks()
            if look_up(entry, "variables", name) != value
        ]
        checks.append(_check(facts, f"variable {show(name)}", faults, show(value), show(value)))
    return checks


def check_caches(facts: ResultView) -> List[Check]:
    """Check that kernel caches allow many writers: MIOpen's on no network file system, none under a given path."""
    kept_out = facts.expected.get("caches")
    prefixes = [path for path in kept_out if isinstance(path, str)] if isinstance(kept_out, list) else []
    faults, found = [], 0
    for entry in facts.list_ranks():
        for cache in select_rows(entry.get("caches")):
            found += 1
            fault = _find_cache_fault(cache, prefixes)
            if fault:
                faults.append(f"rank {show(entry.get('rank'))}: {fault}")
    if not found and not prefixes:
        return []
    expected = "on no network file system" + (
        f", not under {join_limited(list(map(show, prefixes)))}" if prefixes else ""
    )
    return [_check(facts, "caches", faults, f"{found} well placed", expected)]


def _find_cache_fault(cache: Dict[str, Any], prefixes: List[str]) -> Optional[str]:
    name, path, kind = cache.get("name"), cache.get("path"), cache.get("filesystem")
    if not isinstance(path, str):
        return f"{show(name)} has no path"
    if isinstance(name, str) and name.startswith("MIOPEN") and show(kind) in NETWORK_FILE_SYSTEMS:
        return f"{name} is on {kind}: {show(path)}"
    under = next((prefix for prefix in prefixes if f"{path}/".startswith(prefix.rstrip("/") + "/")), None)
    return None if under is None else f"{show(name)} is under {show(under)}: {show(path)}"


def check_workers(facts: ResultView) -> List[Check]:
    """Check that data loading workers start after torch and the network were used: by fork everywhere, by spawn."""
    checks = []
    for method in ("fork", "spawn"):
        faults, tried = [], 0
        for entry in facts.list_ranks():
            found = look_up(entry, "workers", method)
            if found is None:
                continue
            tried += 1
            if look_up(found, "error") is not None or not isinstance(found, dict) or "error" not in found:
                faults.append(f"rank {show(entry.get('rank'))} {show(look_up(found, 'error'))}")
        enough = tried == len(facts.list_ranks()) if method == "fork" else tried > 0
        measured = join_limited(faults) if faults else f"came up on {tried} ranks"
        checks.append(Check(f"workers by {method}", bool(tried) and enough and not faults, measured, "come up"))
    return checks


def check_sums(facts: ResultView) -> List[Check]:
    """Check the sum of the first collective on every rank."""
    faults = [f"rank {show(entry.get('rank'))}" for entry in facts.list_ranks() if entry.get("sum_right") is not True]
    return [_check(facts, "first sum", faults, "right", "right on every rank")]


def _read_cores(entry: Dict[str, Any]) -> Set[int]:
    found = entry.get("affinity")
    return (
        {core for core in map(to_integer, found) if core is not None and core >= 0}
        if isinstance(found, list)
        else set()
    )


def _check(facts: ResultView, name: str, faults: List[str], good: str, expected: str) -> Check:
    """Pass if there are ranks and no faults; else show the first few faults."""
    measured = join_limited(faults) if faults else f"{good} on {len(facts.list_ranks())} ranks"
    return Check(name, bool(facts.list_ranks()) and not faults, measured, expected)
