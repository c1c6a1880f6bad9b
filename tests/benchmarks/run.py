"""Benchmarks: start-up, compilation, what a build adds to its engine, and builds against the peers.

    python tests/benchmarks/run.py startup compile checks           needs nothing but the package
    python tests/benchmarks/run.py overhead peers layers conda space
                                                              needs Apptainer and RECIPE_TEST_BASE_SIF (`make bench`)

Each figure is a median over interleaved runs, and each comparison a ratio inside one run: machines are noisy.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conda import conda
from layers import layers
from space import space

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"

TINY = "name: tiny\ndependencies:\n  - pip:\n      - six==1.17.0\n"
TORCH = "name: torch\ndependencies:\n  - pip:\n      - torch==2.13.0\n      - numpy==2.4.6\n"

# What people write by hand: pip in %post, the engine's own defaults.
BY_HAND = """Bootstrap: localimage
From: {base}

%post
    . /mnt/settings
    python3 -m venv /opt/env
    /opt/env/bin/pip install --no-cache-dir {packages}
"""


def seconds(argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> float:
    """Wall seconds of one command; raises when it fails."""
    started = time.perf_counter()
    done = subprocess.run(
        argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise SystemExit(f"{argv} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')[-2000:]}")
    return time.perf_counter() - started


def interleaved(commands: Mapping[str, Callable[[], float]], *, runs: int) -> dict[str, float]:
    """Medians of several commands, run in turn: A B A B ..."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, call in commands.items():
            found[name].append(call())
    return {name: statistics.median(values) for name, values in found.items()}


def show(title: str, medians: Mapping[str, float], *, against: str) -> None:
    """A table of medians and their ratios to one of them."""
    print(f"\n{title}")
    for name, value in medians.items():
        print(f"  {name:42} {value:8.3f} s   {value / medians[against]:6.2f} x")


def startup(runs: int) -> None:
    """`recipe --help` against the import of click alone."""
    program = shutil.which("recipe") or "recipe"
    commands = {
        'python -c "import click"': lambda: seconds([sys.executable, "-c", "import click"]),
        "recipe --help": lambda: seconds([program, "--help"]),
        "recipe sites": lambda: seconds([program, "sites"]),
    }
    show("start-up", interleaved(commands, runs=runs * 4), against='python -c "import click"')


COMPILE = """
import sys, time
started = time.perf_counter()
from pathlib import Path
from builder.compile.compile import compile_plan
from builder.parse.site import load_site, find_site_files
from builder.model.finding import UnsupportedError
from builder.parse.recipe import load_recipe
from builder.model.target import Context
from builder.resolve.resolve import resolve
imported = time.perf_counter()
plans = refused = 0
recipes = [load_recipe(path) for path in sorted(Path(sys.argv[1]).iterdir()) if path.suffix in (".yml", ".txt")]
for name in find_site_files():
    site = load_site(name)
    for backend in site.build.backends:
        for recipe in recipes:
            try:
                compile_plan(resolve(recipe, site, context=Context(backend=backend, tool="benchmark")))
                plans += 1
            except UnsupportedError:
                refused += 1
print(imported - started, time.perf_counter() - imported, plans, refused)
"""


def compilation(runs: int) -> None:
    """All example recipes for all sites and backends, loading included, in one process."""
    figures = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", COMPILE, str(RECIPES)], capture_output=True, text=True, check=True)
        figures.append([float(word) for word in done.stdout.split()])
    imports, work, plans, refused = (statistics.median(column) for column in zip(*figures, strict=True))
    print("\ncompile everything")
    print(f"  imports                                    {imports:8.3f} s")
    print(f"  {plans:.0f} plans and {refused:.0f} refusals                  {work:8.3f} s")


