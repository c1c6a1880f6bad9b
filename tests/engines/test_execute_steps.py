"""What a step sees, what its smoke test says, and how its output is kept."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripted_plans import MAKES_IMAGE, OLD, Place, own_word, plan_of

from builder.execute.build_options import ExecutionOptions
from builder.execute.plan_executor import execute, raise_on_failure
from builder.execute.progress import PlainProgress
from builder.model.finding import SmokeError, ToolError
from builder.system.process import BackgroundCommand, capture, run


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def result(accuracy: float) -> str:
    return json.dumps(
        {
            "schema": 1, "workload": "mnist", "error": None, "expected": {"seconds": 600, "device": "auto"},
            "accuracy": accuracy, "data": {"source": "drawn"}, "device": {"type": "cpu"},
            "training": {"first_loss": 2.3, "last_loss": 0.2, "non_finite": 0}, "torch": {"version": "2.6.0"},
            "seconds": {"total": 1.0},
        }
    )  # fmt: skip


NOT_RUN = '{"schema": 1, "workload": "mnist", "error": "it did not begin", "not_run": true}'
FAULT = '{"expected": {"torch": "2.6.0"}, "found": {}, "faults": ["it did not begin"], "not_run": true}'


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
        (f"echo '{NOT_RUN}' >smoke-mnist.json", "mnist: error: it did not begin"),  # a Python that only exits with 0
    ],
)
def test_an_image_that_fails_its_smoke_test_is_set_aside(place: Place, text: str, said: str) -> None:
    place.output.write_bytes(OLD)
    report = place.execute(plan_of(build=MAKES_IMAGE, smoke=text), force=True)
    assert report.status == "smoke-failed"
    assert said in report.findings[0].message
    kept = place.root / "x.sif.failed"
    assert report.image == str(kept)
    assert kept.read_text() == "image\n"
    assert str(kept) in report.findings[-1].message
    assert place.output.read_bytes() == OLD
    with pytest.raises(SmokeError) as caught:
        raise_on_failure(report)
    assert caught.value.exit_code == 6
    assert place.clean()


def test_an_image_that_did_not_answer_is_not_tested(place: Place) -> None:
    answered = {"text": f"{smoke(0.97)}\necho '{FAULT}' >verify.json", "produces": ("smoke-mnist.json", "verify.json")}
    report = place.execute(plan_of(build=MAKES_IMAGE, smoke=answered))
    assert report.status == "smoke-failed"
    assert "image: torch: it did not begin, expected 2.6.0" in report.findings[0].message


def test_a_failed_image_can_be_tested_again(place: Place) -> None:
    assert place.execute(plan_of(build=MAKES_IMAGE, smoke=smoke(0.2))).status == "smoke-failed"
    assert not place.output.exists()
    assert place.execute(plan_of(build=MAKES_IMAGE, smoke=smoke(0.97)), start="smoke").status == "passed"
    assert place.output.read_text() == "image\n"
    assert not (place.root / "x.sif.failed").exists()


def test_a_failed_image_goes_when_a_later_one_passes(place: Place) -> None:
    kept, told = place.root / "x.sif.failed", io.StringIO()
    assert place.execute(plan_of(build=MAKES_IMAGE, smoke=smoke(0.2))).status == "smoke-failed"
    untested = plan_of(build=MAKES_IMAGE, smoke=smoke(0.97))
    assert place.execute(untested, no_smoke=True).status == "passed"
    assert kept.exists()  # nothing was proven
    kept.write_bytes(OLD)  # what no build has written would stay
    place.write(untested)
    options = ExecutionOptions(environment=dict(os.environ), tmpdir=place.tmp, force=True)
    report = execute(untested, folder=place.kit, output=place.output, options=options, progress=PlainProgress(told))
    assert (report.status, kept.exists()) == ("passed", False)
    assert f"removed '{kept}', in which an earlier smoke test had failed\n" in told.getvalue()
    assert place.output.read_text() == "image\n"


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
    options = ExecutionOptions(environment={**os.environ, **environment}, tmpdir=place.tmp)
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


# much output


def test_fast_output_fills_neither_disk_nor_memory(tmp_path: Path) -> None:
    script = "yes 'a line of output such as compilers write, eighty characters long, more or less' | head -c 150M"
    peak = (
        "import re, sys; from pathlib import Path; from builder.system.process import run\n"
        "ended = run(['bash', '-c', sys.argv[1]], cwd=Path(sys.argv[2]), env={'PATH': '/usr/bin:/bin'},"
        " log=Path(sys.argv[2], 'x.log'), on_line=lambda text: None)\n"
        # Not ru_maxrss: a program inherits that of whoever started it.
        "print(ended.exit_code, re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", peak, script, str(tmp_path)], capture_output=True, text=True, timeout=300, check=True
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
    for seconds in (0.3, 3, 30):  # until the limit is long enough for bash to begin
        hanging = capture(["bash", "-c", "echo 1; sleep 600 & wait"], env=environment, timeout=seconds)
        if hanging.text:
            break
    assert (hanging.exit_code, hanging.text) == (124, "1\n")
    assert time.monotonic() - before < 300
    assert len(capture(["head", "-c", "5M", "/dev/zero"], env=environment).text) == 1024 * 1024


def test_a_question_is_answered_beside_other_work(tmp_path: Path) -> None:
    waits = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo went"
    with own_word() as word:
        question = BackgroundCommand(["bash", "-c", waits], env=dict(os.environ))
        dropped = BackgroundCommand(["bash", "-c", f"sleep 60; : {word}"], env=dict(os.environ))
        (tmp_path / "go").touch()
        assert question.wait().text == "went\n"
        dropped.stop()


def test_versions_are_asked_while_the_steps_run(place: Place) -> None:
    program = place.root / "bin" / "slow-engine"
    program.parent.mkdir()
    # It answers when the step has run, and not before.
    program.write_text(f"#!/bin/sh\nuntil [ -e {place.root}/ran ]; do sleep 0.05; done; echo slow-engine 1.0\n")
    program.chmod(0o755)
    step = {"text": f"touch {place.root}/ran; {MAKES_IMAGE}", "programs": ("slow-engine",)}
    report = place.execute(plan_of(build=step), environment={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    assert (report.status, report.versions) == ("passed", {"slow-engine": "slow-engine 1.0"})
