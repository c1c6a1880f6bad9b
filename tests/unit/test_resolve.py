"""What becomes of a recipe on a site: small recipes in tests/resolve, each with the whole answer beside it.

`make golden` rewrites the answers. The decisions that matter most are said again below, in figures.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support.matrix import ROOT, TOOL, cases, compiled, shown
from support.own_code import PACKAGE, files, nodes_of
from support.rows import rows

from builder.compile.compile import compile_plan
from builder.model.finding import ConfigError, Finding, UnsupportedError, select_errors
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.requested import to_release
from builder.resolve.resolve import resolve

CASES = ROOT / "tests" / "resolve"
FILES = sorted(CASES.glob("*.yml"))
site_of = cache(load_site)


@cache
def recipe_of(stem: str) -> Recipe:
    return load_recipe(CASES / f"{stem}.yml", shown=f"{stem}.yml")


def targets_of(path: Path) -> list[tuple[str, str]]:
    """Site and backend of every target that the second line of a file names."""
    line = path.read_text(encoding="utf-8").splitlines()[1]
    return [(name.partition(".")[0], name.partition(".")[2]) for name in line.removeprefix("# targets: ").split()]


def resolved(stem: str, site: str, **context: str) -> Target:
    return resolve(recipe_of(stem), site_of(site), context=Context(tool=TOOL, **context))


def refused(stem: str, site: Site | str, **context: str) -> tuple[Finding, ...]:
    known = site if isinstance(site, Site) else site_of(site)
    with pytest.raises(UnsupportedError) as caught:
        compile_plan(resolve(recipe_of(stem), known, context=Context(tool=TOOL, **context)))
    return caught.value.findings


def answer(path: Path) -> str:
    """The whole answer of every target: base, place, torch, lines, packages, findings."""
    parts = []
    for site, backend in targets_of(path):
        parts.append(f"=== {site} {backend}".rstrip())
        try:
            target = resolved(path.stem, site, backend=backend)
            plan = compile_plan(target)
        except UnsupportedError as error:
            parts += ["refused", _told(error.findings)]
            continue
        environment = target.environment
        parts.append(f"base       {target.base.reference}")
        parts.append(f"place      {environment.place}, Python {environment.python or 'of the base image'}")
        parts.append(f"torch      {_torch(target)}")
        for name in ("channels", "conda", "torch_lines", "pip_options", "pip_lines", "constraints"):
            values = getattr(environment, name)
            if values and (name != "channels" or environment.place == "conda"):
                parts.append(f"{name:10} " + " | ".join(values))
        parts += [f"  {item.asked}  ->  {item.became}  ({item.why})" for item in plan.packages]
        parts.append(_told(plan.findings))
    return "\n".join(part for part in parts if part) + "\n"


def _torch(target: Target) -> str:
    torch = target.environment.torch
    if torch is None:
        return "none"
    return f"{torch.local}, the base image's own" if torch.provided else f"{torch.local} from {torch.index}"


def _told(findings: tuple[Finding, ...]) -> str:
    """Findings as they are printed, with their codes."""
    return "\n".join(
        shown((finding,)).rstrip("\n").replace(f"{finding.level}:", f"{finding.level} [{finding.code}]:", 1)
        for finding in findings
    )


@pytest.fixture(scope="session", autouse=True)
def _update(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden", default=False):
        for path in FILES:
            path.with_suffix(".expected").write_text(answer(path), encoding="utf-8")


@rows("path", FILES, ids=lambda path: path.stem)
def test_the_answer_is_the_expected_one(path: Path) -> None:
    assert answer(path) == path.with_suffix(".expected").read_text(encoding="utf-8")


def test_every_answer_has_its_recipe() -> None:
    assert {path.stem for path in CASES.glob("*.expected")} == {path.stem for path in FILES}
    assert len(FILES) > 50


# --- the decisions that matter most ---------------------------------------------------------------------------------


@rows(
    ("stem", "site", "torch"),
    [
        ("torch-2.6", "lumi-g", "2.6.0+rocm6.2.4"),
        ("torch-2.8", "lumi-g", "2.8.0+rocm6.4"),
        ("torch-2.8", "frontier", "2.8.0+rocm6.4"),
        ("torch-2.8", "local", "2.8.0+cpu"),
        ("torch-2.8", "lumi-c", "2.8.0+cpu"),
        ("torch-2.8", "mn5-gpp", "2.8.0+cpu"),
        ("torch-2.13", "mn5", "2.13.0+cu126"),
        ("torch-2.13", "dawn", "2.13.0+xpu"),
        ("torch-any", "lumi-g", "2.9.1+rocm6.4"),
        ("torch-required", "lumi-g", "2.9.1+rocm6.4"),
        ("companion-alone", "lumi-g", "2.7.0+rocm6.3"),
        ("build-rocm", "lumi-g", "2.6.0+rocm6.2.4"),
        ("build-cuda", "mn5", "2.6.0+cu124"),
        ("build-cuda", "local", "2.6.0+cpu"),
    ],
)
def test_the_wheel_of_a_site(stem: str, site: str, torch: str) -> None:
    found = resolved(stem, site).environment
    assert found.torch is not None
    assert (found.torch.local, found.torch.provided) == (torch, False)
    token = torch.partition("+")[2]
    assert found.torch.index == f"https://download.pytorch.org/whl/{token}"
    assert all(re.fullmatch(rf"torch\w*==[0-9.]+\+{re.escape(token)}", line) for line in found.torch_lines)


@rows(
    ("stem", "site", "base", "torch"),
    [
        ("torch-2.6", "mn5", "docker://nvcr.io/nvidia/pytorch:25.01-py3", "2.6.0a0"),
        ("torch-2.8", "mn5", "docker://nvcr.io/nvidia/pytorch:25.06-py3", "2.8.0a0"),
        ("torch-2.8", "dawn", "docker://intel/intel-extension-for-pytorch:2.8.10-xpu", "2.8.0+xpu"),
        ("torch-2.6", "frontier", "docker://docker.io/rocm/pytorch:rocm6.4.2_", "2.6.0"),
    ],
)
def test_the_image_that_brings_the_torch(stem: str, site: str, base: str, torch: str) -> None:
    target = resolved(stem, site)
    assert target.base.reference.startswith(base)
    assert target.environment.place == "base"
    found = target.environment.torch
    assert found is not None
    assert found.provided
    assert found.version.startswith(torch)
    assert target.environment.torch_lines == ()
    assert "torch" in target.environment.protected
    assert target.base.cuda is None or target.base.cuda.startswith("12."), "driver 535 runs CUDA 12"


@rows(
    ("stem", "site", "code", "words"),
    [
        ("torch-2.11", "lumi-g", "torch-build", "serves none of its builds (builds: rocm7.1, rocm7.2)"),
        ("torch-2.3.1", "lumi-g", "torch-build", "serves none of its builds (builds: rocm5.7, rocm6.0)"),
        ("torch-2.3.1", "frontier", "torch-build", "it serves ROCm 6.3, 6.4, 7.0, 7.1, 7.2"),
        ("torch-1.13", "mn5", "torch-build", "no build of it for NVIDIA GPUs is known"),
        ("build-rocm", "mn5", "torch-vendor", "is built for AMD GPUs, the site 'mn5' has NVIDIA GPUs"),
        ("build-cuda", "lumi-g", "torch-vendor", "is built for NVIDIA GPUs, the site 'lumi-g' has AMD GPUs"),
        ("build-rocm-new", "lumi-g", "torch-driver", "its driver serves ROCm 6.1, 6.2, 6.3, 6.4, 7.0"),
        ("url-wheel", "lumi-g", "torch-vendor", "is built for CPUs only"),
        ("companion-other", "lumi-g", "torch-companion", "'torchvision==0.22.0' does not belong to torch 2.8.0"),
        ("companion-none", "local", "torch-companion", "'torchaudio==2.10.0' does not belong to torch 2.13.0"),
        ("python-3.8", "lumi-g", "torch-python", "'torch==2.6.0' has no wheel for Python 3.8"),
        ("vendor-cuda", "lumi-g", "package-vendor", "works on NVIDIA devices only, 'lumi-g' has AMD GPUs"),
        ("torch-contradiction", "local", "torch-unknown", "'torch==2.6.0' contradicts 'pytorch=2.5'"),
        ("local", "lumi-c", "pip-local", "'./package' is a folder on this machine"),
    ],
)
def test_what_cannot_run_is_refused(stem: str, site: str, code: str, words: str) -> None:
    found = refused(stem, site)
    first = next(finding for finding in select_errors(found) if finding.code == code)
    assert words in first.message
    assert first.fix
    assert first.at is not None
    assert first.at.file == f"{stem}.yml"
    assert first.at.line


def test_every_obstacle_to_the_base_images_python_is_named() -> None:
    codes = [finding.code for finding in refused("base-mode", "mn5")]
    assert {"base-torch", "base-build", "base-companion", "base-python", "base-conda"} <= set(codes)
    assert [finding.code for finding in refused("base-mode", "local")] == ["base-no-torch"]
    assert next(finding.code for finding in refused("base-mode", "lumi-g")) == "python-base"
    codes = {finding.code for finding in refused("build-cuda13", "mn5", driver="535.86.10")}
    assert "torch-driver" in codes
    assert "base-driver" in {finding.code for finding in refused("base-newer-cuda", "mn5", driver="535.86.10")}


def test_a_base_from_the_command_line_comes_before_the_recipes() -> None:
    own = "docker://registry.example.org/mine:1"
    assert resolved("base-own", "local").base.reference == "docker://registry.example.org/group/image"
    target = resolved("base-own", "local", base=own)
    assert (target.base.reference, target.environment.place) == (own, "venv")
    known = "docker://nvcr.io/nvidia/pytorch:25.06-py3"
    target = resolved("torch-2.8", "mn5", base=known)
    assert (target.base.reference, target.environment.place) == (known, "base")


def test_a_mirror_takes_the_place_of_every_index() -> None:
    found = resolved("torch-2.8", "lumi-g", torch_index="https://mirror.example.org/{token}").environment.torch
    assert found is not None
    assert found.index == "https://mirror.example.org/rocm6.4"
    found = resolved("torch-2.8", "lumi-g", torch_index="default").environment.torch
    assert found is not None
    assert (found.index, found.local) == ("default", "2.8.0+rocm6.4")


def test_another_driver_is_another_window() -> None:
    found = resolved("torch-2.11", "lumi-g", driver="30.30").environment.torch
    assert found is not None
    assert found.local.startswith("2.11.0+rocm7.")
    assert [finding.code for finding in refused("torch-2.11", "lumi-g")] == ["torch-build"]
    with pytest.raises(ConfigError) as caught:
        resolved("torch-2.8", "lumi-g", driver="nonsense")
    assert caught.value.findings[0].message == "'nonsense' is not a driver version"


def test_what_is_asked_for_is_not_left_out_in_silence() -> None:
    """The installer passes over what it is told to protect: a package of the recipe must not be among it."""
    environment = resolved("base-protected", "mn5").environment
    names = {re.split(r"[=<>! ;\[]", line)[0] for line in environment.pip_lines}
    assert "flash-attn" in names
    assert not names & {*environment.protected}
    assert "torch" in environment.protected


def _site(name: str, **changes: object) -> Site:
    site = site_of(name)
    for key, value in changes.items():
        section, _, field = key.partition("__")
        if field:
            value = replace(getattr(site, section), **{field: value})
        site = replace(site, **{section: value})
    return site


def test_a_wheel_without_kernels_for_the_gpu_is_refused() -> None:
    found = refused("torch-2.8", _site("lumi-g", gpu__target="gfx1010"))
    assert [finding.code for finding in select_errors(found)] == ["gpu-target"]
    assert "contain no kernels for gfx1010" in found[0].message


def test_a_wheel_that_is_too_new_for_the_c_library_is_refused() -> None:
    old = replace(site_of("local").base_images[0], glibc="2.17")
    found = refused("torch-2.8", _site("local", base_images=(old,)))
    assert [finding.code for finding in select_errors(found)] == ["glibc"]
    assert "need glibc 2.28" in found[0].message
    assert found[0].message.endswith("has 2.17")


def test_tykky_needs_to_know_its_own_path() -> None:
    found = refused("torch-2.8", _site("lumi-g", build__wrapper_path=""), backend="tykky")
    assert "tykky-path" in {finding.code for finding in select_errors(found)}


# --- nothing is passed over -------------------------------------------------------------------------------------------


def everything() -> Iterator[tuple[str, Recipe, Plan]]:
    """Every plan of tests/resolve and of the matrix."""
    for path in FILES:
        for site, backend in targets_of(path):
            try:
                plan = compile_plan(resolved(path.stem, site, backend=backend))
            except UnsupportedError:
                continue
            yield f"{path.stem} {site}", recipe_of(path.stem), plan


@pytest.mark.property
def test_every_requirement_is_told_exactly_once() -> None:
    count = 0
    for name, recipe, plan in everything():
        told = [package.asked for package in plan.packages]
        asked = {spec.text for spec in recipe.conda} | {line.text for line in recipe.pip}
        for text in asked:
            assert told.count(text) == 1, (name, text, told)
        others = [text for text in told if text not in asked]
        assert all(text == "-" or text.startswith("channel ") for text in others), (name, others)
        count += len(asked)
    assert count > 200


@pytest.mark.property
def test_every_story_has_a_reason() -> None:
    for name, _, plan in everything():
        for package in plan.packages:
            assert package.became, name
            assert len(package.why) > 2, name
            assert not re.search(r"\bby ;|  |None|\{", package.why), (name, package)


@pytest.mark.property
def test_what_is_installed_is_what_was_told() -> None:
    """A line that a plan installs is the outcome of exactly one story, but for pip itself."""
    for path in FILES:
        for site, backend in targets_of(path):
            try:
                target = resolved(path.stem, site, backend=backend)
            except UnsupportedError:
                continue
            environment = target.environment
            became = [package.became for package in target.packages]
            for line in (*environment.conda, *environment.torch_lines, *environment.pip_lines):
                assert became.count(line) >= 1 or line == "pip", (path.stem, site, line)


def codes_in_source() -> set[str]:
    """Every code that resolve and compile can give, read from their source."""
    found: set[str] = set()
    for path in files():
        if path.relative_to(PACKAGE).parts[0] not in ("resolve", "compile"):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                code = next(word.value for word in node.keywords if word.arg == "code")
                if isinstance(code, ast.Constant):
                    found.add(str(code.value))
    return found


# Seen in the tests above, with sites that do not exist as they stand, or in tests of their own.
ELSEWHERE = {
    "backend", "client-digest", "driver", "glibc", "gpu-target", "index-login", "launch-nested", "launch-shape",
    "launch-torchrun", "lock-missing", "lock-no-file", "lock-platform", "lock-stale", "lock-torch", "tykky-path",
    "layers-runtime",
    "mpi-own", "mpi-missing", "mpi-launcher", "base-driver", "base-vendor", "not-looked-up", "package-cuda",
    "torch-brought", "local-gpu", "apptainer-proot", "apptainer-rootless", "cuda-compat", "pip-hash",
    "channel-missing", "base-name", "wheel-variant",
}  # fmt: skip


@pytest.mark.property
def test_every_code_is_seen_with_its_message() -> None:
    """The answers of tests/resolve and tests/golden hold every finding that can be given."""
    seen = set(re.findall(r"\[([a-z0-9-]+)\]:", "".join(path.with_suffix(".expected").read_text() for path in FILES)))
    for case in cases():
        found = compiled(case)
        seen |= {finding.code for finding in (found.findings if isinstance(found, Plan) else found)}
    assert codes_in_source() - seen - ELSEWHERE == set()


def test_every_finding_says_what_and_what_to_do() -> None:
    for path in FILES:
        for line in path.with_suffix(".expected").read_text(encoding="utf-8").splitlines():
            match = re.fullmatch(r"(error|warning|note) \[[a-z0-9-]+\]: (.*)", line)
            if match:
                assert not match[2].endswith("."), line
                assert "None" not in match[2], line
                assert "  " not in match[2], line


def test_a_version_of_thousands_of_digits_is_no_release() -> None:
    assert to_release("9" * 5000) is None
    assert to_release("no version") is None
    assert str(to_release("2.8.0a0+5228986c39")) == "2.8.0"
