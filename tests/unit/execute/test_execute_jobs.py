"""Jobs without Slurm: what the user may say, what sbatch is told, what its answers mean, what is kept of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.rows import rows

from builder.compile.step_scripts import parse_minutes
from builder.execute.build_options import JobOverrides, read_overrides
from builder.execute.judgement import judge_suite, list_suite_shapes
from builder.execute.step_runner import OutputStat
from builder.model.finding import ConfigError
from builder.model.plan import Plan, Step, StepJob
from builder.slurm.client import JobState, Slurm, explain_endless_wait, explain_rejection
from builder.slurm.ledger import (
    Ledger,
    SubmittedJob,
    forget_command,
    keep_command,
    name_ledger_file,
    read_ledger,
    read_record,
    write_ledger,
)
from builder.slurm.monitor import LAG, Follower, JobResult, LogTail, Monitor, find_job_fault
from builder.slurm.submit import SubmitOptions, make_arguments
from builder.system.process import CapturedOutput

PlanOf = Callable[..., Plan]
DEMO = StepJob(name="demo-build", minutes=60, notice=120)


def batch_step(plan_of: PlanOf) -> Step:
    return plan_of({"build": {"text": "", "produces": ("image.sif",), "batch": "build.sbatch", "job": DEMO}}).steps[0]


def words(plan_of: PlanOf, *, overrides: JobOverrides | None = None, **batch: Any) -> tuple[str, ...]:
    after = batch.pop("after", ())
    return make_arguments(
        batch_step(plan_of),
        batch=SubmitOptions(kind="build", overrides=overrides or JobOverrides(), **batch),
        after=after,
    )


def test_sbatch_is_told_the_name_and_the_log_again(plan_of: PlanOf) -> None:
    assert words(plan_of) == ("--job-name=demo-build", "--output=demo-build-%j.log", "build.sbatch")


def test_a_job_that_waits_for_another_never_waits_for_ever(plan_of: PlanOf) -> None:
    assert words(plan_of, after=("12",))[2:-1] == ("--dependency=afterok:12", "--kill-on-invalid-dep=yes")


def test_a_shorter_job_is_told_later_that_it_ends(plan_of: PlanOf) -> None:
    overrides = JobOverrides(values={"time": {"build": "2"}, "partition": {"": "small"}}, account="a_1")
    found = words(plan_of, overrides=overrides)
    assert found[2:-1] == ("--partition=small", "--time=2", "--account=a_1", "--signal=B:TERM@30")


def test_where_nothing_is_inherited_names_go_along_and_no_values(plan_of: PlanOf) -> None:
    environment = {"PIP_INDEX_URL": "https://user:secret@host", "HOME": "/home/me"}
    found = words(
        plan_of, site_options=("--export=NONE",), environment=environment, variables={"RECIPE_IMAGE": "/x,y.sif"}
    )
    assert "--export=PIP_INDEX_URL,RECIPE_FOLDER,RECIPE_IMAGE,RECIPE_UV" in found
    assert not any("secret" in word or "HOME" in word for word in found)
    # What the site sets, and the user has exported, goes along too.
    environment |= {"FI_PROVIDER": "psm3", "SLURM_CPU_BIND": "none"}
    found = words(
        plan_of, site_options=("--export=NONE",), environment=environment,
        site_variables=("FI_PROVIDER", "CCL_MNIC", "SLURM_CPU_BIND"),
    )  # fmt: skip
    assert "--export=FI_PROVIDER,PIP_INDEX_URL,RECIPE_FOLDER,RECIPE_UV" in found


def test_security_23_the_words_of_a_command_are_in_a_file_of_its_user_alone(plan_of: PlanOf, tmp_path: Path) -> None:
    command = ("python3", "--token", "S3CRET", "$(id)", "a b", "", "two\nlines")
    kept = keep_command(command, tmp_path)
    assert (tmp_path / kept).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / kept).read_bytes().split(b"\0") == [*(word.encode() for word in command), b""]
    assert words(plan_of, command=kept)[-1] == "build.sbatch"  # what squeue, ps and submitted.json show ends here
    assert keep_command(command, tmp_path) != kept
    write_ledger(Ledger(site="s", kind="run", output="/x.sif", command=kept).add_job(JOB), tmp_path)
    assert "S3CRET" not in name_ledger_file(tmp_path).read_text()
    forget_command(kept, tmp_path)
    assert not (tmp_path / kept).exists()


GOOD = {"partition": ["small", "smoke=dev-g"], "time": ["01:00:00"], "mem": ["64G"], "qos": []}


def test_values_for_all_and_for_one() -> None:
    overrides = read_overrides(GOOD, steps=["build-image", "smoke"], account="a", dependency="afterok:12")
    assert (overrides.find("partition", step="build-image"), overrides.find("partition", step="smoke")) == (
        "small",
        "dev-g",
    )
    assert (overrides.find("mem", step="smoke"), overrides.find("qos", step="smoke")) == ("64G", "")


@rows(
    ("given", "dependency"),
    [
        ({"partition": ["--wrap=id"]}, ""),
        ({"partition": ["a b"]}, ""),
        ({"partition": ["a\n#SBATCH --wrap=id"]}, ""),
        ({"qos": ["$(id)"]}, ""),
        ({"time": ["soon"]}, ""),
        ({"mem": ["64 G"]}, ""),
        ({"time": ["bild=10"]}, ""),
        ({}, "afterok:12,--wrap=id"),
        ({}, "afterok"),
    ],
)
def test_what_is_no_value_is_refused(given: Mapping[str, list[str]], dependency: str) -> None:
    with pytest.raises(ConfigError):
        read_overrides(given, steps=["build-image"], account="", dependency=dependency)


@rows(
    ("text", "minutes"),
    [("90", 90), ("90:30", 91), ("01:30:00", 90), ("1-0", 1440), ("1-02:03", 1563), ("2-00:00:01", 2881)],
)
def test_slurms_forms_of_a_time(text: str, minutes: int) -> None:
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize("text", ["UNLIMITED", "infinite", ""])
def test_no_limit_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_minutes(text)


@rows(
    ("said", "code", "word"),
    [
        ("sbatch: error: invalid partition specified: nope\nallocation failure: x", "job-partition", "'nope'"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "job-account", "SBATCH_ACCOUNT"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "job-qos", "--qos"),
        ("allocation failure: Requested node configuration is not available", "job-size", "--partition"),
        ("sbatch: error: Invalid --time specification", "job-time", "HH:MM:SS"),
        ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)", "job-time", "less"),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", "no-slurm", "try again"),
        ("sbatch: error: something new", "job-refused", "something new"),
        ("", "job-refused", "nothing"),
    ],
)  # fmt: skip
def test_refusals_are_explained(said: str, code: str, word: str) -> None:
    finding = explain_rejection(said, step="smoke")
    assert finding.code == code
    assert word in f"{finding.message} {finding.fix}"
    assert "{" not in finding.message


@rows(
    ("reason", "code"),
    [
        ("PartitionTimeLimit", "job-time"),
        ("Job's account not known, so it can't use this partition (closed allows good)", "job-account"),
        ("AccountNotAllowed", "job-account"),
        ("DependencyNeverSatisfied", "job-dependency"),
        ("Priority", None),
        ("Resources", None),
        ("Dependency", None),
        ("QOSMaxJobsPerUserLimit", None),
    ],
)
def test_a_job_that_would_wait_for_ever(reason: str, code: str | None) -> None:
    finding = explain_endless_wait(reason, step="smoke", job="12")
    assert (finding.code if finding else None) == code


# --- what is kept ----------------------------------------------------------------------------------------------------

JOB = SubmittedJob(
    job="12",
    step="build",
    script="build.sbatch",
    log="b-12.log",
    after=("11",),
    submitted=1.5,
    argv=("sbatch", "build.sbatch"),
    before={"x.sif": None, "y": OutputStat(device=1, inode=2, size=3, modified=4, changed=5)},
)


def test_the_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_ledger(tmp_path) is None
    ledger = Ledger(site="s", kind="build", output="/x.sif").add_job(JOB)
    write_ledger(ledger, tmp_path)
    assert read_ledger(tmp_path) == ledger
    assert json.loads(name_ledger_file(tmp_path).read_text())["schema"] == 1


@rows("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "site": "s", "jobs": [{"job": "1;x"}]}'])
def test_a_damaged_ledger_is_said(tmp_path: Path, text: str) -> None:
    name_ledger_file(tmp_path).parent.mkdir()
    name_ledger_file(tmp_path).write_text(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_ledger(tmp_path)


RECORD = {"schema": 1, "job": "12", "exit_code": 3, "reason": "", "started": 10, "ended": 14, "nodes": "n1", "log": "l"}


def test_a_record(tmp_path: Path) -> None:
    (tmp_path / "jobs/12.json").parent.mkdir()
    (tmp_path / "jobs/12.json").write_text(json.dumps(RECORD))
    found = read_record(tmp_path, "12")
    assert found is not None
    assert (found.exit_code, found.seconds, found.nodes) == (3, 4.0, "n1")


@rows("change", [{"job": "13"}, {"schema": 2}, {"exit_code": "x"}, {"started": None}])
def test_what_is_no_record(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "jobs/12.json").parent.mkdir()
    (tmp_path / "jobs/12.json").write_text(json.dumps({**RECORD, **change}))
    assert read_record(tmp_path, "12") is None


@rows(
    ("end", "code"),
    [
        (JobResult(exit_code=143, reason="time limit", recorded=True), "job-time-limit"),
        (JobResult(exit_code=1, word="TIMEOUT"), "job-time-limit"),
        (JobResult(exit_code=143, reason="cancelled", recorded=True, word="CANCELLED"), "job-cancelled"),
        (JobResult(exit_code=1, word="OUT_OF_MEMORY", recorded=True), "no-memory"),
        (JobResult(exit_code=1, word="FAILED"), "job-no-record"),
        (JobResult(exit_code=0, word="COMPLETED"), "job-no-record"),
        (JobResult(exit_code=1, word="JobLaunchFailure"), "job-launch"),
        (JobResult(exit_code=0, word="COMPLETED", recorded=True), None),
        (JobResult(exit_code=1, word="LOST"), "job-lost"),
        (JobResult(exit_code=1, word="NODE_FAIL", recorded=True), "job-node"),
        (JobResult(exit_code=1, word="FAILED", recorded=True), None),
        (JobResult(exit_code=7, recorded=True), None),
    ],
)
def test_what_slurm_did_to_a_job(end: JobResult, code: str | None, tmp_path: Path) -> None:
    finding = find_job_fault(JOB, end, folder=tmp_path)
    assert (finding.code if finding else None) == code


def test_a_disk_without_room_is_why_a_record_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = JobResult(exit_code=9, word="FAILED")
    finding = find_job_fault(JOB, end, folder=tmp_path)
    assert finding is not None
    assert finding.message == "job 12 of step 'build' failed with exit code 9, says Slurm, and left no record"
    monkeypatch.setattr("builder.slurm.monitor.SMALL", 1 << 62)
    finding = find_job_fault(JOB, end, folder=tmp_path)
    assert finding is not None
    assert finding.message.endswith(f"and left no record: the disk of '{tmp_path}' is full")


@rows(
    ("scontrol", "sacct", "code"),
    [
        ("JobId=12\n   Requeue=1 Reboot=0 ExitCode=9:0\n   DerivedExitCode=3:0\n", "", 9),
        ("   Requeue=1 Reboot=0 ExitCode=0:15\n", "", 143),
        ("   Requeue=1 Reboot=0 ExitCode=0:53\n", "", None),  # a word of Slurm's, no signal
        ("slurm_load_jobs error: Invalid job id specified\n", "7:0\n", 7),
        ("slurm_load_jobs error: Invalid job id specified\n", "Slurm accounting storage is disabled\n", None),
    ],
)
def test_how_a_script_ended_by_slurms_word(
    scontrol: str, sacct: str, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"scontrol": scontrol, "sacct": sacct}

    def answer(argv: Sequence[str], **_: Any) -> CapturedOutput:
        return CapturedOutput(exit_code=0, text=answers[argv[0]])

    monkeypatch.setattr("builder.slurm.client.capture", answer)
    assert Slurm({}).exit_code("12") == code


# --- the verdict of a suite ------------------------------------------------------------------------------------------

STEP = Step(name="s", kind="smoke", why="w", script="s", produces=("results/nodes/verdict.json",))
GOOD_CHECK = {"name": "world", "ok": True, "measured": 4, "expected": 4}


def judged(tmp_path: Path, verdict: Any) -> list[tuple[str, bool]]:
    place = tmp_path / "results" / "nodes"
    place.mkdir(parents=True)
    (place / "verdict.json").write_text(verdict if isinstance(verdict, str) else json.dumps(verdict))
    assert list_suite_shapes(STEP) == ("nodes",)
    return [(check.name, check.ok) for check in judge_suite("nodes", tmp_path)[1]]


def test_a_good_suite(tmp_path: Path) -> None:
    found = {"verdict": "pass", "workloads": {"ddp": {"verdict": "pass", "checks": [GOOD_CHECK]}}}
    assert judged(tmp_path, found) == [("nodes/ddp: world", True), ("nodes: verdict", True)]


@rows(
    "verdict",
    [
        "", "[]", "{}", {"verdict": "FAIL"}, {"verdict": "pass", "workloads": {"ddp": {"verdict": "pass"}}},
        {"verdict": "pass", "workloads": {"ddp": {"verdict": "FAIL", "checks": [GOOD_CHECK]}}},
        {"verdict": "pass", "workloads": {"ddp": {"verdict": "pass", "checks": [{**GOOD_CHECK, "ok": 1}]}}},
    ],
)  # fmt: skip
def test_a_suite_that_is_not_proven(tmp_path: Path, verdict: Any) -> None:
    assert not all(ok for _, ok in judged(tmp_path, verdict))


def test_codes_have_no_blanks() -> None:
    from builder.slurm.monitor import FATES

    assert all(re.fullmatch(r"[a-z-]+", code) for code, _, _ in FATES.values())


# --- the end of a job ------------------------------------------------------------------------------------------------


class Answers:
    """Stands in for the controller's answers alone: what it says of job 12, one word a question."""

    def __init__(self, *words: str, started: float = 0.0, ended: float = 0.0) -> None:
        self.words, self.started, self.ended = list(words), started, ended

    def query_states(self, jobs: Sequence[str]) -> dict[str, JobState] | None:
        word = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        stages: dict[str, Any] = {"RUNNING": "running", "COMPLETING": "running", "PENDING": "waiting"}
        started = self.started if word != "COMPLETING" else 0.0
        stage = stages.get(word, "ended")
        return {jobs[0]: JobState(stage=stage, word=word, nodes="n1", started=started, ended=self.ended)}

    def exit_code(self, job: str) -> int | None:
        return 9 if job == "12" else None


