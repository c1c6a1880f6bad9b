"""Which processes belong together: by session, by a mark in their environment, by descent."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

GRACE = 5.0  # seconds between SIGTERM and SIGKILL; Apptainer removes its temporary folders in that time
JOB = b"SLURM_JOB_ID="  # in the environment of all that a Slurm job runs


def find_members(leader: int | None, *, mark: bytes, other_jobs: bool = False) -> set[int]:
    """Find the live processes that a session's leader has started; a negative number is a whole group.

    A Slurm job that one of them submitted has the mark too, since sbatch passes its environment on; the job's processes
    are found with `other_jobs` only.
    """
    if not Path("/proc/self/stat").exists():  # no Linux: only what stayed in the group
        return _group(leader)
    return _find_family(leader, mark=mark, other_jobs=other_jobs)


def add_sessions(pids: set[int]) -> set[int]:
    """Return the processes with all others of their sessions, without our own session."""
    names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - as below
    found = {int(name): stat for name in names if (stat := _read_stat(name)) is not None}
    sessions = {found[pid][2] for pid in pids if pid in found} - {os.getsid(0)}
    return (pids | {pid for pid, stat in found.items() if stat[2] in sessions}) - {os.getpid()}


def is_alive(pid: int) -> bool:
    """Whether a process is running, and has not ended without being waited for."""
    return _read_stat(str(pid)) is not None


def find_orphans(members: set[int], number: signal.Signals) -> set[int]:
    """Find the members whose parent has ended and that a signal would end."""
    return {pid for pid in members if _has_default_action(pid, number) and _read_parent(pid) not in members}


def _group(leader: int | None) -> set[int]:
    if leader is None:
        return set()
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return set()
    return {-leader}


def _find_family(leader: int | None, *, mark: bytes, other_jobs: bool) -> set[int]:
    """Return the live processes of a session, those with the mark in their environment, and all their children."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of entries on a login node
        if not name.isdecimal() or int(name) == own:
            continue
        stat = _read_stat(name)
        if stat is None:
            continue
        pid, (parent, group, session) = int(name), stat
        parents[pid] = parent
        if (leader is not None and leader in (pid, group, session)) or _is_marked(name, mark, other_jobs=other_jobs):
            found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _is_marked(pid: str, mark: bytes, *, other_jobs: bool) -> bool:
    environ = _read_environ(pid)
    if mark not in environ:
        return False
    jobs = [entry[len(JOB) :] for entry in environ.split(b"\0") if entry.startswith(JOB)]
    return other_jobs or not jobs or jobs[0] == os.environb.get(JOB[:-1])


def _read_stat(pid: str) -> tuple[int, int, int] | None:
    """Return parent, group and session of a process, None if it has ended."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    state, parent, group, session = text.rpartition(b")")[2].split()[:4]
    return None if state in (b"Z", b"X") else (int(parent), int(group), int(session))


def _read_parent(pid: int) -> int:
    stat = _read_stat(str(pid))
    return stat[0] if stat else 0


def _has_default_action(pid: int, number: signal.Signals) -> bool:
    """Whether a process neither blocks nor ignores nor catches a signal (proc_pid_status(5))."""
    try:
        lines = _read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:"))]
    return bool(masks) and not any(mask >> (number - 1) & 1 for mask in masks)


def _read_environ(pid: str) -> bytes:
    try:
        return _read(f"/proc/{pid}/environ")
    except OSError:
        return b""


def _read(path: str) -> bytes:
    """Read a file of /proc; thousands are read at the end of every child, and open() takes three times as long."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while more := os.read(handle, 1 << 16):
            text += more
        return text
    finally:
        os.close(handle)


def end_marked(mark: bytes) -> None:
    """Stop the processes with a mark in their environment, and all of their sessions: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + GRACE
        members = add_sessions(find_members(None, mark=mark, other_jobs=True))
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while members and time.monotonic() < until:
            time.sleep(0.05)
            members = {pid for pid in members if is_alive(pid)}
        if not members:
            return
