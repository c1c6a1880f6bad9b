"""Start ranks on this host and supervise them: time limit, deaths, signals, the result."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

from . import gather
from . import gather as blame
from .exceptions import UsageError
from .options import WorkloadOptions
from .ranks import STATUS_LOST
from .run import STOP_SECONDS, WorkloadRun

_POLL = 0.05  # seconds
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_BLAME = 2.0  # seconds to wait for the rank at fault after another one lost it


class Supervisor(WorkloadRun):
    """The parent of our own ranks; only they import torch."""

    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__(options)
        self.world = options.ranks or 1
        self.children: List[subprocess.Popen[bytes]] = []
        self.caught: Optional[int] = None

    def supervise(self) -> int:
        """Run the ranks to their end and return the exit status; raises UsageError if no result can be written."""
        self.write_initial()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._catch)
        # next to the result: a writable folder on the host of all ranks
        where = os.path.dirname(os.path.abspath(self.options.result)) if self.options.result else None
        try:
            folder = tempfile.mkdtemp(prefix=".smoke-", dir=where)
        except OSError as fault:
            raise UsageError(f"the ranks have no folder to meet in: {fault.strerror or fault}; give --result") from None
        base = self.options.result or os.path.join(folder, "result")
        try:
            self._remove_old_records(base)
            error = self._run(folder, base)
        finally:
            self._end_children()
            records = self._records(base)
            shutil.rmtree(folder, ignore_errors=True)
        gather.assemble(self.result, records)
        return self.end(error, None if self.caught is None else 128 + self.caught)

    def _run(self, folder: str, base: str) -> Optional[str]:
        self.print_progress(f"starting {self.world} ranks")
        for rank in range(self.world):
            self.children.append(self._start(rank, folder, base))
        while self.caught is None and self.count_seconds_left() > 0:
            codes = [child.poll() for child in self.children]
            if any(codes):
                self._wait_for_blame()
                return self._blame(base)
            if None not in codes:
                return None
            time.sleep(_POLL)
        return self._cut_short(base)

    def _cut_short(self, base: str) -> str:
        """Describe the ranks when the limit or a signal came; with a snapshot they first stop in good order."""
        if self.caught is not None and self.options.snapshot is not None:
            for child in self.children:
                child.send_signal(self.caught)
            until = time.monotonic() + STOP_SECONDS + _POLL
            while time.monotonic() < until and any(child.poll() is None for child in self.children):
                time.sleep(_POLL)
            for entry in gather.read_records(base, self.world):
                if entry.get("stopped"):
                    return str(entry["error"])
        ending = "at its limit of {:g} s".format(self.options.timeout)
        if self.caught is not None:
            ending = "by " + signal.Signals(self.caught).name
        running = [rank for rank, child in enumerate(self.children) if child.poll() is None]
        waiting = blame.describe_unfinished(gather.read_records(base, self.world), running)
        return f"ended {ending}" + (f": {waiting}" if waiting else "")

    def _start(self, rank: int, folder: str, base: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-B", os.path.dirname(os.path.abspath(__file__)), *self.options.words]
        command += [
            f"--rendezvous={os.path.join(folder, 'store')}",  # with it --ranks has no effect
            f"--result={base}",
            # the parent's limit comes first, and its message says more
            f"--timeout={max(1.0, self.count_seconds_left()) + _GRACE}",
        ]
        # a new session: Ctrl-C reaches only the parent, which ends its ranks in order
        return subprocess.Popen(command, env=self._environment(rank), stdin=subprocess.PIPE, start_new_session=True)

    def _environment(self, rank: int) -> Dict[str, str]:
        environment = dict(os.environ)
        environment.pop("RECIPE_LOCAL_RANK", None)  # of the process that starts them
        environment.update(RANK=str(rank), WORLD_SIZE=str(self.world), LOCAL_RANK=str(rank))
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are on this host
        cores = max(1, len(os.sched_getaffinity(0)) // self.world)
        environment.setdefault("OMP_NUM_THREADS", str(cores))
        return environment

    def _wait_for_blame(self) -> None:
        """Wait a moment while all dead ranks died because they lost another one."""
        until = time.monotonic() + _BLAME
        while time.monotonic() < until:
            codes = [child.poll() for child in self.children]
            if any(code not in (None, 0, STATUS_LOST) for code in codes) or None not in codes:
                return
            time.sleep(_POLL)

    def _blame(self, base: str) -> str:
        """Name the rank that died: one killed by a signal, then one that failed, then one that lost others."""
        codes = {rank: child.poll() for rank, child in enumerate(self.children)}
        records = {entry["rank"]: entry for entry in gather.read_records(base, self.world)}
        for rank, code in codes.items():
            if code is not None and code < 0:
                state = records.get(rank, {}).get("state", "starting")
                return f"rank {rank} was {gather.describe_exit(code)} while {state}"
        failed = [rank for rank, code in codes.items() if code not in (None, 0, STATUS_LOST)]
        for rank in failed:
            text = records.get(rank, {}).get("error") or f"it left no reason ({gather.describe_exit(codes[rank] or 0)})"
            return f"rank {rank}: {text}"
        return blame.diagnose(list(records.values()), self.world) or "a rank failed and left no reason"

    def _end_children(self) -> None:
        """End the remaining ranks: SIGTERM, then SIGKILL, which also ends a stopped process."""
        alive = [child for child in self.children if child.poll() is None]
        for child in alive:
            child.terminate()
        until = time.monotonic() + _GRACE
        for child in alive:
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _records(self, base: str) -> List[Dict[str, Any]]:
        """Read the ranks' records and add how each process ended; a rank without a record gets a row as well."""
        found = {entry["rank"]: entry for entry in gather.read_records(base, self.world)}
        records = []
        for rank, child in enumerate(self.children):
            entry = found.get(rank, {"rank": rank, "state": "starting", "finished": False, "seconds": {}})
            entry["ended"] = gather.describe_exit(child.returncode)
            records.append(entry)
        return records

    def _remove_old_records(self, base: str) -> None:
        for path in gather.find_records(base):
            os.remove(path)

    def _catch(self, number: int, _frame: Any) -> None:
        self.caught = number