def follower(folder: Path, *words: str, started: float = 0.0, ended: float = 0.0) -> tuple[Follower, list[str]]:
    lines: list[str] = []
    log = LogTail(folder=folder, name="b-12.log", on_line=lines.append, mask=str)
    slurm: Any = Answers(*words, started=started, ended=ended)
    watch = Follower(job=JOB, folder=folder, monitor=Monitor(slurm), log=log, on_tick=lambda: None, note=lambda _: None)
    return watch, lines


def test_the_record_of_a_job_that_must_end_waits_for_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "jobs/12.json", tmp_path / "b-12.log"
    path.parent.mkdir()
    told = {**RECORD, "exit_code": 143, "reason": "time limit", "ending": True}
    path.write_text(json.dumps(told))
    log.write_text("begun\n")
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            log.write_text("begun\nsaved\n")
            path.write_text(json.dumps({**told, "ending": False}))

    monkeypatch.setattr("builder.slurm.monitor.time.sleep", sleep)
    monkeypatch.setattr("builder.slurm.monitor.LAG", 0.0)
    watch, lines = follower(tmp_path, "RUNNING")
    end = watch.follow()
    assert (end.exit_code, end.reason, lines) == (143, "time limit", ["begun", "saved"])
    assert len(naps) == 3


def test_a_job_killed_before_its_last_record_keeps_its_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs/12.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**RECORD, "exit_code": 143, "reason": "cancelled", "ending": True}))
    monkeypatch.setattr("builder.slurm.monitor.time.sleep", lambda _: None)
    monkeypatch.setattr("builder.slurm.monitor.LAG", 0.0)
    monkeypatch.setattr("builder.slurm.monitor.ASK", (0.0, 0.0))
    watch, _ = follower(tmp_path, "RUNNING", "CANCELLED")
    end = watch.follow()
    assert (end.exit_code, end.reason, end.recorded, end.word) == (143, "cancelled", True, "CANCELLED")


