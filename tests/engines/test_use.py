"""An image in use: its module loaded by Lmod, a notebook in its kernel, a shell, and each of them in a job."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import engine
from recipe_program import Built, Done, Room, build, processes, program, run
from testbed import SITES

from builder.model.target import PREFIX

pytestmark = pytest.mark.engines

LMOD = "/usr/share/lmod/lmod/init/bash"
KERNEL = "name: kernel\ndependencies:\n  - pip: [ipykernel==6.31.0]\n"
WHERE = (
    "import os, sys; print(sys.prefix, os.getcwd(), os.environ.get('SITE_TEST_MARK'), os.path.exists('/opt/recipe'))"
)


def load(folder: Path, name: str, *lines: str, room: Room) -> Done:
    """Type lines in a shell that has loaded a module."""
    assert Path(LMOD).exists(), "there is no Lmod: tests/testbed/engines.sh launch"
    text = "\n".join(["set -e", f". {LMOD}", f"module use '{folder}/modulefiles'", f"module load {name}", *lines])
    # As in a new login shell: what another one has loaded is not known.
    env = {key: value for key, value in room.environment().items() if not key.startswith(("LMOD", "MODULE", "_LM"))}
    return run(["bash", "-c", text], env=env, cwd=room.folder)


def test_lmod_loads_the_module(room: Room, small_sif: Path) -> None:
    made = room.recipe("module", "local", small_sif, "--wrap", "/usr/bin/getent", "-o", "my modules").expect(0)
    assert made.out == "my modules\n"
    folder = room.folder / "my modules"
    assert f"module use '{folder}/modulefiles' && module load small/local" in made.err
    script = room.write("here/say.py", WHERE)
    lines = ("type -p python3", f"python3 '{script}'", "small-exec cat /etc/debian_version", "getent passwd root")
    done = load(folder, "small/local", *lines, "module whatis small", "module help small", room=room).expect(0)
    first, second, third, fourth, *_ = done.out.splitlines()
    assert first == f"{folder}/bin/python3"
    assert second.startswith(f"/usr {room.folder} None")
    assert third.startswith("12")
    assert fourth.startswith("root:")
    assert "small/local: the image small.sif on" in done.err + done.out
    gone = load(
        folder, "small/local", "module unload small", f"case :$PATH: in *'{folder}'*) exit 3 ;; esac", room=room
    )
    assert gone.code == 0, gone.err


def test_a_moved_module_and_its_tcl_file_work(room: Room, small_sif: Path) -> None:
    room.recipe("module", "local", small_sif, "-o", "first", "--name", "tools/2.1").expect(0)
    folder = (room.folder / "first").rename(room.folder / "other-place")
    (folder / "modulefiles" / "tools" / "2.1.lua").unlink()  # Lmod would take it
    done = load(folder, "tools", "type -p python3", "python3 -c 'print(6 * 7)'", room=room).expect(0)
    assert done.out.splitlines() == [f"{folder}/bin/python3", "42"]
    failed = load(folder, "tools", "tools-exec sh -c 'exit 9'", room=room)
    assert failed.code == 9


def test_the_name_of_an_image_is_no_code(room: Room, small_sif: Path) -> None:
    """In the files for Lmod, in those for Tcl modules and in the scripts; PATH and other words stay as they are."""
    odd = room.folder / "\"]] [exec touch canary] {$(touch canary) ';`touch canary`\\.sif"
    shutil.copy(small_sif, odd)
    room.recipe("module", "local", odd, "-o", "m", "--name", "odd/1").expect(0)
    lines = ("python3 -c 'print(6 * 7)'", "odd-exec printf '%s|' 'a b' '$HOME' '*'", "module help odd")
    for _ in range(2):
        done = load(room.folder / "m", "odd/1", *lines, room=room).expect(0)
        assert done.out.startswith("42\na b|$HOME|*|")
        assert "[exec touch canary] {$(touch canary)" in done.out + done.err
        (room.folder / "m" / "modulefiles" / "odd" / "1.lua").unlink(missing_ok=True)
    assert not list(room.folder.rglob("canary"))


def test_a_program_of_a_module_says_what_is_wrong(room: Room, small_sif: Path) -> None:
    image = room.folder / "own.sif"
    shutil.copy(small_sif, image)
    room.recipe("module", "local", image, "-o", "own").expect(0)
    python = room.folder / "own" / "bin" / "python3"
    for place in (room.write("a:b/x", "").parent, Path("/usr"), Path("/etc/ssl")):
        done = run([python, "-V"], env=room.environment(), cwd=place)
        assert (done.code, done.err.startswith("recipe: error: "), str(place) in done.err) == (1, True, True), done.err
    image.rename(room.folder / "moved.sif")
    done = run([python, "-V"], env=room.environment(), cwd=room.folder)
    assert (done.code, "was moved or removed" in done.err) == (1, True)


def test_nothing_of_the_users_is_replaced(room: Room, small_sif: Path) -> None:
    other = room.folder / "other.sif"
    shutil.copy(small_sif, other)
    line = ("module", "local", small_sif, "-o", "m")
    room.recipe(*line).expect(0)
    room.recipe(*line).expect(0)
    assert "and not this module" in room.recipe("module", "local", other, "-o", "m").expect(2).err
    script = room.folder / "m" / "start.sh"
    script.write_text(script.read_text() + "# mine\n")
    assert "give --force" in room.recipe(*line).expect(2).err
    assert script.read_text().endswith("# mine\n")
    room.recipe(*line, "--force").expect(0)
    assert "# mine" not in script.read_text()
    room.write("notes/mine.txt", "mine")
    assert "holds files that recipe did not write" in room.recipe(*line[:3], "-o", "notes", "--force").expect(2).err
    assert [path.name for path in (room.folder / "notes").iterdir()] == ["mine.txt"]


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory, small_sif: Path) -> Iterator[Built]:
    """An image with ipykernel, and its kernel where Jupyter looks for it."""
    room = Room(tmp_path_factory.mktemp("jupyter"))
    made = build(room, room.write("kernel.yml", KERNEL), small_sif)
    yield made
    shutil.rmtree(room.folder, ignore_errors=True)


def execute(room: Room, *cells: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Execute a notebook; returns the outputs of each cell."""
    import nbclient
    import nbformat.v4 as form

    for name, value in room.environment(JUPYTER_DATA_DIR=str(room.folder / "data"), IPYTHONDIR=str(room.tmp)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(room.folder / "runtime"))
    book = form.new_notebook(cells=[form.new_code_cell(text) for text in cells])
    options = {"resources": {"metadata": {"path": str(room.folder)}}, "timeout": 120, "startup_timeout": 300}
    nbclient.NotebookClient(book, kernel_name=kernel, **options).execute()
    return [cell.outputs for cell in book.cells]


