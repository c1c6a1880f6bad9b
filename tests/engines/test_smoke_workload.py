"""The smoke workload with real torch on the CPU: it passes, and every way to break it is told by name.

A Python with torch is looked for in SMOKE_TORCH_PYTHON, then in the Python of the tests; else one is made with uv.
"""

import gzip
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from smoke_program import FOLDER, LAUNCHERS, LIMIT, LONG, Smoke, all_gone, training

pytestmark = pytest.mark.engines


def easily(digits: Path, epochs: int = 2) -> list[str]:
    return ["--data", str(digits), "--epochs", str(epochs)]


def test_mnist_passes_and_leaves_its_result_alone(smoke: Smoke, easy_digits: Path) -> None:
    """What it learns of drawn and of real digits is in test_local.py."""
    words = ("--result", "result.json", "--expect-vendor", "cpu", "--timeout", "120")
    status, output = smoke.run("mnist", *easily(easy_digits), *words)
    assert status == 0, output
    assert output.splitlines()[-1] == "verdict: pass"
    assert smoke.result()["data"] == {"source": "mnist", "train": 320, "test": 50}
    assert [path.name for path in smoke.folder.iterdir()] == ["result.json"]
    assert sorted(path.name for path in smoke.program.iterdir()) == sorted(path.name for path in FOLDER.glob("*.py"))


def test_too_little_training_the_wrong_vendor_and_torch_fail(smoke: Smoke) -> None:
    arguments = ["--samples", "64", "--epochs", "1", "--result", "result.json"]
    expected = ["--expect-vendor", "amd", "--expect-torch", "1.0.0", "--device", "cpu"]
    status, output = smoke.run("mnist", *arguments, *expected)
    assert status == 1
    assert smoke.failed().keys() == {"accuracy", "loss falls", "vendor", "torch"}
    assert smoke.failed()["vendor"].startswith("cpu (torch ")
    (verdict,) = output.splitlines()[-1:]
    assert verdict == f"verdict: FAIL ({', '.join(smoke.failed())})"


def test_a_device_that_is_not_there_fails(smoke: Smoke) -> None:
    status, _ = smoke.run("mnist", "--device", "xpu", "--result", "result.json")
    assert status == 1
    assert smoke.failed()["error"].startswith('no "xpu" device: torch ')


def idx(folder: Path, magic: int, cut: int = 0) -> str:
    folder.mkdir()
    images = magic.to_bytes(4, "big") + b"".join(number.to_bytes(4, "big") for number in (10, 28, 28)) + bytes(7840)
    (folder / "t10k-images-idx3-ubyte").write_bytes(images[: len(images) - cut])
    labels = (0x801).to_bytes(4, "big") + (10).to_bytes(4, "big") + bytes(10)
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return str(folder)


@pytest.mark.parametrize(
    ("workload", "magic", "cut", "text"),
    [
        (
            ["mnist"],
            0x803,
            100,
            't10k-images-idx3-ubyte" is truncated: its header says 7840 bytes of data, it has 7740',
        ),
        (
            ["ddp", "--ranks", "2"],
            0x123,
            0,
            't10k-images-idx3-ubyte" is not an image file of MNIST: it starts with 0x00000123',
        ),
    ],
    ids=["mnist", "ddp"],
)
def test_broken_digits_fail_by_name(
    smoke: Smoke, workload: list[str], magic: int, cut: int, text: str, tmp_path: Path
) -> None:
    status, output = smoke.run(*workload, "--data", idx(tmp_path / "digits", magic, cut), "--result", "result.json")
    assert status == 1
    assert text in smoke.result()["error"]
    assert "Traceback" not in output


def test_the_limit_ends_a_training(smoke: Smoke) -> None:
    status, _ = smoke.run("mnist", *LONG, "--timeout", "4", "--result", "result.json")
    assert status == 1
    assert smoke.failed()["error"] == "ended at its limit of 4 s"


def test_a_signal_leaves_a_failed_result(smoke: Smoke) -> None:
    process = smoke.start("mnist", *LONG, "--result", "result.json")
    assert process.stdout is not None
    assert process.stdout.readline()  # its first line of progress
    assert smoke.result()["error"] == "the run ended before its verdict"  # what even SIGKILL would leave
    process.terminate()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM
    assert smoke.failed()["error"] == "ended by SIGTERM"


def test_imports_are_tried_one_by_one(smoke: Smoke) -> None:
    status, output = smoke.run("imports", "torch", "torch.distributed", "no_such_module", "--result", "result.json")
    assert status == 1
    assert smoke.failed() == {"import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'"}
    assert "ok   import torch: 2." in output


def test_an_import_that_kills_the_process_is_named(smoke: Smoke, tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "crashing.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n")
    status, _ = smoke.run("imports", "json", "crashing", "--result", "result.json", PYTHONPATH=str(modules))
    assert status == -signal.SIGKILL
    assert smoke.result()["error"] == 'the process ended while importing "crashing"'
    assert smoke.run("judge", "result.json")[0] == 1


def test_two_ranks_of_our_own_pass(smoke: Smoke, easy_digits: Path) -> None:
    words = ("ddp", "--ranks", "2", *easily(easy_digits), "--result", "result.json")
    status, output = smoke.run(*words, SLURM_PROCID="0", SLURM_NTASKS="8")
    assert status == 0, output
    result = smoke.result()
    assert result["launcher"] == "own"
    assert result["backend"] == "gloo"
    assert [entry["samples"] for entry in result["ranks"]] == [160 * 2] * 2
    assert len({entry["checksum"] for entry in result["ranks"]}) == 1
    assert len({entry["initial_checksum"] for entry in result["ranks"]}) == 2
    written = {path.name for path in smoke.folder.iterdir()}
    assert written == {"result.json", "result.json.rank0.json", "result.json.rank1.json"}