@rows(
    ("ago", "looks"),
    [
        (60.0, 0),  # what its node has written is here
        (LAG - 2, 2),
        (0.0, 15),
        (-60.0, 15),  # another clock
        (None, 15),  # Slurm does not say when
    ],
)
def test_a_record_is_waited_for_as_long_as_files_may_lag(
    ago: float | None, looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, naps = 1000.0, list[float]()
    monkeypatch.setattr("builder.slurm.monitor.time.sleep", naps.append)
    monkeypatch.setattr("builder.slurm.monitor.time.monotonic", lambda: len(naps) * 1.0)
    monkeypatch.setattr("builder.slurm.monitor.time.time", lambda: now)
    watch, _ = follower(tmp_path, "FAILED", ended=0.0 if ago is None else now - ago)
    end = watch.follow()
    assert (end.exit_code, end.recorded) == (9, False)
    assert looks <= len(naps) <= looks + 4  # between two looks at Slurm


@rows(
    ("code", "reason", "word", "expected"),
    [
        (1, "", "CANCELLED", (143, "cancelled")),  # srun found the job gone before its script was told to end
        (1, "cancelled", "CANCELLED", (143, "cancelled")),  # and after it was told
        (168, "", "CANCELLED", (143, "cancelled")),  # 4008 % 256: the node has revoked the job's credential
        (168, "cancelled", "CANCELLED", (143, "cancelled")),
        (168, "", "FAILED", (168, "")),
        (143, "", "CANCELLED", (143, "cancelled")),
        (0, "cancelled", "CANCELLED", (143, "cancelled")),
        (5, "cancelled", "CANCELLED", (5, "cancelled")),  # a program that knows SIGTERM
        (0, "", "CANCELLED", (0, "")),  # it had ended before
        (1, "", "FAILED", (1, "")),
        (1, "time limit", "TIMEOUT", (1, "time limit")),
    ],
)
def test_a_cancelled_job_is_cancelled_in_each_order_of_events(
    code: int, reason: str, word: str, expected: tuple[int, str], tmp_path: Path
) -> None:
    path = tmp_path / "jobs/12.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**RECORD, "exit_code": code, "reason": reason}))
    watch, _ = follower(tmp_path, word)
    end = watch.follow()
    assert (end.exit_code, end.reason) == expected


def test_a_job_that_lost_its_node_fails_despite_its_record(tmp_path: Path) -> None:
    """Seen on Slurm 22.05: the script of a job whose node is set down ends with 0, and leaves a record."""
    path = tmp_path / "jobs/12.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**RECORD, "exit_code": 0}))
    watch, _ = follower(tmp_path, "NODE_FAIL")
    end = watch.follow()
    assert (end.exit_code, end.word, end.recorded) == (1, "NODE_FAIL", True)


@pytest.mark.property
def test_a_record_of_the_run_before_says_nothing_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job was cancelled and put back into the queue; its next run leaves no record, and Slurm is the witness."""
    path = tmp_path / "jobs/12.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**RECORD, "exit_code": 143, "reason": "cancelled"}))
    for name, value in (("time.sleep", lambda _: None), ("ASK", (0.0, 0.0))):
        monkeypatch.setattr(f"builder.slurm.monitor.{name}", value)
    states = ("COMPLETING", "PENDING", "RUNNING", "FAILED")
    watch, _ = follower(tmp_path, *states, started=RECORD["ended"] + 120.0)
    monkeypatch.setattr("builder.slurm.monitor.LAG", 0.2)
    end = watch.follow()
    assert (end.exit_code, end.word, end.recorded) == (9, "FAILED", False)
