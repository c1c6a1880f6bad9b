"""Layers against flat builds: from nothing, one changed pin, nothing changed; and with a base ten times as large.

Called by run.py. The same packages for all, downloads cached for all; numpy is another version in every run. The ways
are run in turn, and what counts is the ratio within one run of this program: machines are noisy.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NUMPY = ("2.4.6", "2.4.5", "2.4.4", "2.4.3", "2.4.2", "2.4.1")  # a new pin for every run
RECIPE = "name: torch\ndependencies:\n  - pip:\n      - torch==2.13.0\n      - numpy=={numpy}\n"
DEFINITION = """Bootstrap: localimage
From: {base}

%post
    . /mnt/settings
    python3 -m venv /opt/env
    /opt/env/bin/pip install --quiet --cache-dir /mnt/pip torch==2.13.0 numpy=={numpy}
"""
DOCKERFILE = """FROM recipe-bench-base
COPY wheels /wheels
RUN --mount=type=cache,target=/root/.cache/pip python3 -m venv /opt/env && \\
    /opt/env/bin/pip install --quiet --cert /wheels/ca.pem --find-links /wheels torch==2.13.0 numpy=={numpy}
"""
COTAINR = """name: stand-in-lumi
extends: lumi-c
build:
  backend_modules: {{cotainr: [], tykky: []}}
  login_heavy: "yes"
  tmpdir: {tmp}
  cachedir: {tmp}
base_images:
  - reference: {base}
    glibc: "2.36"
    source: [own]
