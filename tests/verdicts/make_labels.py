"""Write the labels from PyTorch's build matrix of each release and from cog's list; nothing of `builder/` is read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from oracles.formats import Release, read_cog, read_matrix

SCRIPT = "tools/scripts/generate_binary_build_matrix.py"
# ROCm: LUMI's User-Update 202601 (driver 6.3.60300) with AMD's user and kernel-space matrix; Frontier's guide of
# 2026-02-10 (amdgpu 6.16.13) with the same. That Frontier serves 6.1 and 6.2 is what OLCF's documents contradict each
# other about, and 7.1 on MareNostrum's CUDA 13: two readings of its driver, 535.86.10 (2024) and 595.71.05 (2026).
ROCM = {
    "lumi-g": {"6.1": "+", "6.2": "+", "6.3": "+", "6.4": "+", "7.0": "+"},
    "frontier": {"6.0": "?", "6.1": "?", "6.2": "?", "6.3": "+", "6.4": "+", "7.0": "+", "7.1": "+", "7.2": "+"},
}
# NVIDIA's table of minor-version compatibility, 2026-08: CUDA 11 from 450.80.02, CUDA 12 from 525.60.13, 13 from 580.
CUDA = {"11": "+", "12": "+", "13": "?"}
NO_H100 = ("cu102", "cu113", "cu116", "cu117")  # pytorch/builder manywheel/build_cuda.sh: no sm_90, no PTX
SITES = ("lumi-g", "frontier", "dawn", "mn5", "lumi-c", "mn5-gpp", "local")
XPU_FROM = (
    2,
    6,
)  # 2.5 was a prototype (PyTorch 2.5 release notes, 2024-10-17); the images of Intel hold some older ones
MATRIX = "pytorch/test-infra@{commit} ({date})"


@dataclass(frozen=True, kw_only=True)
class Label:
    """A recipe and what is right on each of SITES."""

    kind: str
    recipe: str  # lines, joined by "; ", or `conda` and names
    cells: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Dated:
    """A release as a commit of the matrix has it."""

    release: Release
    source: str


def read_history(clone: Path) -> dict[str, Dated]:
    """Read the last commit of each release that was the stable one."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(clone), *words], check=True, capture_output=True, text=True).stdout

    found: dict[str, Dated] = {}
    for line in git("log", "--format=%h %cs", "--reverse", "--", SCRIPT).splitlines():
        commit, date = line.split()
        try:
            releases = read_matrix(git("show", f"{commit}:{SCRIPT}")).releases
        except SyntaxError:
            continue
        for release in releases:
            found[release.torch] = Dated(release=release, source=MATRIX.format(commit=commit, date=date))
    return {torch: one for torch, one in found.items() if one.release.builds and one.release.pythons}


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def judge_build(build: str, site: str) -> str:
    """What a build of torch does on a site."""
    if site in ("lumi-c", "mn5-gpp", "local"):
        return "+" if build == "cpu" else "w" if build.startswith("cu") else "?"
    if site == "dawn":
        return "x"
    if build.startswith("rocm"):
        return ROCM.get(site, {}).get(".".join(build.removeprefix("rocm").split(".")[:2]), "x")
    if build.startswith("cu") and site == "mn5":
        return "x" if build in NO_H100 else CUDA[build[2:4]]
    return "x"


def judge_release(release: Release, site: str) -> str:
    """What a release without a build does on a site: the best of its builds."""
    if site in ("lumi-c", "mn5-gpp", "local"):
        return "+"
    if site == "dawn":
        return "+" if number(release.torch)[:2] >= XPU_FROM else "?" if number(release.torch)[0] == 2 else "x"
    kind = "cu" if site == "mn5" else "rocm"
    cells = [judge_build(build, site) for build in release.builds if build.startswith(kind)]
    best = "+" if "+" in cells else "?" if "?" in cells else "x"
    if site == "frontier" and best == "x" and not cells:
        return "?"
    return best