def test_a_notebook_runs_in_the_kernel(jupyter: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    room = jupyter.room
    made = room.recipe("kernel", jupyter.image, JUPYTER_DATA_DIR=str(room.folder / "data")).expect(0)
    assert "site: local, by the label of the image" in made.err
    assert "next: jupyter kernelspec list" in made.err
    assert made.out == f"{room.folder}/data/kernels/x\n"
    cells = ("x = 20", "x = x + 1", f"{WHERE}; print(x)")
    *_, last = execute(room, *cells, kernel="x", monkeypatch=monkeypatch)
    prefix, number = last[0]["text"].splitlines()
    assert prefix == f"{PREFIX} {room.folder} None True"
    assert number == "21"


def test_a_kernel_is_interrupted_and_ends(jupyter: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_client.manager import start_new_kernel

    room = jupyter.room
    for name, value in room.environment(JUPYTER_DATA_DIR=str(room.folder / "own")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(room.folder / "running"))
    monkeypatch.chdir(room.folder)
    room.recipe("kernel", jupyter.image, JUPYTER_DATA_DIR=str(room.folder / "own")).expect(0)
    manager, client = start_new_kernel(kernel_name="x", startup_timeout=300)
    sent = client.execute("print('begun', flush=True)\nwhile True: pass")
    while client.get_iopub_msg(timeout=120)["msg_type"] != "stream":
        pass
    manager.interrupt_kernel()
    while (answer := client.get_shell_msg(timeout=120))["parent_header"]["msg_id"] != sent:
        pass  # the answers of the start
    assert answer["content"]["ename"] == "KeyboardInterrupt"
    client.stop_channels()
    manager.shutdown_kernel()
    until = time.monotonic() + 60
    while processes("ipykernel_launcher") and time.monotonic() < until:
        time.sleep(0.1)
    assert not [line for line in processes("ipykernel_launcher") if str(room.folder) in line]


def test_an_image_without_ipykernel_has_its_line(room: Room, small_sif: Path) -> None:
    room.write("environment.yml", KERNEL)
    done = room.recipe("kernel", "local", small_sif).expect(3)
    assert "error[no-ipykernel]: the image 'small.sif' has no ipykernel" in done.err
    assert "add `- ipykernel` to the dependencies of environment.yml" in done.err
    assert not list(room.folder.glob("kernels*"))


class Typed:
    """A program at a terminal of its own."""

    def __init__(self, words: list[str | Path], *, room: Room) -> None:
        self.end, theirs = pty.openpty()
        # A prompt that is longer than a line of the terminal is cut by readline, and the folders of tests are long.
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 400, 0, 0))
        env = room.environment(TERM="xterm-256color") | {"COLUMNS": "400"}
        env.pop("NO_COLOR")
        self.process = subprocess.Popen(
            ["/usr/bin/setsid", "--ctty", *map(str, words)], cwd=room.folder, env=env,
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        self.seen = b""

    def wait(self, wanted: bytes, *, then: bytes = b"", seconds: float = 120.0) -> bytes:
        """Wait for a text, and for another one after it, and return all that was printed."""
        until = time.monotonic() + seconds
        while wanted not in self.seen or then not in self.seen.partition(wanted)[2]:
            ready = select.select([self.end], [], [], max(0.0, until - time.monotonic()))[0]
            assert ready, f"no {wanted!r} with {then!r} after it in {self.seen!r}"
            self.seen += os.read(self.end, 65_536)
        return self.seen

    def type(self, text: str) -> None:
        self.seen = b""
        os.write(self.end, text.encode())

    def close(self) -> int:
        code = self.process.wait(120)
        os.close(self.end)
        return code


def test_a_shell_at_a_terminal(room: Room, small_sif: Path) -> None:
    """Its own prompt with the image's name, the folder it was started in, Ctrl-C for what runs in it, its exit code."""
    odd = room.folder / "$(touch canary).sif"
    shutil.copy(small_sif, odd)
    for image, name in ((small_sif, b"(small) "), (odd, b"(image) ")):
        typed = Typed([program(), "shell", "local", image], room=room)
        typed.wait(name)
        typed.type("echo $((40 + 2))-$PWD-$(ls -d /opt/nothing 2>&1 | wc -l)\r")
        # A key before the next prompt, or a Ctrl-C before the program has the terminal, is for the shell itself.
        typed.wait(f"42-{room.folder}-1\r\n".encode(), then=name)
        typed.type("sh -c 'echo run\"\"ning; exec sleep 600'\r")
        typed.wait(b"running\r\n")
        typed.type("\x03")
        typed.wait(name)
        typed.type("exit 5\r")
        assert typed.close() == 5
    assert not (room.folder / "canary").exists()
    assert room.left_behind() == []


def test_a_shell_reads_commands_from_a_pipe(room: Room, small_sif: Path) -> None:
    words = [program(), "shell", "local", small_sif]
    done = run(words, env=room.environment(), cwd=room.folder, stdin="python3 -c 'print(6 * 7)'\npwd\nexit 4\n")
    assert (done.code, done.out) == (4, f"42\n{room.folder}\n")


def test_they_have_the_variables_of_a_job(room: Room, small_sif: Path) -> None:
    """In an allocation, from outside of its nodes: the site's variables and a task on a node."""
    engine("salloc")
    room.site("cpu-test", SITES["cpu-test"])
    room.recipe("module", "cpu-test", small_sif, "-o", "m").expect(0)
    room.write("say.py", f"{WHERE}\nprint(os.environ['SLURM_JOB_NUM_NODES'], os.environ['SLURMD_NODENAME'])")
    python = room.folder / "m" / "bin" / "python3"
    outside = run([python, "say.py"], env=room.environment(SLURM_JOB_ID=""), cwd=room.folder)
    assert " None " in outside.out, outside
    for inside, given in (([python, "say.py"], ""), ([program(), "shell", "cpu-test", small_sif], "python3 say.py\n")):
        words = ["salloc", "--quiet", "--nodes=1", "--ntasks=1", *inside]
        done = run(words, env=room.environment(), cwd=room.folder, stdin=given).expect(0)
        first, second = done.out.splitlines()
        assert first == f"/usr {room.folder} of the site False", done.out
        assert second.startswith("1 "), done.out


def test_an_image_of_another_site_is_named(jupyter: Built) -> None:
    for command in ("module", "kernel"):
        line = (command, "lumi-g", jupyter.image, "-o", f"other-{command}")
        assert (
            f"was built for 'local', and 'lumi-g' is named\n  fix: `recipe {command} local"
            in jupyter.room.recipe(*line).expect(0).err
        )
    assert "LUMI-G" in (jupyter.room.folder / "other-module" / "start.sh").read_text()


def test_kernel_json_names_no_path(jupyter: Built) -> None:
    jupyter.room.recipe("kernel", "local", jupyter.image, "-o", "spec", "--name", "mine").expect(0)
    content = json.loads((jupyter.room.folder / "spec" / "kernel.json").read_text())
    assert content["argv"] == ["bash", "{resource_dir}/kernel.sh", "{connection_file}"]
    assert content["display_name"] == "mine (local)"
