"""A large conda environment: layers against flat builds, from nothing, one changed pin, nothing changed.

Called by run.py. The channel is a stand-in, made here: many packages of many files, not compressed, and this
machine's Python. All build from one lock. Neither conda nor micromamba can be had everywhere: where a flat build runs
one of them, a stand-in does its work, which is py-rattler in the container, as fast as it can.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import layers as timing

ENGINES = Path(__file__).resolve().parents[1] / "engines"
PACKAGES, FILES, SIZE = 120, 200, 8000  # and one package of 51 MB
RECIPE = "name: wide\nchannels: [{channel}]\ndependencies: [python={minor}, wide, bulk, {last}={version}]\n"
LAST = f"wide-{PACKAGES - 1:03}"
SAID = re.compile(r"recipe: (layer .+ made in .+|\d+ conda packages: .+)")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where the builds happen: a folder for each lock, one cache for all."""

    folder: Path
    base: Path
    channel: Path
    minor: str

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "RECIPE_CACHE_DIR": str(self.folder / "cache")}

    def lock(self, version: str) -> float:
        """Write the recipe with one pin, and lock it."""
        text = RECIPE.format(channel=self.channel.as_uri(), minor=self.minor, last=LAST, version=version)
        (self.folder / "wide.yml").write_text(text, encoding="utf-8")
        words = ["recipe", "lock", "local", "wide.yml", "--base", str(self.base)]
        return timing.seconds(words, cwd=self.folder, env=self.environment)

    def layers(self, *more: str) -> float:
        words = ["recipe", "build", "local", "wide.yml", "--base", str(self.base), "-o", "out.sif", "--locked"]
        return timing.seconds([*words, "--no-smoke", "-q", *more], cwd=self.folder, env=self.environment)

    def flat(self) -> float:
        """Our own plan for Apptainer, its micromamba a stand-in."""
        plan = self.folder / "plan"
        words = ["recipe", "plan", "local", "wide.yml", "--base", str(self.base), "--backend", "apptainer", "--locked"]
        timing.seconds([*words, "-o", str(plan)], cwd=self.folder, env=self.environment)
        (definition,) = plan.glob("*.def")
        text = definition.read_text(encoding="utf-8")
        stage = re.compile(r"Bootstrap: docker\nFrom: \S*micromamba\S*\nStage: mamba\n+")
        assert stage.search(text), text
        text = stage.sub("", text).replace("Stage: image\n", "")
        text = text.replace("%files from mamba\n    /bin/micromamba ", f"%files\n    {self._micromamba()} ")
        definition.write_text(text, encoding="utf-8")
        (script,) = plan.glob("1-build-*.sh")
        taken = timing.seconds(["bash", script.name], cwd=plan, env=self.environment)
        shutil.copy(next(plan.glob("*.sif")), self.folder / "flat.sif")
        return taken

    def _micromamba(self) -> Path:
        """The stand-in, with py-rattler where the build sees what uv keeps."""
        place = self.folder / "cache" / "uv" / "stand-in-micromamba"
        if not place.exists():
            source = Path(sysconfig.get_path("purelib"))
            (place / "site").mkdir(parents=True)
            shutil.copytree(source / "rattler", place / "site" / "rattler")
            shutil.copy(ENGINES / "stand_ins" / "micromamba_stand_in.py", place)
        program = self.folder / "micromamba-stand-in"
        program.write_text('#!/bin/sh\nexec python3 /mnt/uv/stand-in-micromamba/micromamba_stand_in.py "$@"\n')
        program.chmod(0o755)
        return program

    def forget(self) -> None:
        """Remove what was built; what py-rattler has unpacked counts as a download and stays."""
        shutil.rmtree(self.folder / "cache" / "layers-1", ignore_errors=True)
        (self.folder / "out.sif").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "out.plan", ignore_errors=True)

    def phases(self) -> list[str]:
        """What the log of the last build says of its layers."""
        log = (self.folder / "out.plan" / "logs" / "build-image.log").read_text(encoding="utf-8")
        return SAID.findall(log)


def conda(runs: int) -> None:
    """A large conda environment: layers against our own flat build and the engine's defaults."""
    base = os.environ.get("RECIPE_TEST_BASE_SIF", "")
    if not base:
        raise SystemExit("RECIPE_TEST_BASE_SIF is not set: run this by `make bench`")
    if importlib.util.find_spec("rattler") is None:
        raise SystemExit("this Python has no py-rattler, which makes the channel")
    sys.path.append(str(ENGINES))
    import compiled_channel as channels

    with tempfile.TemporaryDirectory(prefix="recipe-bench-") as scratch:
        folder = Path(scratch)
        versions = [f"1.{number}" for number in range(runs + 1)]
        packages = channels.wide(packages=PACKAGES, files=FILES, size=SIZE, version="1.0", also=versions[-1])
        more = [
            channels.wide(packages=PACKAGES, files=FILES, size=SIZE, also=version)[-2] for version in versions[1:-1]
        ]
        (libgreet, _) = channels.compiled(folder / "c")
        made = (channels.python(whole=True), libgreet, channels.large(), *packages, *more)
        ground = Ground(
            folder=folder,
            base=Path(base),
            channel=channels.write_channel(folder / "channel", made),
            minor=channels.MINOR,
        )
        size = sum(path.stat().st_size for path in ground.channel.rglob("*.conda")) / 1e6
        _compare(ground, versions, title=f"{PACKAGES + 4} conda packages, {size:.0f} MB")


def _compare(ground: Ground, versions: list[str], *, title: str) -> None:
    ways: dict[str, Callable[[], float]] = {"our plan for apptainer (stand-in for micromamba)": ground.flat}
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)
        print(f"{title}: {name}: {value:.2f} s", file=sys.stderr, flush=True)

    ground.lock(versions[0])
    ground.layers()
    ground.forget()
    note("layers, from nothing, nothing unpacked", _cold(ground))
    for version in versions[1:]:
        ground.lock(versions[0])
        ground.forget()
        note("layers, from nothing", ground.layers())
        phases = ground.phases()
        ground.lock(version)
        for name, way in ways.items():
            note(name, way())
        note("layers, one changed pin", ground.layers("--force"))
        note("layers, nothing changed", ground.layers())
        print("\n".join(f"    {line}" for line in (*phases, "one changed pin:", *ground.phases())), file=sys.stderr)
    timing._show(f"{title}, median of {len(versions) - 1}", found)
    sizes = {name: (ground.folder / f"{name}.sif").stat().st_size / 1e6 for name in ("out", "flat")}
    print("  " + ", ".join(f"{name} {value:.0f} MB" for name, value in sizes.items()))


def _cold(ground: Ground) -> float:
    """Nothing is kept but the files of the channel."""
    shutil.rmtree(ground.folder / "cache" / "conda")
    return ground.layers()
