"""The program `recipe` as a user runs it, and what can be asked of an image with the engines' own tools."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import builder

EXAMPLE = Path(builder.__file__).parents[1] / "recipes" / "mnist-local.yml"
TINY = """
    name: tiny
    dependencies:
      - pip: [six==1.16.0]
    variables: {PRICE: "5 $HOME `id` 'x'"}
    container:
      system: [less]
      env: {COLOUR: deep blue}
      labels: {purpose: "a test, \\"quoted\\""}
      files: {notes.txt: /opt/notes/notes.txt}
      run:
        - python -c "import six" && echo made >/opt/notes/made.txt
      smoke: {imports: [six]}
"""
TORCH = "2.13.0"  # of the example recipe; the CPU build comes from pip's own settings or from PyTorch's index
# Where packing is not what is tested: gzip, the engine's own choice, takes ten times as long.
QUICK_ARGUMENTS = "-comp zstd -Xcompression-level 1"
QUICK = {"APPTAINER_MKSQUASHFS_ARGS": QUICK_ARGUMENTS}
LIMIT = 540.0  # seconds that one build may take on a busy machine


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a program ended; `seconds` is the time it took."""

    code: int
    out: str
    err: str
    seconds: float

    def expect(self, code: int) -> Done:
        """Itself, if it ended with the code; what it said otherwise."""
        assert self.code == code, f"exit code {self.code}, not {code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
        return self


def run(
    arguments: Iterable[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    umask: int = -1,
) -> Done:
    """Run a program to its end."""
    words = [str(word) for word in arguments]
    started = time.monotonic()
    done = subprocess.run(
        words, env=env, cwd=cwd, input=stdin, capture_output=True, text=True, errors="replace", timeout=LIMIT,
        check=False, umask=umask,
    )  # fmt: skip
    return Done(code=done.returncode, out=done.stdout, err=done.stderr, seconds=time.monotonic() - started)


class Room:
    """A folder with everything of some builds: recipes, sites, images, and one place for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tmp, self.sites = folder, folder / "tmp", folder / "sites"
        for path in (folder, self.tmp, self.sites):
            path.mkdir(parents=True, exist_ok=True)

    def environment(self, **more: str) -> dict[str, str]:
        """The tests' environment with this room's folders; nothing of an engine's settings reaches in from outside."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("APPTAINER", "SINGULARITY", "SBATCH_", "RECIPE_ACCEPT", "RECIPE_SITES"))
        }
        if any(Path(word).is_dir() and any(Path(word).glob("torch-*.whl")) for word in find_links()):
            kept.setdefault("RECIPE_TORCH_INDEX", "default")
        return kept | {"TMPDIR": str(self.tmp), "RECIPE_SITES": str(self.sites), "NO_COLOR": "1"} | more

    def write(self, name: str, text: str) -> Path:
        """Write a file into the room."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def site(self, name: str, text: str) -> str:
        """Write a site of the user's own; returns its name."""
        self.write(f"sites/{name}.yaml", f"name: {name}\n{textwrap.dedent(text)}")
        return name

    def recipe(self, *arguments: str | Path, umask: int = -1, **environment: str) -> Done:
        """Run `recipe`."""
        return run([program(), *arguments], env=self.environment(**environment), cwd=self.folder, umask=umask)

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Start `recipe` and leave it running, in a process group of its own as a shell would."""
        return subprocess.Popen(
            [str(word) for word in (program(), *arguments)],
            env=self.environment(**environment),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def log(self, plan: Path, step: str = "build-image") -> str:
        """The log of a step."""
        return (plan / "logs" / f"{step}.log").read_text(errors="replace")

    def left_behind(self) -> list[str]:
        """What is left of temporary folders, drafts and processes; an empty list after any build."""
        left = [str(path) for path in self.tmp.iterdir()]
        left += [str(path) for path in self.folder.rglob("*.part*")]
        left += [str(path) for path in self.folder.rglob(".state.json")]
        left += [str(path) for path in self.folder.rglob("inputs.recipe")]
        left += [str(path) for path in self.folder.rglob(".*.recipe-*")]
        return left + processes(str(self.folder))


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image with the room it was built in."""

    room: Room
    recipe: Path
    image: Path
    plan: Path
    done: Done

    def build(self, *arguments: str | Path, **environment: str) -> Done:
        """The same build once more."""
        words = ("build", "local", self.recipe, "-o", self.image, *arguments)
        return self.room.recipe(*words, **environment)


