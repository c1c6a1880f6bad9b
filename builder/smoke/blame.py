"""Say which rank a failed run is to be blamed on, from what the ranks left: the one to blame often left nothing."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

STALE = 5.0  # seconds without a sign of life, of which there is one every 2 s
_CLOSED = ("closed by peer", "reset by peer", "refused", "broken pipe", "connection closed", "remote process exited")


def diagnose(records: List[Dict[str, Any]], world: int) -> Optional[str]:
    """Name the rank at fault: one that failed itself, before those absent, before one silent, before bystanders."""
    ordered = sorted(records, key=lambda entry: int(entry["rank"]))
    failed = [entry for entry in ordered if entry.get("error") and not entry.get("ended_early")]
    own = [entry for entry in failed if not entry.get("lost")]
    if own:
        return _said(own[0])
    absent = [entry for entry in failed if entry.get("absent")]
    if absent:
        return _said(absent[0])
    lost = [entry for entry in failed if entry.get("lost")]
    seen = f" ({_said(lost[0])})" if lost else ""
    known = {int(entry["rank"]) for entry in ordered}
    missing = [f"rank {rank} never reported" for rank in range(world) if rank not in known]
    if missing:
        return ", ".join(missing[:4]) + _more(missing, 4) + seen
    quiet = silent(ordered)
    gone = stale(ordered, quiet) or quiet  # who lives says so within a moment
    if gone and len(gone) < len(ordered):
        closed = any(word in str(entry["error"]).lower() for entry in lost for word in _CLOSED)
        names = [_last_seen(entry, ordered, "died" if closed else "died or hung") for entry in gone]
        return ", ".join(names[:4]) + _more(names, 4) + seen
    return _said(lost[0]) if lost else None


def silent(records: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The records that are neither finished nor say why not."""
    return [entry for entry in records if not entry.get("finished") and not entry.get("error")]


def stale(records: List[Dict[str, Any]], among: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Those of whom nothing was heard for a while before the last that was heard of any rank."""
    return [entry for entry in among if _quiet_for(entry, records) > STALE]


def unfinished(records: List[Dict[str, Any]], ranks: Iterable[int]) -> str:
    """Say what each of these ranks was doing when it was last heard of, leaving out those that had finished."""
    known = {entry["rank"]: entry for entry in records}
    waiting = []
    for rank in ranks:
        entry = known.get(rank)
        if entry is None:
            waiting.append(f"rank {rank} never reported")
        elif not entry.get("finished"):
            away = _quiet_for(entry, records)
            quiet = f" (nothing heard of it for {away:.0f} s)" if away > STALE else ""
            waiting.append(f"rank {rank} was {entry.get('state', 'starting')}{quiet}")
    return ", ".join(waiting[:8]) + _more(waiting, 8)


def _last_seen(entry: Dict[str, Any], records: List[Dict[str, Any]], how: str) -> str:
    away = _quiet_for(entry, records)
    heard = f", {away:.0f} s before the others were last heard of" if away > STALE else ""
    return f"rank {entry['rank']} on {entry.get('host', 'an unknown host')} {how} while {entry.get('state')}{heard}"


def _quiet_for(entry: Dict[str, Any], records: List[Dict[str, Any]]) -> float:
    """Seconds between the last sign of this rank and of any; both are of files on one file system."""
    newest = max((float(other.get("heard", 0.0)) for other in records), default=0.0)
    return newest - float(entry.get("heard", newest))


def _said(entry: Dict[str, Any]) -> str:
    return f"rank {entry['rank']}: {entry['error']}"


def _more(parts: List[str], shown: int) -> str:
    return f" and {len(parts) - shown} more" if len(parts) > shown else ""
