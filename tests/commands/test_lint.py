"""What is generated is clean, as ShellCheck, hadolint and the validator of CycloneDX see it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from support.bill_samples import CONTENTS, PACKAGES
from support.matrix import plans

from builder.compile.image_plans import make_image_target
from builder.compile.start_plans import make_kernel_plan, make_module_plan
from builder.inspect.attestations import make_sbom
from builder.model.target import Context
from builder.parse.site import load_site

# hadolint's rules that do not hold here, each with its reason.
HADOLINT_IGNORED = {
    "DL3002": "the build ends as root: the image is converted to a SIF, which runs as whoever starts it",
    "DL3059": "a part is a layer of its own: a change rebuilds what follows it, and nothing before",
}


def tool(name: str) -> str:
    """A linter of the development extra, beside this Python or on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is missing: pip install -e '.[dev]'"
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What linters read of every plan of the matrix, in a folder each."""
    root = tmp_path_factory.mktemp("plans")
    for case, plan in plans():
        for file in plan.files:
            path = root / case.name / file.path
            if path.suffix in (".sh", ".sbatch") or path.name == "Dockerfile":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.text, encoding="utf-8")
    return root


def _scripts(folder: Path) -> list[Path]:
    """Scripts that we write; the recipe's own commands are the user's."""
    own = ("run.sh", "post-install.sh")
    found = [path for path in sorted(folder.rglob("*")) if path.suffix in (".sh", ".sbatch") and path.is_file()]
    return [path for path in found if path.name not in own and "root" not in path.relative_to(folder).parts]


def test_what_starts_an_image_is_clean(tmp_path: Path) -> None:
    """`start.sh` of a module and a kernel with what it sources, and the scripts that start it."""
    for site in ("local", "lumi-g", "mn5"):
        target = make_image_target(load_site(site), image="/images/it's $(x).sif", context=Context(tool="recipe"))
        programs = {"x-exec": "", "x": "/opt/it's/x"}
        for plan in (
            make_module_plan(target, name="x", version="1", programs=programs),
            make_kernel_plan(target, title="x"),
        ):
            for file in plan.files:
                path = tmp_path / site / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.text, encoding="utf-8")
        names = ["start.sh", "kernel.sh", "bin/x", "bin/x-exec"]
        words = [tool("shellcheck"), "--external-sources", "--source-path=SCRIPTDIR", "--exclude=SC2016", *names]
        done = subprocess.run(words, cwd=tmp_path / site, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


VALUE = re.compile(r"'[^'\n]*'|\d+|(?<==)[\w./:@%+,-]+")


def _different(folders: Path) -> list[str]:
    """One path of every script: those that differ in names, numbers and what stands in single quotes are one."""
    seen: dict[str, str] = {}
    for case, plan in plans():
        names = {plan.image.removesuffix(".sif"), plan.base, plan.recipe, case.stem, plan.site}
        for path in _scripts(folders / case.name):
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#SBATCH")]
            text = "\n".join(line for line in lines if not line.startswith("# ") or "shellcheck" in line)
            for name in sorted(names, key=len, reverse=True):
                text = text.replace(name, "NAME").replace(name.lower().replace("_", "-"), "NAME")
            seen.setdefault(f"{path.name}\n{VALUE.sub('0', text)}", str(path.relative_to(folders)))
    return list(seen.values())


# With what a script sources, as part of it. SC2016: nothing in single quotes is expanded, and that is meant.
WITH_SOURCES = ("--external-sources", "--source-path=SCRIPTDIR:SCRIPTDIR/..", "--exclude=SC2016")
# Each script sources up to 40 KB of the same functions. One script of each kind is read with them. All are read by
# themselves (SC1091 and SC2154 are of what they would source, SC2034 of what that would use). And one of all that have
# the same variables is read with sketches of what it sources: without the flow of data, which was looked at before.
WITHOUT_SOURCES = ("--exclude=SC2016,SC1091,SC2154,SC2034",)
WITH_SKETCHES = (*WITH_SOURCES, "--extended-analysis=false")
LIBRARIES = (
    "container.sh", "device.sh", "engine.sh", "env.sh", "install.sh", "job.sh", "local.sh", "record.sh", "settings.sh",
    "suite.sh", "watch.sh",
)  # fmt: skip
SOURCES = re.compile(r"^ *(?:# shellcheck source=\S+\n *)?\. .*", re.MULTILINE)
FUNCTION = re.compile(r"^(\w+)\(\)", re.MULTILINE)
ARRAY = re.compile(r"\b([A-Za-z_]\w*)\+?=\(")
ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)\+?=|\bfor (\w+) in\b")
READ = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")


def _sketch(text: str) -> str:
    """A library's functions without their bodies, every variable that it sets or reads, and what it sources."""
    arrays = set(ARRAY.findall(text))
    plain = {one or other for one, other in ASSIGNED.findall(text)} - arrays
    lines = ["# shellcheck shell=bash", *(f"{name}=()" for name in sorted(arrays))]
    lines.append(" ".join(f"{name}=$RANDOM" for name in sorted(plain)))
    names = sorted(set(READ.findall(text)))
    lines.append(" ".join([":", *(f'"${{{name}[@]}}"' if name in arrays else f'"${name}"' for name in names)]))
    return "\n".join([*lines, *(f"{name}() {{ :; }}" for name in FUNCTION.findall(text)), *SOURCES.findall(text), ""])


