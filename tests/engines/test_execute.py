"""Plans executed with real processes: small bash scripts stand where engines would be."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from builder.execute import process
from builder.execute.executor import execute, raise_for
from builder.execute.folder import write_plan
from builder.execute.lock import hold
from builder.execute.options import Options
from builder.execute.process import capture, run
from builder.execute.progress import PlainProgress, QuietProgress
from builder.model.finding import BuilderError, ConfigError, SmokeError, StepError, ToolError
from builder.model.plan import File, Plan, Step
from builder.model.report import Report

MAKES_IMAGE = "echo image >draft && mv draft image.sif\n"

# Runs the plan of a folder as the command line does; its exit status is the shell's 128 + signal when it is stopped.
DRIVER = """
import os, signal, sys
from pathlib import Path
from builder.execute.executor import execute
from builder.execute.options import Interrupted, Options
from builder.execute.progress import QuietProgress
from builder.model.plan_json import from_json
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
folder = Path(sys.argv[1])
plan = from_json((folder / "plan.json").read_text())
options = Options(environment=os.environ, tmpdir=folder.parent / "tmp")
try:
    report = execute(plan, folder=folder, output=folder.parent / "x.sif", options=options, progress=QuietProgress())
except Interrupted as stop:
    assert stop.report.status == "interrupted"
    sys.exit(stop.exit_code)
sys.exit(0 if report.status == "passed" else 5)
"""

HOLDER = """
import sys
from pathlib import Path
from builder.execute.lock import hold
with hold(Path(sys.argv[1])):
    Path(sys.argv[2]).touch()
    sys.stdin.read()
"""


def plan_of(**steps: str | dict[str, Any]) -> Plan:
    """A plan of scripts; the one named build makes the image unless it says otherwise."""
    files, made = [], []
    for name, given in steps.items():
        fields = {"text": given} if isinstance(given, str) else dict(given)
        text = fields.pop("text")
        kind = "smoke" if name.startswith("smoke") else "build"
        produces = {"build": ("image.sif",), "smoke": ("smoke-mnist.json",)}.get(name, ())
        files.append(File(path=f"{name}.sh", text=textwrap.dedent(text)))
        made.append(
            Step(**{"name": name, "kind": kind, "why": "", "script": f"{name}.sh", "produces": produces, **fields})
        )
    return Plan(
        target="demo.local.apptainer", recipe="demo", site="local", backend="apptainer", vendor="cpu", base="",
        image="image.sif", image_kind="sif", steps=tuple(made), files=tuple(files),
    )  # fmt: skip


class Place:
    """A plan folder, an output and a folder for temporary files."""

    def __init__(self, root: Path) -> None:
        self.root, self.kit, self.output, self.tmp = root, root / "kit", root / "x.sif", root / "tmp"
        self.tmp.mkdir()

    def write(self, plan: Plan) -> None:
        write_plan(plan, self.kit, recipe_folder=self.root)

    def execute(self, plan: Plan, *, environment: dict[str, str] | None = None, **options: Any) -> Report:
        self.write(plan)
        found = Options(environment={**os.environ, **(environment or {})}, tmpdir=self.tmp, **options)
        report = execute(plan, folder=self.kit, output=self.output, options=found, progress=QuietProgress())
        written = json.loads((self.kit / "report.json").read_text())
        assert written["status"] == report.status
        return report

    def log(self, step: str = "build") -> str:
        return (self.kit / "logs" / f"{step}.log").read_text()

    def clean(self) -> bool:
        """Nothing temporary is left anywhere."""
        left = [path.name for path in self.root.iterdir() if path.name.startswith(".")]
        return not left and not list(self.tmp.iterdir()) and not (self.kit / ".state.json").exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def alive(word: str) -> dict[int, str]:
    """Live processes whose command lines hold a word."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if word in line and state not in (b"Z", b"X"):
                found[int(entry.name)] = line
    return found


@pytest.fixture
def word() -> Iterator[str]:
    """A word for command lines that no other process has."""
    made = f"w{uuid.uuid4().hex}"
    yield made
    left = alive(made)
    end(made)
    assert left == {}