def test_without_a_result_nothing_is_written(smoke: Smoke, easy_digits: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    program = sorted(path.name for path in smoke.program.iterdir())
    status, output = smoke.run("ddp", "--ranks", "2", *easily(easy_digits, 1), TMPDIR=str(temporary))
    assert status == 0, output
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in smoke.program.iterdir()) == program
    assert list(smoke.folder.iterdir()) == []


def test_ranks_of_a_launcher_pass(smoke: Smoke, easy_digits: Path) -> None:
    """The images are odd in number: one is left out."""
    processes = smoke.launch([0, 1], 2, "--expect-ranks", "2", *easily(easy_digits), "--samples", "301")
    outputs = [process.communicate(timeout=LIMIT)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    assert outputs[0].splitlines()[-1] == "verdict: pass"
    assert "verdict" not in outputs[1]
    assert smoke.result()["launcher"] == "slurm"
    assert [entry["samples"] for entry in smoke.result()["ranks"]] == [150 * 2] * 2


def test_a_launcher_that_started_each_rank_alone_fails(smoke: Smoke) -> None:
    """Its variables did not reach the container: every process believes to be the only one."""
    status, _ = smoke.run(
        "ddp",
        "--expect-ranks",
        "2",
        "--samples",
        "64",
        "--epochs",
        "1",
        "--result",
        "result.json",
        SLURM_PROCID="0",
        SLURM_NTASKS="1",
    )
    assert status == 1
    assert smoke.failed()["ranks"] == "1 of 2 finished; rank 1 never reported"


def test_torchrun_inside_one_slurm_task_passes(smoke: Smoke, easy_digits: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith(LAUNCHERS)}
    done = subprocess.run(
        [smoke.python, *torchrun, str(smoke.program), "ddp", "--result", "result.json", *easily(easy_digits)],
        cwd=smoke.folder,
        env=environment | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "GLOO_SOCKET_IFNAME": "lo"},
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert smoke.result()["launcher"] == "torchrun"
    assert len(smoke.result()["ranks"]) == 2


def test_a_rank_that_never_joins_is_named(smoke: Smoke) -> None:
    processes = smoke.launch([0, 2], 3, "--samples", "64", "--timeout", "50")
    outputs = [process.communicate(timeout=LIMIT)[0] for process in processes]
    assert [process.returncode for process in processes] == [1, 1]
    assert smoke.failed()["error"] == "rank 0: 1 of 3 ranks never joined: rank 1"
    assert smoke.failed()["ranks"].startswith("0 of 3 finished; rank 0 did not finish while joining; rank 1 never re")
    assert "rank 2: 1 of 3 ranks never joined: rank 1" in outputs[1]


def test_a_killed_rank_is_named_and_the_other_is_ended(smoke: Smoke) -> None:
    process = smoke.start("ddp", "--ranks", "2", *LONG, "--result", "result.json")
    pids = smoke.wait_for_ranks(2, training)
    os.kill(pids[1], signal.SIGKILL)
    process.communicate(timeout=LIMIT)  # of a training of an hour
    assert process.returncode == 1
    assert smoke.failed()["error"] == "rank 1 was killed by SIGKILL while training"
    assert "rank 1 killed by SIGKILL while training" in smoke.failed()["ranks"]
    assert all_gone(pids)


def test_a_hanging_rank_is_ended_at_the_limit(smoke: Smoke) -> None:
    process = smoke.start("ddp", "--ranks", "2", *LONG, "--timeout", "50", "--result", "result.json")
    pids = smoke.wait_for_ranks(2, training)
    os.kill(pids[1], signal.SIGSTOP)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    said = smoke.failed()["error"]
    assert re.fullmatch(
        r"ended at its limit of 50 s: rank 0 was training, rank 1 was training \(nothing heard of it for [0-9]+ s\)",
        said,
    )
    assert 50 <= smoke.result()["seconds"]["total"] < 250  # the end itself takes seconds
    assert all_gone(pids)


def test_ctrl_c_to_the_parent_ends_its_ranks(smoke: Smoke) -> None:
    """SIGTERM and SIGKILL to a parent are in the interrupted training of test_smoke_suite.py."""
    process = smoke.start("ddp", "--ranks", "2", *LONG, "--result", "result.json")
    pids = smoke.wait_for_ranks(2, training)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 128 + signal.SIGINT
    assert smoke.failed()["error"].startswith("ended by SIGINT: rank 0 was ")
    assert "Traceback" not in output
    assert all_gone(pids)


def test_a_damaged_snapshot_fails_by_name(smoke: Smoke) -> None:
    (smoke.folder / "snapshot.pt").write_bytes(b"not a snapshot")
    status, output = smoke.run(
        "ddp", "--ranks", "2", "--samples", "64", "--snapshot", "snapshot.pt", "--result", "result.json"
    )
    assert status == 1
    assert 'the snapshot "snapshot.pt" cannot be resumed: ' in smoke.failed()["error"]
    assert "Traceback" not in output


@pytest.mark.parametrize("workload", [["mnist"], ["ddp", "--ranks", "2"]], ids=["mnist", "ddp"])
def test_a_result_that_cannot_be_written_is_a_misuse(smoke: Smoke, workload: list[str]) -> None:
    status, output = smoke.run(*workload, "--result", "/proc/result.json")
    assert status == 2
    assert output == 'error: the result "/proc/result.json" cannot be written: No such file or directory\n'