# Threads of a training that wait for each other take twice as long where other tests have the cores.
ALONE = {"OMP_NUM_THREADS": "1"}


def build(room: Room, recipe: Path, base: Path, *arguments: str, umask: int = -1) -> Built:
    image = room.folder / "x.sif"
    words = ("build", "local", recipe, "--base", base, "-o", image, *arguments)
    done = room.recipe(*words, umask=umask, **ALONE).expect(0)
    return Built(room=room, recipe=recipe, image=image, plan=room.folder / "x.plan", done=done)


def find_links() -> list[str]:
    """pip's folders of wheels."""
    return os.environ.get("PIP_FIND_LINKS", "").split()


def program() -> Path:
    """The program `recipe` of the environment that runs the tests."""
    return Path(sys.executable).with_name("recipe")


def report_of(plan: Path) -> dict[str, Any]:
    """report.json of a plan folder."""
    return dict(json.loads((plan / "report.json").read_text()))


def processes(word: str) -> list[str]:
    """Command lines of live processes that hold a word, or that work in a folder of that name."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            place = str((entry / "cwd").readlink())
        except OSError:
            continue
        if (word in line or place.startswith(word)) and state not in (b"Z", b"X"):
            found.append(f"{entry.name} {line}")
    return found


def until_text(path: Path, text: str, *, process: subprocess.Popen[str]) -> None:
    """Wait for a text in a growing file."""
    end = time.monotonic() + LIMIT
    while not (path.exists() and text in path.read_text(errors="replace")):
        assert time.monotonic() < end, f"'{text}' did not come in time"
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)


def stop(process: subprocess.Popen[str], number: signal.Signals, *, whole_group: bool) -> Done:
    """Send a signal, to a whole process group as a terminal does for Ctrl-C, and wait for the end."""
    started = time.monotonic()
    if whole_group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, _ = process.communicate(timeout=LIMIT)
    return Done(code=process.returncode, out=out, err="", seconds=time.monotonic() - started)


# --- images ----------------------------------------------------------------------------------------------------------


def offsets(image: Path) -> list[str]:
    """Where the squashfs of a SIF begins, and those of the layers over it, lowest first."""
    listing = run(["apptainer", "sif", "list", image]).expect(0).out
    found = re.findall(r"\|(\d+)-\d+\s*\|FS \(Squashfs", listing)
    assert found, listing
    return found


def superblocks(image: Path) -> list[str]:
    """What unsquashfs says of an image's file systems."""
    return [run(["unsquashfs", "-s", "-o", offset, image]).expect(0).out for offset in offsets(image)]


def listing(image: Path) -> dict[str, str]:
    """Every path of an image with its mode as `ls -l` writes it."""
    found = {}
    for offset in offsets(image):
        for line in run(["unsquashfs", "-ll", "-o", offset, image]).expect(0).out.splitlines():
            if line.startswith("c"):
                continue  # a device 0/0 hides what is below
            mode, _, _, _, _, path = line.split(maxsplit=5)
            found[path.partition(" -> ")[0].removeprefix("squashfs-root") or "/"] = mode
    return found


def labels(image: Path) -> dict[str, str]:
    """An image's labels."""
    text = run(["apptainer", "inspect", "--json", "--labels", image]).expect(0).out
    return dict(json.loads(text)["data"]["attributes"]["labels"])


def inside(image: Path, *command: str, env: Mapping[str, str] | None = None) -> str:
    """What a command in an image prints."""
    return run(["apptainer", "exec", image, *command], env=env).expect(0).out