def end(word: str) -> None:
    """End what a test began and the code under test left."""
    for pid in alive(word):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def driven(kit: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that executes the plan of a folder; gone at the end."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(kit)], start_new_session=True)
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()


def until(condition: Callable[[], object], *, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


# how builds end


def test_a_build_gives_its_image_and_its_report(place: Place) -> None:
    report = place.execute(plan_of(prepare="echo ready", build=MAKES_IMAGE))
    assert report.status == "passed"
    raise_for(report)
    assert place.output.read_text() == "image\n"
    assert report.image == str(place.output)
    assert report.image_bytes == 6
    assert report.image_sha256 == hashlib.sha256(b"image\n").hexdigest()
    assert [(step.name, step.status, step.exit_code) for step in report.steps] == [
        ("prepare", "ok", 0),
        ("build", "ok", 0),
    ]
    assert place.log("prepare") == "ready\n"
    assert report.steps[0].log == "logs/prepare.log"
    assert place.clean()


def test_the_report_file_says_all_of_it(place: Place) -> None:
    report = place.execute(plan_of(build={"text": MAKES_IMAGE, "programs": ("bash|dash",)}))
    written = json.loads((place.kit / "report.json").read_text())
    assert written["image_sha256"] == report.image_sha256
    assert written["target"] == "demo.local.apptainer"
    assert written["steps"][0]["name"] == "build"
    assert written["seconds"] > 0
    assert written["versions"]["bash"].startswith("GNU bash")
    assert sorted(written) == list(written)


def test_a_failing_step_ends_the_build_and_is_explained(place: Place) -> None:
    place.output.write_text("old")
    failing = "echo one >&2; echo 'cp: x: No space left on device'; exit 9"
    report = place.execute(plan_of(build=failing, after="touch after", smoke="touch smoked"), force=True)
    assert report.status == "failed"
    assert [step.status for step in report.steps] == ["failed", "skipped", "skipped"]
    assert report.steps[0].exit_code == 9
    (finding,) = report.findings
    assert finding.code == "no-space"
    assert finding.at is not None
    assert finding.at.file == str(place.kit / "logs/build.log")
    with pytest.raises(StepError) as caught:
        raise_for(report)
    assert caught.value.exit_code == 5
    assert place.output.read_text() == "old"
    assert not (place.kit / "after").exists()
    assert place.log() == "one\ncp: x: No space left on device\n"
    assert place.clean()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("true", "step 'build' ended with exit code 0 but wrote no 'image.sif'"),
        (">image.sif", "step 'build' ended with exit code 0 but left 'image.sif' empty"),
        ("mkdir image.sif", "step 'build' ended with exit code 0 but left the folder 'image.sif' empty"),
        ("echo 'You have chosen not to overwrite a.sif. Exiting.'", "step 'build' failed: 'a.sif' was in the way"),
    ],
)
def test_exit_code_0_is_not_enough(place: Place, text: str, message: str) -> None:
    report = place.execute(plan_of(build=text))
    assert report.status == "failed"
    assert report.findings[0].message.startswith(message)
    assert not place.output.exists()


def test_a_product_of_an_earlier_build_does_not_count(place: Place) -> None:
    place.write(plan_of(build="true"))
    (place.kit / "image.sif").write_text("stale")
    report = place.execute(plan_of(build="cat image.sif"))
    assert report.status == "failed"
    assert "left the old 'image.sif' as it was" in report.findings[0].message
    assert not place.output.exists()


def test_a_step_that_takes_too_long(place: Place, word: str) -> None:
    report = place.execute(plan_of(build=f"bash -c 'sleep 60; : {word}'"), step_seconds=0.3)
    assert report.findings[0].code == "step-timeout"
    assert report.steps[0].exit_code == 124
    assert place.clean()


def test_sigkill_is_taken_for_memory(place: Place) -> None:
    report = place.execute(plan_of(build="kill -9 $$"))
    assert report.findings[0].code == "no-memory"
    assert report.steps[0].exit_code == 137


# what is refused before any work


