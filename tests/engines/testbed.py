"""Sites cut down to the two-node Slurm of the tests, and their jobs run on it for real."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from recipe_program import Done, Room, run

from builder.compile.image_plans import make_image_target, make_smoke_plan
from builder.compile.launch.shape import choose_launch
from builder.execute.plan_folder import write_plan
from builder.model.recipe import Workload
from builder.model.target import Context
from builder.parse.site import load_site

HERE = Path(__file__).parent
MODULES = HERE / "stand_ins" / "module-stand-ins"
WITNESS = HERE / "witness.py"
TRAINING = HERE / "training.py"
LIMIT = 420.0  # seconds for a job on a busy machine, with its time in the queue

# Two nodes of two cores and two GPUs, partition "test": sizes and names are the test machine's, all else is the site's.
_NODE = "node: {cores: 2, usable_cores: 2, memory_gib: 8}"
_ONE = "{cpus_per_task: 1, options: {partition: test}}"
_TWO = "{tasks_per_node: 2, cpus_per_task: 1, gpus: 2, devices: 2, options: {partition: test}}"
_FOUR = "{tasks_per_node: 4, cpus_per_task: 1, gpus: 4, devices: 4, options: {partition: test}}"
# Two cards of two stacks: a rank a stack on half a core.
_STACKS = "{tasks_per_node: 4, cpus_per_task: 1, gpus: 2, devices: 4, options: {partition: test}}"
SITES = {
    "lumi-test": f"""
        extends: lumi-g
        {_NODE}
        gpu: {{devices: 2, scheduled: 2}}
        scheduler:
          jobs:
            gpu: {{options: {{partition: test, mem: 500M}}, cpus_per_task: 1}}
            node: {{tasks_per_node: 2, cpus_per_task: 1, gpus: 2, devices: 2, options: {{partition: test, mem: 1G}}}}
            nodes: {{tasks_per_node: 2, cpus_per_task: 1, gpus: 2, devices: 2, options: {{partition: test, mem: 1G}}}}
            build: {_ONE}
        launch: {{cpu_masks: ["0x2", "0x1"]}}
        """,
    "frontier-test": f"""
        extends: frontier
        {_NODE}
        gpu: {{devices: 2, scheduled: 2}}
        scheduler:
          gpu_option: "gres=gpu:{{gpus}}"
          jobs: {{gpu: {_ONE}, node: {_TWO}, nodes: {_TWO}, build: {_ONE}}}
        launch: {{gpu_order: [1, 0]}}
        """,
    "dawn-test": f"""
        extends: dawn
        node: {{cores: 4, usable_cores: 4, memory_gib: 8}}
        gpu: {{devices: 4, scheduled: 2}}
        scheduler:
          jobs: {{gpu: {_ONE}, node: {_STACKS}, nodes: {_STACKS}, build: {_ONE}}}
        """,
    "mn5-test": f"""
        extends: mn5
        {_NODE}
        gpu: {{devices: 2, scheduled: 2}}
        scheduler:
          jobs:
            gpu: {{cpus_per_task: 1, options: {{qos: , partition: test}}}}
            node: {{cpus_per_task: 2, gpus: 2, devices: 2, options: {{qos: , partition: test}}}}
            nodes: {{cpus_per_task: 2, gpus: 2, devices: 2, options: {{qos: , partition: test}}}}
        """,
    # Nodes that have twice the devices of the test machine's: two of four are a part of them.
    "lumi-part": f"""
        extends: lumi-g
        node: {{cores: 4, usable_cores: 4, memory_gib: 8}}
        gpu: {{devices: 4, scheduled: 4}}
        scheduler:
          jobs:
            gpu: {{options: {{partition: test, mem: 500M}}, cpus_per_task: 1}}
            node: {{tasks_per_node: 4, cpus_per_task: 1, gpus: 4, devices: 4, options: {{partition: test, mem: 2G}}}}
            nodes: {{tasks_per_node: 4, cpus_per_task: 1, gpus: 4, devices: 4, options: {{partition: test, mem: 2G}}}}
            build: {_ONE}
        launch: {{cpu_masks: ["0x2", "0x1", "0x8", "0x4"]}}
        """,
    "frontier-part": f"""
        extends: frontier
        node: {{cores: 4, usable_cores: 4, memory_gib: 8}}
        gpu: {{devices: 4, scheduled: 4}}
        scheduler:
          submit: []  # what a login shell of the site sets up comes from the tests' environment
          gpu_option: "gres=gpu:{{gpus}}"
          jobs: {{gpu: {_ONE}, node: {_FOUR}, nodes: {_FOUR}, build: {_ONE}}}
        launch: {{gpu_order: [], environment: {{SLURM_CPU_BIND: cores}}}}  # as the site's Slurm does by itself
        """,
    "mn5-part": """
        extends: mn5
        node: {cores: 4, usable_cores: 4, memory_gib: 8}
        gpu: {devices: 4, scheduled: 4}
        scheduler:
          jobs:
            gpu: {cpus_per_task: 1, options: {qos: , partition: test}}
            node: {cpus_per_task: 4, gpus: 4, devices: 4, options: {qos: , partition: test}}
            nodes: {cpus_per_task: 4, gpus: 4, devices: 4, options: {qos: , partition: test}}
        """,
    "cpu-test": """
        extends: local
        node: {cores: 2, usable_cores: 2, memory_gib: 8, source: [own]}
        scheduler:
          kind: slurm
          source: [own]
          jobs:
            gpu: {nodes: 1, tasks_per_node: 1, cpus_per_task: 1, minutes: 15, options: {partition: test}}
            node: {nodes: 1, tasks_per_node: 2, cpus_per_task: 1, minutes: 10, options: {partition: test}}
            nodes: {nodes: 2, tasks_per_node: 1, cpus_per_task: 1, minutes: 15, options: {partition: test}}
        launch:
          launcher: srun
          master_port: "10000+job"
          environment: {SITE_TEST_MARK: "of the site"}
          source: [own]
        """,
}

# MareNostrum 5 without its QOS, with the tests' partition; the machine is a CPU one.
MN5_BED = """
    extends: mn5-gpp
    runtime: {{zstd: "yes"}}
    node: {{cores: 2, usable_cores: 2, memory_gib: 8}}
    scheduler:
      jobs:
        gpu: {{cpus_per_task: 1, options: {{qos: , partition: test}}}}
        node: {{tasks_per_node: 2, cpus_per_task: 1, options: {{qos: , partition: test}}}}
        nodes: {{tasks_per_node: 1, cpus_per_task: 1, options: {{qos: , partition: test}}}}
        convert: {{minutes: 15, options: {{qos: , exclusive: , partition: test}}}}
    base_images:
      - reference: docker://{base}
        python: "3.11"
        provides: {{torch: "{torch}"}}
        glibc: "2.36"
        source: [own]