def _shellcheck(folders: Path, files: list[str], *options: str) -> list[tuple[str, int]]:
    """The complaints of two processes, each with half of the files."""
    command = [tool("shellcheck"), "--format=gcc", *options]
    halves = [
        subprocess.Popen([*command, *files[part::2]], cwd=folders, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for part in (0, 1)
    ]
    return [(half.communicate()[0].decode(), half.returncode) for half in halves]


def test_shell_scripts_of_each_kind_pass_shellcheck(folders: Path) -> None:
    """One file of each name without its number, of the recipe that has everything where it has one."""
    files = sorted(_different(folders), key=lambda name: name.startswith("full."))
    one = {Path(name).stem.lstrip("0123456789-"): name for name in files}
    assert len(one) >= 16
    assert _shellcheck(folders, sorted(one.values()), *WITH_SOURCES) == [("", 0), ("", 0)]


def test_every_shell_script_passes_shellcheck(folders: Path) -> None:
    files = _different(folders)
    assert len(files) > 100
    assert _shellcheck(folders, files, *WITHOUT_SOURCES) == [("", 0), ("", 0)]


def test_every_shell_script_has_its_variables(folders: Path, tmp_path: Path) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folders.rglob("*.*")) if path.is_file()}
    sketches = {path: _sketch(text) for path, text in texts.items()}
    of_folder: dict[str, str] = {}  # what a script of a plan folder can source
    for path in (path for path in texts if path.name in LIBRARIES):
        (tmp_path / path.relative_to(folders)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.relative_to(folders)).write_text(sketches[path], encoding="utf-8")
        case = path.relative_to(folders).parts[0]
        of_folder[case] = of_folder.get(case, "") + sketches[path]
    libraries, scripts = [], dict[tuple[str, ...], str]()
    for name in _different(folders):
        path = folders / name
        if path.name in LIBRARIES:
            libraries.append(name)
            continue
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / name)
        variables = (path.suffix, sketches[path], str(SOURCES.findall(texts[path])), of_folder[Path(name).parts[0]])
        scripts[variables] = name
    assert len(scripts) > 70
    assert _shellcheck(folders, libraries, *WITH_SKETCHES) == [("", 0), ("", 0)]
    assert _shellcheck(tmp_path, [*scripts.values()], *WITH_SKETCHES) == [("", 0), ("", 0)]
    script = tmp_path / next(name for name in scripts.values() if name.endswith("nodes.sbatch"))
    script.write_text(script.read_text(encoding="utf-8") + 'unused=1\necho "$unset"\n', encoding="utf-8")
    output = _shellcheck(tmp_path, [str(script)], *WITH_SKETCHES)[0][0]
    assert sorted(re.findall(r"SC\d+", output)) == ["SC2034", "SC2154"]


def test_dockerfiles_pass_hadolint(folders: Path) -> None:
    files = sorted(str(path.relative_to(folders)) for path in folders.glob("*/Dockerfile"))
    assert len(files) >= 10
    ignore = [word for rule in HADOLINT_IGNORED for word in ("--ignore", rule)]
    done = subprocess.run(
        [tool("hadolint"), "--format", "gnu", *ignore, *files], cwd=folders, capture_output=True, text=True, check=False
    )
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


def test_a_bill_is_valid_cyclonedx() -> None:
    text = make_sbom(CONTENTS, name="x", tool="recipe 0.1.0")
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    tree = json.loads(text)
    assert {item["name"] for item in tree["components"]} == {package.name for package in PACKAGES}
    assert "today" not in text