def refused(place: Place, plan: Plan, error: type[BuilderError], **options: Any) -> str:
    with pytest.raises(error) as caught:
        place.execute(plan, **options)
    assert not (place.kit / "logs").exists()
    assert place.clean()
    return caught.value.findings[0].code


def test_an_output_that_exists(place: Place) -> None:
    place.output.write_text("old")
    assert refused(place, plan_of(build=MAKES_IMAGE), ConfigError) == "output-exists"
    assert place.output.read_text() == "old"
    assert place.execute(plan_of(build=MAKES_IMAGE), force=True).status == "passed"
    assert place.output.read_text() == "image\n"


def test_a_program_that_is_missing(place: Place) -> None:
    plan = plan_of(build={"text": MAKES_IMAGE, "programs": ("no-such-engine",)})
    assert refused(place, plan, ToolError) == "no-program"


def test_too_little_space(place: Place) -> None:
    assert refused(place, plan_of(build={"text": MAKES_IMAGE, "space_gib": 1e6}), ToolError) == "no-space"


def test_a_tmpdir_that_is_not_there(place: Place) -> None:
    place.tmp.rmdir()
    with pytest.raises(ToolError):
        place.execute(plan_of(build=MAKES_IMAGE))


def test_two_builds_at_once(place: Place) -> None:
    plan = plan_of(build=MAKES_IMAGE)
    place.write(plan)
    ready = place.root / "ready"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(place.kit), str(ready)], stdin=subprocess.PIPE) as other:
        until(ready.exists)
        options = Options(environment=os.environ, tmpdir=place.tmp)
        with pytest.raises(ConfigError) as caught:
            execute(plan, folder=place.kit, output=place.output, options=options, progress=QuietProgress())
        assert caught.value.findings[0].message.startswith(
            f"another build of this output is running (pid {other.pid} on "
        )
        other.kill()
    assert place.execute(plan).status == "passed"


def test_a_step_does_not_inherit_the_lock(place: Place, word: str) -> None:
    place.write(plan_of(build="true"))
    with hold(place.kit):
        child = subprocess.Popen(["bash", "-c", f"while :; do sleep 0.2; done; : {word}"])
    try:
        with hold(place.kit):
            pass
    finally:
        child.kill()
        child.wait()


# starting again


def test_from_a_later_step(place: Place) -> None:
    plan = plan_of(prepare={"text": "date >>ran; echo x >base", "produces": ("base",)}, build="cat base >image.sif")
    with pytest.raises(ConfigError) as caught:
        place.execute(plan, start="build")
    assert caught.value.findings[0].message == "step 'prepare' is skipped, and its product 'base' is not there"
    assert place.execute(plan).status == "passed"
    report = place.execute(plan, start="build", force=True)
    assert [step.status for step in report.steps] == ["skipped", "ok"]
    assert len((place.kit / "ran").read_text().splitlines()) == 1
    assert place.output.read_text() == "x\n"


def test_a_step_that_writes_in_place_does_not_touch_the_published_image(place: Place) -> None:
    assert place.execute(plan_of(build="echo good >image.sif")).status == "passed"
    assert place.execute(plan_of(build="echo bad >image.sif; exit 1"), force=True).status == "failed"
    assert place.output.read_text() == "good\n"


def test_the_smoke_test_alone_needs_no_force(place: Place) -> None:
    plan = plan_of(build=MAKES_IMAGE, smoke={"text": "test -s image.sif", "produces": ()})
    assert place.execute(plan).status == "passed"
    report = place.execute(plan, start="smoke")
    assert report.status == "passed"
    assert report.image_sha256 == hashlib.sha256(b"image\n").hexdigest()
    assert not place.output.is_symlink()


def test_the_earlier_log_is_kept(place: Place) -> None:
    place.execute(plan_of(build="echo first; exit 1"))
    place.execute(plan_of(build="echo second; exit 1"))
    assert place.log() == "second\n"
    assert (place.kit / "logs/build.previous.log").read_text() == "first\n"


# smoke tests