"""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """What the witness saw in one rank."""

    environment: dict[str, str]
    cores: list[int]
    arguments: list[str]
    command_lines: list[str]
    folder: str
    host: str
    mounted: bool
    plugin: bool
    folders: list[str]

    def values(self, *names: str) -> list[str | None]:
        """Variables of the rank; None for one that is not set."""
        return [self.environment.get(name) for name in names]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that has ended: its number, how it ended, its log and what its ranks saw."""

    number: int
    code: int
    log: str
    ranks: tuple[Rank, ...]
    record: Mapping[str, Any]

    def expect(self, code: int) -> Job:
        """Itself, if it ended with the code; its log otherwise."""
        assert self.code == code, f"exit code {self.code}, not {code}\n{self.log}"
        return self


class Kit:
    """A plan folder of a site for an image that exists, and the jobs submitted from it."""

    def __init__(
        self,
        room: Room,
        site: str,
        image: Path,
        *,
        workloads: tuple[Workload, ...] | None = None,
        launcher: str | None = None,
    ) -> None:
        self.image, self.folder = image, room.folder / f"kit-{site}"
        if site in SITES:
            room.site(site, SITES[site])
        loaded = choose_launch(load_site(site, folder=room.sites), launcher=launcher)
        context = Context(tool="recipe of the tests")
        plan = make_smoke_plan(make_image_target(loaded, image=str(image), context=context, workloads=workloads))
        write_plan(plan, self.folder, recipe_folder=self.folder)
        shutil.copy(WITNESS, self.folder)
        self.environment = room.environment(RECIPE_IMAGE=str(image), MODULEPATH=str(MODULES))

    def shorten_training(self, *options: str) -> None:
        """Have the suites train with these options: where the accuracy is not what is tested."""
        for script in (self.folder / "run").glob("*.sbatch"):
            text = script.read_text()
            script.write_text(text.replace("every_rank ddp ", f"every_rank ddp {shlex.join(options)} "))

    def run(self, script: str, *words: str, **environment: str) -> Done:
        """Run a script of the kit on this machine."""
        return run(["bash", script, *words], cwd=self.folder, env=self.environment | environment)

    def submit(self, script: str, *words: str, options: tuple[str, ...] = (), **environment: str) -> int:
        """Submit a script of the kit: the number of the job."""
        done = run(
            ["sbatch", "--parsable", *options, script, *words], cwd=self.folder, env=self.environment | environment
        ).expect(0)
        return int(done.out.strip().partition(";")[0])

    def job(self, script: str, *words: str, options: tuple[str, ...] = (), **environment: str) -> Job:
        """Submit a script of the kit and wait until its record is there."""
        number = self.submit(script, *words, options=options, **environment)
        record = self.record(number)
        (log,) = self.folder.glob(f"*-{number}.log")
        return Job(
            number=number,
            code=record["exit_code"],
            log=log.read_text(errors="replace"),
            ranks=(),
            record=record,
        )

    def witness(self, script: str, *, options: tuple[str, ...] = (), **environment: str) -> Job:
        """Submit the witness and gather what its ranks saw."""
        seen = self.folder / "seen"
        shutil.rmtree(seen, ignore_errors=True)
        seen.mkdir()
        job = self.job(script, "python3", "witness.py", "seen", "a b", "$HOME", options=options, **environment)
        job.expect(0)
        paths = sorted(seen.glob("rank-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
        ranks = tuple(Rank(**json.loads(path.read_text())) for path in paths)
        return Job(number=job.number, code=job.code, log=job.log, ranks=ranks, record=job.record)

    def record(self, number: int) -> Mapping[str, Any]:
        path = self.folder / "jobs" / f"{number}.json"
        end = time.monotonic() + LIMIT
        while not path.exists():
            if time.monotonic() > end:
                state = run(["scontrol", "show", "job", str(number)]).out
                run(["scancel", str(number)])
                raise AssertionError(f"job {number} left no record in {LIMIT} s\n{state}\n{self._logs()}")
            time.sleep(0.1)
        return dict(json.loads(path.read_text()))

    def ended(self, number: int) -> Mapping[str, Any]:
        """The last record of a job: one that is signalled writes one at once."""
        end = time.monotonic() + LIMIT
        while str(number) in run(["squeue", "--noheader", "--format=%i"]).expect(0).out.split():
            assert time.monotonic() < end, "the job does not end"
            time.sleep(0.2)
        return self.record(number)

    def until_said(self, number: int, text: str) -> None:
        """Wait for a text in the log of a job."""
        end = time.monotonic() + LIMIT
        while not any(text in path.read_text(errors="replace") for path in self.folder.glob(f"*-{number}.log")):
            assert time.monotonic() < end, f"'{text}' did not come in time\n{self._logs()}"
            time.sleep(0.1)

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))


def near_the_limit(job: str, *, soon: bool = False, by_hand: bool = False) -> None:
    """Move the time limit of a running job so near that it is told, with a minute left at least.

    Slurm tells it within the half minute between two looks of its own; `by_hand` sends the same at once, for what that
    does. With `soon` the limit is a little more than that half minute away: for what is going to be killed.
    """
    if soon:
        run(["scontrol", "update", f"JobId={job}", f"EndTime={datetime.now() + timedelta(seconds=35):%FT%T}"]).expect(0)
        return
    (clock,) = run(["squeue", "--noheader", f"--jobs={job}", "--format=%M"]).expect(0).out.split()
    minutes = int(clock.partition(":")[0])
    run(["scontrol", "update", f"JobId={job}", f"TimeLimit={minutes + 2}"]).expect(0)
    if by_hand:
        run(["scancel", "--signal=TERM", "--batch", job]).expect(0)


def saved(folder: Path) -> list[list[int | bool] | None]:
    """What each of four ranks of the training has saved: the signal, and whether the image was there."""
    paths = [folder / f"saved-{rank}" for rank in range(4)]
    return [json.loads(path.read_text()) if path.exists() else None for path in paths]