def list_labels(history: Mapping[str, Dated], cog: Mapping[str, Release]) -> Iterator[Label]:
    releases = sorted((one for one in history if number(one) >= (1, 12)), key=number)
    every = sorted({build for one in releases for build in history[one].release.builds if build != "cpu"})
    for at, torch in enumerate(releases):
        dated = history[torch]
        release, source = dated.release, dated.source
        plain = "".join(judge_release(release, site) for site in SITES)
        builds = sorted(release.builds)
        if number(torch) >= (2, 0):
            for build in builds:
                cells = "".join(judge_build(build, site) for site in SITES)
                yield Label(kind="build pin", recipe=f"torch=={torch}+{build}", cells=cells, evidence=source)
            missing = [build for build in every if build not in builds and f"{torch}{build}" not in ALSO]
            build = missing[at % len(missing)]
            evidence = f"{source} lists no {build}"
            yield Label(kind="no such build", recipe=f"torch=={torch}+{build}", cells="xxxx???", evidence=evidence)
            index = f"--extra-index-url https://download.pytorch.org/whl/{builds[at % len(builds)]}"
            yield Label(kind="index", recipe=f"{index}; torch=={torch}", cells=plain, evidence=source)
        yield Label(kind="release", recipe=f"torch=={torch}", cells=plain, evidence=source)
        yield from _list_pythons(release, plain=plain, source=source)
    for torch in sorted((one for one in cog if number(one) >= (2, 0)), key=number):
        yield from _list_companions(torch, cog=cog, history=history)


# Builds that the matrix does not list and that public lock files name by address and sha256.
ALSO = {f"{torch}cu129" for torch in ("2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1", "2.13.0")}


def _list_pythons(release: Release, *, plain: str, source: str) -> Iterator[Label]:
    """A Python in the middle of those that have wheels, one that is two too new, and one that is too old."""
    pythons = sorted(release.pythons, key=number)
    middle = pythons[len(pythons) // 2]
    yield _with_python(release, middle, cells=plain, evidence=f"{source}: Python {middle} is listed")
    newest, oldest = number(pythons[-1])[1], number(pythons[0])[1]
    for wrong in (newest + 2, oldest - 1):
        if 8 <= wrong <= 14:
            evidence = f"{source}: Pythons {pythons[0]} to {pythons[-1]}"
            yield _with_python(release, f"3.{wrong}", cells="xxxxxxx", evidence=evidence)


def _with_python(release: Release, python: str, *, cells: str, evidence: str) -> Label:
    recipe = f"conda python={python} pip:torch=={release.torch}"
    return Label(kind="Python", recipe=recipe, cells=cells, evidence=evidence)


def _list_companions(torch: str, *, cog: Mapping[str, Release], history: Mapping[str, Dated]) -> Iterator[Label]:
    """The torchvision and torchaudio of a release, and those of the next one, whose wheels pin another torch."""
    here = cog[torch]
    if torch not in history:
        return
    plain = "".join(judge_release(history[torch].release, site) for site in SITES)
    # whether an image of Intel's or AMD's has them is not in these sources
    plain = plain if plain[2] == "x" else plain[:2] + "?" + plain[3:]
    pair = f"torchvision=={here.torchvision}; torchaudio=={here.torchaudio}"
    source = "replicate/cog@6110c912 (2026-08-21) pkg/config/torch_compatibility.json"
    yield Label(kind="companions", recipe=f"torch=={torch}; {pair}", cells=plain, evidence=source)
    later = sorted((one for one in cog if number(one) > number(torch)), key=number)
    if later:
        other = cog[later[0]].torchvision
        evidence = f"Requires-Dist of torchvision {other}: torch=={later[0]} (pairs of {source})"
        yield Label(
            kind="other companion", recipe=f"torch=={torch}; torchvision=={other}", cells="x" * 7, evidence=evidence
        )


def main(clone: str, cog_file: str) -> None:
    text = Path(cog_file).read_text(encoding="utf-8")
    json.loads(text)
    cog = {one.torch: one for one in read_cog(text).releases}
    print("kind\trecipe\t" + ",".join(SITES) + "\tevidence")
    for label in list_labels(read_history(Path(clone)), cog):
        print(label.kind, label.recipe, label.cells, label.evidence, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
