"""Judge what the ranks saw: cores against masks, devices, architecture, network, variables, caches, workers."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set

from .checks import Check, Facts, inside, listed, rows, show, whole

NETWORKED = {
    "lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "9p", "panfs", "weka", "wekafs", "daos",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.dfuse", "pvfs2", "orangefs",
}  # fmt: skip


def affinity(facts: Facts) -> List[Check]:
    """Each rank may run on cores of its mask alone, and on enough of them."""
    masks, least = facts.expected.get("masks"), whole(facts.expected.get("cores"))
    checks = []
    if isinstance(masks, list) and masks:
        faults = [fault for entry in facts.ranks() for fault in _outside(entry, masks)]
        checks.append(_check(facts, "affinity", faults, "inside its mask", f"inside {len(masks)} masks"))
    if least is not None:
        faults = [
            f"rank {show(entry.get('rank'))} has {len(_cores(entry))}"
            for entry in facts.ranks()
            if len(_cores(entry)) < least
        ]
        checks.append(_check(facts, "cores", faults, f">= {least}", f">= {least} for each rank"))
    return checks


def _outside(entry: Dict[str, Any], masks: List[Any]) -> List[str]:
    cores, local = _cores(entry), whole(entry.get("local_rank"))
    name = f"rank {show(entry.get('rank'))}"
    if local is None or not 0 <= local < len(masks):
        return [f"{name} has local rank {show(local)}, for which there is no mask"]
    allowed = cores_of(masks[local])
    if not cores:
        return [f"{name} told no cores"]
    stray = sorted(cores - allowed)
    return [f"{name} has core {span(stray)} outside {span(sorted(allowed))}"] if stray else []


def cores_of(mask: object) -> Set[int]:
    """The cores of a mask in hexadecimal; none of what is no mask."""
    try:
        bits = int(mask, 16) if isinstance(mask, str) and len(mask) <= 1024 else 0
    except ValueError:
        bits = 0
    return {core for core in range(bits.bit_length()) if bits >> core & 1}


def span(cores: List[int]) -> str:
    """Cores as Linux lists them: 1-7,9."""
    parts: List[List[int]] = []
    for core in cores:
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts[:16]) + (",..." if len(parts) > 16 else "")


def devices(facts: Facts) -> List[Check]:
    """The ranks of a host see so many devices together, of the architecture that was asked for."""
    checks = []
    count = whole(facts.expected.get("devices"))
    if count is not None:
        seen: Dict[str, Set[str]] = {}
        for entry in facts.ranks():
            found = seen.setdefault(show(entry.get("host")), set())
            found.update(show(device.get("identity")) for device in rows(entry.get("devices")))
        faults = [f"{len(found)} on {host}" for host, found in seen.items() if len(found) != count]
        checks.append(_check(facts, "devices", faults, f"{count} on each host", f"{count} on each host"))
    wanted = facts.expected.get("gfx")
    if isinstance(wanted, str):
        faults = [fault for entry in facts.ranks() for fault in _other_architecture(entry, wanted)]
        built = facts.at("torch", "architectures")
        kernels = [name for name in built if isinstance(name, str)] if isinstance(built, list) else []
        checks.append(_check(facts, "architecture", faults, wanted, wanted))
        shown = " ".join(show(name) for name in kernels[:24]) or "none"
        checks.append(Check("kernels", covers(kernels, wanted), shown, f"with {show(wanted)}"))
    return checks


def _other_architecture(entry: Dict[str, Any], wanted: str) -> List[str]:
    found = inside(entry, "device", "architecture")
    name = found.split(":")[0] if isinstance(found, str) else None  # gfx90a:sramecc+:xnack-
    return [] if name == wanted else [f"rank {show(entry.get('rank'))} has {show(found)}"]


def covers(kernels: List[str], wanted: str) -> bool:
    """Whether one of torch's architectures runs on this one: NVIDIA's run on later ones of the same generation."""
    if wanted in kernels:
        return True
    if not wanted.startswith("sm_") or not wanted[3:].isdecimal():
        return False
    numbers = [int(name[3:]) for name in kernels if name.startswith("sm_") and name[3:].isdecimal()]
    return any(number // 10 == int(wanted[3:]) // 10 and number <= int(wanted[3:]) for number in numbers)


def network(facts: Facts) -> List[Check]:
    """Every rank's first collective went by the network that was asked for."""
    wanted = facts.expected.get("network")
    if not isinstance(wanted, str) or not wanted:
        return []
    texts = [text for text in wanted.lower().split("|") if text]
    faults = []
    for entry in facts.ranks():
        told = inside(entry, "network", "lines"), inside(entry, "network", "libraries")
        words = [word.lower() for found in told if isinstance(found, list) for word in found if isinstance(word, str)]
        if not any(text in word for text in texts for word in words):
            used = inside(entry, "network", "used")
            faults.append(f"rank {show(entry.get('rank'))} used {show(used)}")
    return [_check(facts, "network", faults, show(wanted), show(wanted))]