"""
# Every version of numpy into the caches that the ways have of their own.
DOWNLOAD = "{pip} download --quiet --no-deps --only-binary :all: --dest /tmp/there {more} {pin}"
STAND_INS = Path(__file__).resolve().parents[1] / "engines" / "stand_ins"
SETTINGS = '. plan/engine.sh\npick_runtime apptainer singularity\nclear_binds\ntemporary_folder "" ""\ninside_build\n'
# Builds of recipes share no cache that they can write; people's own builds do.
SETTINGS += 'mkdir -p pip "$inputs/pip"\nbuild_binds+=(--bind "$PWD/pip:/mnt/pip")\n'
TUNED = '--mksquashfs-args "-comp zstd -Xcompression-level 3"'


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where the builds of one base happen."""

    folder: Path
    base: Path

    @property
    def environment(self) -> dict[str, str]:
        own = {"RECIPE_CACHE_DIR": str(self.folder / "cache"), "UV_CACHE_DIR": str(self.folder / "uv")}
        return {**os.environ, **own}

    def write(self, numpy: str) -> list[str]:
        """Write the environment file; what follows `recipe build` and `recipe fetch`."""
        file = self.folder / "environment.yml"
        file.write_text(RECIPE.format(numpy=numpy), encoding="utf-8")
        return ["local", str(file), "--base", str(self.base)]

    def recipe(self, numpy: str, *more: str) -> float:
        words = ["recipe", "build", *self.write(numpy), "-o", str(self.folder / "out.sif"), "--no-smoke", "-q", *more]
        return seconds(words, cwd=self.folder, env=self.environment)

    def fetch(self, numpy: str) -> float:
        return seconds(["recipe", "fetch", *self.write(numpy), "-q"], cwd=self.folder, env=self.environment)

    def flat(self, numpy: str, options: str) -> float:
        return self._flat(DEFINITION.format(base=self.base, numpy=numpy), options, to="flat.sif")

    def _flat(self, definition: str, options: str, *, to: str) -> float:
        (self.folder / "flat.def").write_text(definition, encoding="utf-8")
        line = f'"$runtime" build --force {options} "${{build_binds[@]}}" {to} flat.def\n'
        (self.folder / "flat.sh").write_text(f"set -euo pipefail\n{SETTINGS}{line}", encoding="utf-8")
        return seconds(["bash", "flat.sh"], cwd=self.folder, env=self.environment)

    def download_flat(self, numpys: Sequence[str]) -> None:
        """Have these versions in the cache that pip in an Apptainer build uses."""
        head, install = DEFINITION.format(base=self.base, numpy="").rsplit("\n    ", 1)
        pip = install.split()[0]
        lines = [DOWNLOAD.format(pip=pip, more="--cache-dir /mnt/pip", pin=f"numpy=={one}") for one in numpys]
        self._flat("\n    ".join([head, *lines, "rm -r /tmp/there\n"]), "--sandbox", to="there")
        shutil.rmtree(self.folder / "there")

    def download_docker(self, numpys: Sequence[str]) -> None:
        """Have these versions in the cache that pip in a Docker build uses."""
        head, _, _ = DOCKERFILE.rpartition("    ")
        more = "--cert /wheels/ca.pem"
        lines = [DOWNLOAD.format(pip="/opt/env/bin/pip", more=more, pin=f"numpy=={one}") for one in numpys]
        self._docker(f"{head}    {' && '.join(lines)}\n")

    def docker(self, numpy: str) -> float:
        built = self._docker(DOCKERFILE.format(numpy=numpy))
        steps = [
            ["docker", "save", "recipe-bench", "--output", str(self.folder / "docker.tar")],
            [
                "apptainer",
                "build",
                "--force",
                str(self.folder / "docker.sif"),
                f"docker-archive://{self.folder}/docker.tar",
            ],
        ]
        return built + sum(seconds(step, cwd=self.folder, env=self.environment) for step in steps)

    def _docker(self, dockerfile: str) -> float:
        context = self.folder / "docker"
        (context / "wheels").mkdir(parents=True, exist_ok=True)
        for links in os.environ.get("PIP_FIND_LINKS", "").split():
            for wheel in Path(links).glob("torch-*.whl"):
                if not (context / "wheels" / wheel.name).exists():
                    shutil.copy(wheel, context / "wheels")
        certificate = (
            os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
        )
        if Path(certificate).is_file():
            shutil.copy(certificate, context / "wheels" / "ca.pem")
        (context / "Dockerfile").write_text(dockerfile, encoding="utf-8")
        words = ["docker", "build", "--quiet", "--network", "host", "--tag", "recipe-bench", str(context)]
        return seconds(words, cwd=self.folder, env={**self.environment, "DOCKER_BUILDKIT": "1"})

    def cotainr(self, numpy: str) -> float:
        """The real cotainr by the script of a plan; of what it needs, Miniforge's installer is a stand-in."""
        folder = self.folder / "cotainr"
        for name in ("sites", "bin", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        site = folder / "sites" / "stand-in-lumi.yaml"
        site.write_text(COTAINR.format(base=self.base, tmp=folder / "tmp"), encoding="utf-8")
        python = Path(os.environ["RECIPE_TEST_COTAINR"]).with_name("python")
        program = folder / "bin" / "cotainr"
        words = shlex.join([str(python), str(STAND_INS / "cotainr_with_miniforge_stand_in.py")])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        text = RECIPE.format(numpy=numpy).replace("dependencies:\n", "dependencies:\n  - python=3.11\n")
        (folder / "environment.yml").write_text(text, encoding="utf-8")
        own = {"RECIPE_SITES": str(site.parent), "RECIPE_ACCEPT_LICENSES": "yes", "TMPDIR": str(folder / "tmp")}
        env = {**self.environment, **own, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        shutil.rmtree(folder / "plan", ignore_errors=True)
        seconds(["recipe", "plan", site.stem, "environment.yml", "-o", "plan"], cwd=folder, env=env)
        (script,) = (folder / "plan").glob("1-build-*.sh")
        return seconds(["bash", script.name], cwd=script.parent, env=env)

    def warm(self) -> None:
        """Have the downloads and the base image in memory: some machines take out what nobody read for a minute."""
        links = [Path(word) for word in os.environ.get("PIP_FIND_LINKS", "").split()]
        wheels = [wheel for folder in links for wheel in folder.glob("torch-*.whl")]
        for path in (self.base, *wheels, *(self.folder / "uv").rglob("*")):
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    while file.read(1 << 20):
                        pass

    def forget_layers(self) -> None:
        """Forget all that was made of downloads."""
        shutil.rmtree(self.folder / "cache" / "layers-1", ignore_errors=True)
        for left in ("out.sif", "out.plan"):
            path = self.folder / left
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)


def seconds(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> float:
    """Wall seconds of one command; raises when it fails."""
    started = time.perf_counter()
    done = subprocess.run(
        argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise SystemExit(f"{argv} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')[-3000:]}")
    return time.perf_counter() - started


def layers(runs: int) -> None:
    """From nothing, one pin, nothing: layers against Apptainer's defaults, tuned, Docker and cotainr where they run."""
    base = os.environ.get("RECIPE_TEST_BASE_SIF", "")
    if not base:
        raise SystemExit("RECIPE_TEST_BASE_SIF is not set: run this by `make bench`")
    with tempfile.TemporaryDirectory(prefix="recipe-bench-") as scratch:
        ground = Ground(folder=Path(scratch), base=Path(base))
        _compare(ground, runs=runs, title=f"base of {Path(base).stat().st_size / 1e6:.0f} MB")
        larger = _padded(ground)
        _compare(larger, runs=runs, title=f"base of {larger.base.stat().st_size / 1e6:.0f} MB", flat=False)


def _padded(ground: Ground) -> Ground:
    """The same base with incompressible files, so that its image is ten times as large."""
    folder = ground.folder / "padded"
    folder.mkdir()
    tree, size = folder / "tree", ground.base.stat().st_size
    seconds(["apptainer", "build", "--sandbox", str(tree), str(ground.base)], cwd=folder, env=ground.environment)
    for number in range(9):
        with (tree / "opt" / f"padding-{number}").open("wb") as file:
            file.write(os.urandom(size))
    words = ["apptainer", "build", "--mksquashfs-args", "-comp zstd -Xcompression-level 1"]
    seconds([*words, str(folder / "base.sif"), str(tree)], cwd=folder, env=ground.environment)
    shutil.rmtree(tree)
    return Ground(folder=folder, base=folder / "base.sif")


def _compare(ground: Ground, *, runs: int, title: str, flat: bool = True) -> None:
    runs = min(runs, len(NUMPY) - 1)
    plan = ["recipe", "plan", "local", str(ground.folder / "environment.yml"), "--base", str(ground.base)]
    for numpy in NUMPY[: runs + 1]:  # downloads
        ground.recipe(numpy, "--force")
    seconds([*plan, "-o", str(ground.folder / "plan")], cwd=ground.folder, env=ground.environment)
    ways: dict[str, Callable[[str], float]] = {}
    if flat:
        ground.download_flat(NUMPY[: runs + 1])
        ways["apptainer build, pip in %post"] = lambda numpy: ground.flat(numpy, "")
        ways["the same, zstd 3"] = lambda numpy: ground.flat(numpy, TUNED)
    if flat and os.environ.get("DOCKER_HOST") and os.environ.get("RECIPE_TEST_BASE_TAR"):
        load = ["docker", "import", os.environ["RECIPE_TEST_BASE_TAR"], "recipe-bench-base"]
        seconds(load, cwd=ground.folder, env=ground.environment)
        ground.download_docker(NUMPY[: runs + 1])
        ways["docker build, save, convert"] = ground.docker
    if flat and os.environ.get("RECIPE_TEST_COTAINR"):
        ways["cotainr (stand-in for Miniforge)"] = ground.cotainr
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)
        print(
            f"{title}: {name}: {value:.2f} s", file=sys.stderr, flush=True
        )  # it takes long: what has been seen so far

    def timed(name: str, way: Callable[[], float]) -> None:
        os.sync()  # nobody waits for the disk because of who was before
        ground.warm()
        note(name, way())

    for numpy in NUMPY[1 : runs + 1]:
        ground.forget_layers()
        timed("layers, from nothing", lambda: ground.recipe(NUMPY[0]))
        ground.forget_layers()
        timed("layers, recipe fetch of what is there", lambda: ground.fetch(NUMPY[0]))
        timed("layers, from nothing after recipe fetch", lambda: ground.recipe(NUMPY[0]))
        for name, way in ways.items():
            timed(name, lambda way=way, numpy=numpy: way(numpy))  # type: ignore[misc]
        timed("layers, one changed pin", lambda numpy=numpy: ground.recipe(numpy, "--force"))  # type: ignore[misc]
        timed("layers, nothing changed", lambda numpy=numpy: ground.recipe(numpy))  # type: ignore[misc]
    _show(f"torch and numpy, downloads cached, {title}, median of {runs}", found)
    if flat:
        seconds(
            [
                *["recipe", "build", "local", "environment.yml", "--base", str(ground.base), "-o", "own-flat.sif"],
                *["--backend", "apptainer", "--no-smoke", "-q"],
            ],
            cwd=ground.folder,
            env=ground.environment,
        )
        names = {"layers": "out.sif", "flat, zstd 3": "flat.sif", "flat, ours": "own-flat.sif"}
        sizes = {name: ground.folder / file for name, file in names.items()}
        print("  " + ", ".join(f"{name} {path.stat().st_size / 1e6:.0f} MB" for name, path in sizes.items()))
        _starts(ground, sizes, runs=runs)


def _show(title: str, found: Mapping[str, Sequence[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in found.items()}
    print(f"\n{title}", flush=True)
    for name, value in medians.items():
        against = [f"{other / value:6.1f} x" for key, other in medians.items() if not key.startswith("layers")]
        print(f"  {name:40} {value:8.2f} s  {'  '.join(against) if name.startswith('layers') else ''}")


def _starts(ground: Ground, images: Mapping[str, Path], *, runs: int) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        for name, image in images.items():
            for what in ("pass", "import torch"):
                words = ["apptainer", "exec", str(image), "/opt/env/bin/python", "-c", what]
                taken = seconds(words, cwd=ground.folder, env=ground.environment)
                found.setdefault(f"{what}, {name}", []).append(taken)
    _show("start-up", found)