def checks(runs: int) -> None:
    """All checks of one recipe over all sites, in one process after the import; the first call reads the tables."""
    code = """
import sys, time
from pathlib import Path
from builder.parse.site import load_site, find_site_files
from builder.model.finding import BuilderError
from builder.parse.recipe import load_recipe
from builder.model.target import Context
from builder.resolve.resolve import resolve
recipe, sites = load_recipe(Path(sys.argv[1])), [load_site(name) for name in find_site_files()]
for _ in range(2):
    started = time.perf_counter()
    for site in sites:
        try:
            resolve(recipe, site, context=Context())
        except BuilderError:
            pass
    print(time.perf_counter() - started)
"""
    for recipe in (RECIPES / "mnist.yml", RECIPES / "pytorch-rocm.yml", ROOT / "tests" / "recipes" / "full.yml"):
        found = []
        for _ in range(runs):
            argv = [sys.executable, "-c", code, str(recipe)]
            done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
            found.append([float(line) for line in done.stdout.split()])
        first, second = (1000 * statistics.median(column) for column in zip(*found, strict=True))
        print(f"{recipe.stem:14} first {first:6.1f} ms, then {second:6.1f} ms")


def _base() -> str:
    base = os.environ.get("RECIPE_TEST_BASE_SIF", "")
    if not base:
        raise SystemExit("RECIPE_TEST_BASE_SIF is not set: run this by `make bench`")
    return base


def _plan(folder: Path, text: str, base: str) -> Path:
    recipe = folder / "environment.yml"
    recipe.write_text(text, encoding="utf-8")
    seconds(["recipe", "plan", "local", str(recipe), "--base", base, "-o", str(folder / "plan")])
    return recipe


SHIM = """#!/usr/bin/env bash
# Times the engine where it builds and where it runs the smoke test; what else we ask it (version, options) is ours.
started=$EPOCHREALTIME
"{engine}" "$@" || code=$?
if [[ "$1" = build && "${{2:-}}" != --help || "$1" = exec ]]; then
    echo "$started $EPOCHREALTIME" >>"{log}"
    times >>"{log}" # this shell's, then the engine's
fi
exit "${{code:-0}}"
"""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """One build: seconds of the engine, its smoke test included, and what was added, by the clock and of CPU."""

    engine: float
    engine_cpu: float
    wall: float
    cpu: float