def result(accuracy: float) -> str:
    return json.dumps(
        {
            "schema": 1, "workload": "mnist", "error": None, "expected": {"seconds": 600, "device": "auto"},
            "accuracy": accuracy, "data": {"source": "drawn"}, "device": {"type": "cpu"},
            "training": {"first_loss": 2.3, "last_loss": 0.2, "non_finite": 0}, "torch": {"version": "2.6.0"},
            "seconds": {"total": 1.0},
        }
    )  # fmt: skip


def smoke(accuracy: float) -> str:
    return f"test -s image.sif && echo '{result(accuracy)}' >smoke-mnist.json"


def test_a_smoke_test_is_judged_and_recorded(place: Place) -> None:
    report = place.execute(plan_of(build=MAKES_IMAGE, smoke=smoke(0.97)))
    assert report.status == "passed"
    assert report.smoke["mnist"]["accuracy"] == 0.97
    assert {check.name: check.measured for check in report.checks}["mnist: accuracy"] == "0.97"
    assert all(check.ok for check in report.checks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (smoke(0.2), "mnist: accuracy: 0.2, expected >= 0.9"),
        (smoke(0.2) + "; exit 1", "mnist: accuracy: 0.2, expected >= 0.9"),
        ("exit 0", "wrote no 'smoke-mnist.json'"),
        ("echo '{' >smoke-mnist.json", "mnist: result"),
        (smoke(0.97) + "; exit 3", "exit code 3"),
    ],
)
def test_an_image_that_fails_its_smoke_test_is_set_aside(place: Place, text: str, said: str) -> None:
    place.output.write_text("old")
    report = place.execute(plan_of(build=MAKES_IMAGE, smoke=text), force=True)
    assert report.status == "smoke-failed"
    assert said in report.findings[0].message
    kept = place.root / "x.sif.failed"
    assert report.image == str(kept)
    assert kept.read_text() == "image\n"
    assert str(kept) in report.findings[-1].message
    assert place.output.read_text() == "old"
    with pytest.raises(SmokeError) as caught:
        raise_for(report)
    assert caught.value.exit_code == 6
    assert place.clean()


def test_a_failed_image_can_be_tested_again(place: Place) -> None:
    assert place.execute(plan_of(build=MAKES_IMAGE, smoke=smoke(0.2))).status == "smoke-failed"
    assert not place.output.exists()
    assert place.execute(plan_of(build=MAKES_IMAGE, smoke=smoke(0.97)), start="smoke").status == "passed"
    assert place.output.read_text() == "image\n"
    assert not (place.root / "x.sif.failed").exists()


def test_a_result_of_an_earlier_run_is_no_result(place: Place) -> None:
    assert place.execute(plan_of(build=MAKES_IMAGE, smoke=smoke(0.97))).status == "passed"
    report = place.execute(plan_of(build=MAKES_IMAGE, smoke="exit 0"), force=True)
    assert report.status == "smoke-failed"
    assert report.smoke == {}


def test_all_smoke_tests_run(place: Place) -> None:
    second = {"text": "touch second; exit 4", "produces": ()}
    report = place.execute(plan_of(build=MAKES_IMAGE, smoke="exit 3", smoke2=second))
    assert [step.status for step in report.steps] == ["ok", "failed", "failed"]
    assert (place.kit / "second").exists()


def test_no_smoke(place: Place) -> None:
    report = place.execute(plan_of(build=MAKES_IMAGE, smoke="exit 3"), no_smoke=True)
    assert report.status == "passed"
    assert [step.status for step in report.steps] == ["ok", "skipped"]


# what a step sees


def test_the_environment_of_a_step(place: Place) -> None:
    script = """\
        env | grep -E '^(APPTAINER|SINGULARITY)' | sort
        test -d "$RECIPE_TMPDIR" && test -w "$RECIPE_TMPDIR" && basename "$(dirname "$RECIPE_TMPDIR")"
        read -r answer && echo "got $answer" || echo nobody answers
        test -t 0 || echo no terminal
        mkdir -p "$RECIPE_TMPDIR/rootfs/etc"
        touch "$RECIPE_TMPDIR/rootfs/etc/x"
        chmod 500 "$RECIPE_TMPDIR/rootfs/etc"
        chmod 0 "$RECIPE_TMPDIR/rootfs"
        echo image >image.sif
        """
    environment = {"APPTAINER_BINDPATH": "/opt/cray", "SINGULARITY_BIND": "/x", "APPTAINER_CACHEDIR": "/cache"}
    assert place.execute(plan_of(build=script), environment=environment).status == "passed"
    assert place.log().splitlines() == ["APPTAINER_CACHEDIR=/cache", "tmp", "nobody answers", "no terminal"]
    assert place.clean()


