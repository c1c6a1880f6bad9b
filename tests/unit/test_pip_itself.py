"""pip in the environment: where the recipe names it, or where one of its own commands calls it."""

from __future__ import annotations

import re
from pathlib import Path

from support.rows import rows

from builder.compile.compile import compile_plan
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.locked import make_lock_request
from builder.resolve.resolve import resolve

CALL = "container: {run: ['python -m pip install --no-build-isolation flash-attn==2.5.5']}\n"
OTHER = "container: {run: ['cat /etc/pip.conf', 'apt-get install -y python3-pip']}\n"


def resolved(folder: Path, dependencies: str, *, container: str = "", **context: str) -> Target:
    path = folder / "environment.yml"
    path.write_text(f"name: demo\ndependencies: [{dependencies}]\n{container}")
    return resolve(load_recipe(path, shown="demo"), load_site("local"), context=Context(**context))


@rows(
    ("dependencies", "container", "lines"),
    [
        ("pip=24.0, pip: [tqdm]", "", ("pip==24.0.*", "tqdm")),
        ("pip", "", ("pip",)),
        ("pip: [tqdm]", CALL, ("tqdm", "pip")),
        ("pip: ['pip<25']", CALL, ("pip<25",)),
        ("pip: [tqdm]", OTHER, ("tqdm",)),
        ("pip: [tqdm]", "", ("tqdm",)),
    ],
)
def test_a_virtual_environment_has_the_pip_that_is_used(
    tmp_path: Path, dependencies: str, container: str, lines: tuple[str, ...]
) -> None:
    target = resolved(tmp_path, dependencies, container=container)
    assert target.environment.place == "venv"
    assert target.environment.pip_lines == lines
    assert {package.became for package in target.packages} >= set(lines)
    assert not any("the image has it" in package.why for package in target.packages)


@rows(("dependencies", "pip"), [("numpy=2.2", "pip"), ("numpy=2.2, pip=24.0", "pip=24.0")])
def test_a_conda_environment_has_the_pip_that_is_used(tmp_path: Path, dependencies: str, pip: str) -> None:
    target = resolved(tmp_path, dependencies, container=CALL)
    assert target.environment.place == "conda"
    assert [text for text in target.environment.conda if text.startswith("pip")] == [pip]


def test_a_file_with_hashes_gets_no_line_without_one(tmp_path: Path) -> None:
    hashed = f"pip, pip: ['six==1.16.0 --hash=sha256:{'0' * 64}']"
    assert not any(line == "pip" for line in resolved(tmp_path, hashed, container=CALL).environment.pip_lines)


@rows(("container", "backend", "apart"), [(CALL, "docker", True), (CALL, "layers", True), (OTHER, "apptainer", False)])
def test_commands_of_a_file_with_hashes_get_pip_apart(
    tmp_path: Path, container: str, backend: str, apart: bool
) -> None:
    target = resolved(tmp_path, f"pip: ['six==1.16.0 --hash=sha256:{'0' * 64}']", container=container, backend=backend)
    assert target.environment.pip_apart == apart
    assert make_lock_request(target).pip == (f"six==1.16.0 --hash=sha256:{'0' * 64}",)
    files = {file.path: file.text for file in compile_plan(target).files}
    assert ("image/pip.txt" in files) == apart
    assert not apart or re.fullmatch(r"pip==[\d.]+ --hash=sha256:[0-9a-f]{64}\n", files["image/pip.txt"])
    assert backend != "docker" or " image/pip.txt " in files["Dockerfile"]


def test_a_range_that_is_condas_alone_makes_a_conda_environment(tmp_path: Path) -> None:
    assert resolved(tmp_path, "'pip=23|24', pip: [tqdm]").environment.place == "conda"
