"""What a step asks of Slurm as a job. Its script has the same as `#SBATCH` lines, and is rendered from this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class StepJob:
    """One job: `gpus` is the site's own option for them (gpus-per-node=4), `options` are further ones of the site.

    In `log`, Slurm replaces %x by the name, %j by the number of the job, %A and %a by those of an array and its task.
    """

    name: str
    log: str = "%x-%j.log"
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 0  # 0: what the site gives
    gpus: str = ""
    minutes: int = 0  # the time limit, 0: that of the partition
    notice: int = 0  # seconds before the time limit at which the script gets SIGTERM
    partition: str = ""
    memory: str = ""  # of a node, as sbatch reads it: 64G
    account: str = ""
    array: str = ""  # which tasks, and how many at a time: 0-7%4
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def time(self) -> str:
        """The time limit as HH:MM:SS, "" where there is none."""
        return f"{self.minutes // 60:02d}:{self.minutes % 60:02d}:00" if self.minutes else ""

    @property
    def sbatch_options(self) -> dict[str, str]:
        """The long options of sbatch without their dashes, in the order of a script; "" for one without a value."""
        gpus, _, count = self.gpus.partition("=")
        found = {
            "job-name": self.name,
            "output": self.log,
            "array": self.array,
            "open-mode": "append",  # a job that Slurm starts again keeps what its first run said
            "signal": signal_option(self.notice) if self.notice else "",
            "nodes": str(self.nodes),
            "ntasks-per-node": str(self.tasks_per_node),
            "cpus-per-task": str(self.cpus_per_task or ""),
            gpus: count,
            "partition": self.partition,
            "mem": self.memory,
        }
        # An option without a value is one of the site's: exclusive.
        given = {name: value for name, value in found.items() if name and (value or name == gpus)}
        last = {"time": self.time, "account": self.account}
        return {**given, **self.options, **{name: value for name, value in last.items() if value}}


def signal_option(seconds: int) -> str:
    """The value of --signal: Slurm signals the job script, which passes it on (see record.sh)."""
    return f"B:TERM@{seconds}"