def test_secrets_are_in_no_log_no_report_and_not_on_the_screen(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, password = "hf_0123456789abcdef", "pa55word"
    environment = {"HF_TOKEN": secret, "PIP_INDEX_URL": f"https://me:{password}@host.example/simple"}
    script = 'echo "token $HF_TOKEN"; echo "ERROR: cannot reach $PIP_INDEX_URL, $HF_TOKEN" >&2; exit 3'
    plan = plan_of(build=script)
    place.write(plan)
    options = Options(environment={**os.environ, **environment}, tmpdir=place.tmp)
    shown = PlainProgress(sys.stderr, verbose=True)
    report = execute(plan, folder=place.kit, output=place.output, options=options, progress=shown)
    texts = [place.log(), (place.kit / "report.json").read_text(), report.findings[0].message, capsys.readouterr().err]
    for text in texts:
        assert secret not in text
        assert password not in text
        assert "***" in text


def test_terminal_codes_and_frames_do_not_reach_the_log(place: Place) -> None:
    spinner = (
        r"for i in {1..300}; do printf '\r\033[2K%s working...' $i; done; printf '\r\033[2K\033[32mdone\033[0m\n'; "
    )
    place.execute(plan_of(build=spinner + MAKES_IMAGE))
    assert place.log() == "done\n"


# nothing of a step outlives it


STUBBORN = """\
trap '' TERM INT HUP
bash -c 'trap "" TERM INT HUP; touch started-1; while :; do sleep 0.2; done; : {word}' &
setsid bash -c 'trap "" TERM INT HUP; touch started-2; while :; do sleep 0.2; done; : {word}' &
(setsid nohup bash -c 'trap "" TERM INT HUP; touch started-3; while :; do sleep 0.2; done; : {word}' >/dev/null 2>&1 &)
mkdir -p "$RECIPE_TMPDIR/rootfs"; chmod 0 "$RECIPE_TMPDIR/rootfs"
while :; do sleep 0.2; done
"""


def test_a_signal_meets_a_step_that_is_just_starting_programs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TICK", 0.001)
    script = "trap 'sleep 0.1; echo cleaned; exit 1' TERM; touch started; sleep 60 & wait"
    place.write(plan_of(build=script))
    command = ["bash", str(place.kit / "build.sh")]

    def stop_at_once() -> None:
        if (place.kit / "started").exists():
            raise KeyboardInterrupt

    for number in range(12):
        log = place.root / f"{number}.log"
        (place.kit / "started").unlink(missing_ok=True)
        before = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run(command, cwd=place.kit, env=dict(os.environ), log=log, on_line=str, on_tick=stop_at_once)
        assert log.read_text().endswith("cleaned\n")  # bash may say which of its programs was terminated
        assert time.monotonic() - before < 4  # nobody was forgotten until SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_build_ends_everything_and_the_next_one_works(
    place: Place, word: str, number: signal.Signals
) -> None:
    place.write(plan_of(build=STUBBORN.replace("{word}", word), after="true"))
    started = [place.kit / f"started-{number}" for number in (1, 2, 3)]
    with driven(place.kit) as driver:
        until(lambda: all(path.exists() for path in started))
        assert len(alive(word)) >= 3  # and what they are forking right now
        driver.send_signal(number)
        time.sleep(0.3)
        driver.send_signal(number)  # no patience: SIGKILL now
        assert driver.wait(timeout=10) == 128 + number
    assert alive(word) == {}
    report = json.loads((place.kit / "report.json").read_text())
    assert report["status"] == "interrupted"
    assert [(step["status"], step["exit_code"]) for step in report["steps"]] == [
        ("interrupted", 128 + number),
        ("skipped", None),
    ]
    assert report["findings"][0]["message"] == f"the build was stopped by {number.name}"
    assert not place.output.exists()
    assert place.clean()
    assert place.execute(plan_of(build=MAKES_IMAGE)).status == "passed"