def _parts(call: Sequence[str], *, log: Path, env: Mapping[str, str]) -> Parts:
    log.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = seconds(call, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = log.read_text(encoding="utf-8").splitlines()
    engine = sum(float(ended) - float(started) for started, ended in map(str.split, rows[::3]))
    parts = " ".join(rows[2::3]).split()
    engine_cpu = sum(60 * float(part.split("m")[0]) + float(part.split("m")[1].rstrip("s")) for part in parts)
    return Parts(engine=engine, engine_cpu=engine_cpu, wall=wall - engine, cpu=cpu - engine_cpu)


def overhead(runs: int) -> None:
    """What `recipe build` adds to its engine: what it takes less the engine's own, in the same build."""
    base = _base()
    engine = shutil.which("apptainer") or "apptainer"
    print("\nwhat a build adds to its engine's commands (downloads cached)")
    for title, text, options in (
        ("one small package, no smoke test", TINY, ("--no-smoke",)),
        ("torch and numpy, no smoke test", TORCH, ("--no-smoke",)),
        ("torch and numpy, smoke test", TORCH, ()),
    ):
        with tempfile.TemporaryDirectory(prefix="recipe-bench-") as scratch:
            folder = Path(scratch)
            recipe, log, out = folder / "environment.yml", folder / "engine.log", folder / "out.sif"
            recipe.write_text(text, encoding="utf-8")
            shim = folder / "bin" / "apptainer"
            shim.parent.mkdir()
            shim.write_text(SHIM.format(engine=engine, log=log), encoding="utf-8")
            shim.chmod(0o755)
            environment = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"}
            call = ["recipe", "build", "local", str(recipe), "--base", base, "-o", str(out), "--force", *options]
            call += ["--backend", "apptainer"]  # with layers there is no engine to compare with
            found = [_parts([*call, "-q"], log=log, env=environment) for _ in range(runs + 1)][1:]
            show_parts(title, found)


def show_parts(title: str, found: Sequence[Parts]) -> None:
    """Medians over builds, each ratio within its own build."""
    middle = {name: statistics.median(getattr(parts, name) for parts in found) for name in Parts.__annotations__}
    ratio = statistics.median(100 * parts.wall / parts.engine for parts in found)
    ratio_cpu = statistics.median(100 * parts.cpu / parts.engine_cpu for parts in found)
    print(f"  {title:32} wall: engine {middle['engine']:6.2f} s, ours {middle['wall']:5.2f} s, {ratio:4.1f} %")
    print(
        f"  {'':32} CPU:  engine {middle['engine_cpu']:6.2f} s, ours {middle['cpu']:5.2f} s, {ratio_cpu:4.1f} %",
        flush=True,
    )


def peers(runs: int) -> None:
    """A torch environment: recipe against a definition file as people write it, and against cotainr's packing alone."""
    base = _base()
    with tempfile.TemporaryDirectory(prefix="recipe-bench-") as scratch:
        folder = Path(scratch)
        recipe = _plan(folder, TORCH, base)
        by_hand = folder / "by-hand.sh"
        (folder / "by-hand.def").write_text(
            BY_HAND.format(base=base, packages="torch==2.13.0 numpy==2.4.6"), encoding="utf-8"
        )
        settings = (
            '. plan/engine.sh\npick_runtime apptainer singularity\nclear_binds\ntemporary_folder "" ""\ninside_build\n'
        )
        by_hand.write_text(
            f'set -euo pipefail\n{settings}"$runtime" build --force "${{build_binds[@]}}" by-hand.sif by-hand.def\n',
            encoding="utf-8",
        )
        out = folder / "out.sif"
        call = ["recipe", "build", "local", str(recipe), "--base", base, "-o", str(out), "--backend", "apptainer"]
        commands = {
            "apptainer build, pip in %post": lambda: seconds(["bash", by_hand.name], cwd=folder),
            "recipe build --no-smoke": lambda: seconds([*call, "--force", "--no-smoke", "-q"]),
        }
        cotainr = os.environ.get("RECIPE_TEST_COTAINR", "")
        if cotainr:
            commands["cotainr build, the base alone"] = lambda: _cotainr(cotainr, base=base, folder=folder)
        medians = interleaved(commands, runs=runs)
        show("a torch environment, downloads cached", medians, against="recipe build --no-smoke")
        sizes = {"by hand": folder / "by-hand.sif", "recipe": out}
        print("  " + ", ".join(f"{name} {path.stat().st_size / 1e6:.0f} MB" for name, path in sizes.items()))
        _imports({"by hand": folder / "by-hand.sif", "recipe": out}, runs=runs)


def _cotainr(program: str, *, base: str, folder: Path) -> float:
    image = folder / "cotainr.sif"
    image.unlink(missing_ok=True)
    return seconds([program, "build", str(image), f"--base-image={base}", "--accept-licenses", "-q"], cwd=folder)


def _imports(images: Mapping[str, Path], *, runs: int) -> None:
    def call(image: Path) -> float:
        return seconds(["apptainer", "exec", str(image), "/opt/env/bin/python", "-c", "import torch"])

    commands = {f"import torch, {name}": (lambda path=path: call(path)) for name, path in images.items()}
    medians = interleaved(commands, runs=runs)
    show("start-up in the image", medians, against="import torch, recipe")


def room(runs: int) -> None:
    """Room at the peak, of a small recipe and of one with torch."""
    del runs  # a peak is not a time: once is enough
    program = shutil.which("recipe") or "recipe"
    space(1, program=program, base=_base(), recipes={"six": TINY, "torch": TORCH})


PARTS: dict[str, Callable[[int], None]] = {
    "startup": startup,
    "compile": compilation,
    "checks": checks,
    "overhead": overhead,
    "peers": peers,
    "layers": layers,
    "conda": conda,
    "space": room,
}


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=", ".join(PARTS))
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.parts or ["startup", "compile"]:
        PARTS[name](arguments.runs)


if __name__ == "__main__":
    main()