def variables(facts: Facts) -> List[Check]:
    """Every rank has the variables that were asked for."""
    wanted = facts.expected.get("variables")
    checks = []
    for name, value in wanted.items() if isinstance(wanted, dict) else ():
        faults = [
            f"rank {show(entry.get('rank'))} has {show(inside(entry, 'variables', name))}"
            for entry in facts.ranks()
            if inside(entry, "variables", name) != value
        ]
        checks.append(_check(facts, f"variable {show(name)}", faults, show(value), show(value)))
    return checks


def caches(facts: Facts) -> List[Check]:
    """Kernel caches lie where many ranks may write: MIOpen's on no network file system, none under a given path."""
    kept_out = facts.expected.get("caches")
    prefixes = [path for path in kept_out if isinstance(path, str)] if isinstance(kept_out, list) else []
    faults, found = [], 0
    for entry in facts.ranks():
        for cache in rows(entry.get("caches")):
            found += 1
            fault = _misplaced(cache, prefixes)
            if fault:
                faults.append(f"rank {show(entry.get('rank'))}: {fault}")
    if not found and not prefixes:
        return []
    expected = "on no network file system" + (f", not under {listed(list(map(show, prefixes)))}" if prefixes else "")
    return [_check(facts, "caches", faults, f"{found} well placed", expected)]


def _misplaced(cache: Dict[str, Any], prefixes: List[str]) -> Optional[str]:
    name, path, kind = cache.get("name"), cache.get("path"), cache.get("filesystem")
    if not isinstance(path, str):
        return f"{show(name)} has no path"
    if isinstance(name, str) and name.startswith("MIOPEN") and show(kind) in NETWORKED:
        return f"{name} is on {kind}: {show(path)}"
    under = next((prefix for prefix in prefixes if f"{path}/".startswith(prefix.rstrip("/") + "/")), None)
    return None if under is None else f"{show(name)} is under {show(under)}: {show(path)}"


def workers(facts: Facts) -> List[Check]:
    """Workers that load data came up after torch and the network were in use: by fork everywhere, by spawn."""
    checks = []
    for method in ("fork", "spawn"):
        faults, tried = [], 0
        for entry in facts.ranks():
            found = inside(entry, "workers", method)
            if found is None:
                continue
            tried += 1
            if inside(found, "error") is not None or not isinstance(found, dict) or "error" not in found:
                faults.append(f"rank {show(entry.get('rank'))} {show(inside(found, 'error'))}")
        enough = tried == len(facts.ranks()) if method == "fork" else tried > 0
        measured = listed(faults) if faults else f"came up on {tried} ranks"
        checks.append(Check(f"workers by {method}", bool(tried) and enough and not faults, measured, "come up"))
    return checks


def sums(facts: Facts) -> List[Check]:
    """The first collective's sum is right on every rank."""
    faults = [f"rank {show(entry.get('rank'))}" for entry in facts.ranks() if entry.get("sum_right") is not True]
    return [_check(facts, "first sum", faults, "right", "right on every rank")]


def _cores(entry: Dict[str, Any]) -> Set[int]:
    found = entry.get("affinity")
    return {core for core in map(whole, found) if core is not None and core >= 0} if isinstance(found, list) else set()


def _check(facts: Facts, name: str, faults: List[str], good: str, expected: str) -> Check:
    """Good when there are ranks and none is at fault; else the first few faults."""
    measured = listed(faults) if faults else f"{good} on {len(facts.ranks())} ranks"
    return Check(name, bool(facts.ranks()) and not faults, measured, expected)