def test_a_step_may_clean_up_after_sigterm(place: Place, word: str) -> None:
    script = f"trap 'sleep 0.3; echo cleaned; exit 1' TERM; touch started; sleep 60 & wait; : {word}"
    place.write(plan_of(build=script))
    with driven(place.kit) as driver:
        until((place.kit / "started").exists)
        driver.terminate()
        assert driver.wait(timeout=10) == 143
    assert place.log() == "cleaned\n"


def test_what_a_killed_build_left_is_removed_by_the_next(place: Place, word: str) -> None:
    script = f"touch $RECIPE_TMPDIR/big; bash -c 'touch started; while :; do sleep 0.2; done; : {word}'"
    place.write(plan_of(build=script))
    with driven(place.kit) as driver:
        until((place.kit / "started").exists)
        driver.kill()
    until(lambda: end(word) or not alive(word))  # SIGKILL leaves the step itself running
    assert len(list(place.tmp.iterdir())) == 1
    report = place.execute(plan_of(build=MAKES_IMAGE))
    assert report.status == "passed"
    assert place.clean()


def test_what_a_step_leaves_running_is_ended(place: Place, word: str) -> None:
    script = f"(setsid bash -c 'while :; do sleep 0.1; done; : {word}' &)\n{MAKES_IMAGE}"
    before = time.monotonic()
    assert place.execute(plan_of(build=script)).status == "passed"
    assert time.monotonic() - before < 5  # the pipe that it holds does not hold us
    assert alive(word) == {}


def test_output_that_comes_after_the_end_of_a_script_is_kept(place: Place) -> None:
    place.execute(plan_of(build=f"exec > >(sleep 0.3; cat)\n{MAKES_IMAGE}echo late"))
    assert place.log() == "late\n"


# much output


def test_fast_output_fills_neither_disk_nor_memory(tmp_path: Path) -> None:
    script = "yes 'a line of output such as compilers write, eighty characters long, more or less' | head -c 150M"
    peak = (
        "import resource, sys; from pathlib import Path; from builder.execute.process import run\n"
        "ended = run(['bash', '-c', sys.argv[1]], cwd=Path(sys.argv[2]), env={'PATH': '/usr/bin:/bin'},"
        " log=Path(sys.argv[2], 'x.log'), on_line=lambda text: None)\n"
        "print(ended.exit_code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", peak, script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    exit_code, kib = map(int, done.stdout.split())
    assert exit_code == 0
    assert kib < 150_000
    assert (tmp_path / "x.log").stat().st_size < 40_000_000


def test_a_line_without_end(tmp_path: Path) -> None:
    ended = run(
        ["bash", "-c", "head -c 30M /dev/zero | tr '\\0' x; echo; echo end"],
        cwd=tmp_path,
        env=dict(os.environ),
        log=tmp_path / "x.log",
        on_line=str,
    )
    assert ended.tail[-1] == "end"
    assert len(ended.tail) == 2
    assert (tmp_path / "x.log").stat().st_size < 10_000


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        run([str(tmp_path / "gone")], cwd=tmp_path, env={}, log=tmp_path / "x.log", on_line=str)
    assert caught.value.findings[0].code == "not-started"


def test_short_questions() -> None:
    environment = dict(os.environ)
    assert capture(["bash", "-c", "echo a; echo b >&2; exit 3"], env=environment).text == "a\nb\n"
    assert capture(["no-such-program"], env=environment).exit_code == 127
    before = time.monotonic()
    hanging = capture(["bash", "-c", "echo 1; sleep 60 & wait"], env=environment, timeout=0.3)
    assert (hanging.exit_code, hanging.text) == (124, "1\n")
    assert time.monotonic() - before < 5
    assert len(capture(["head", "-c", "5M", "/dev/zero"], env=environment).text) == 1024 * 1024
