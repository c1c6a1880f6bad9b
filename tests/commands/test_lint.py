"""What is generated is clean, as ShellCheck, hadolint and the validator of CycloneDX see it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from support.bill_samples import CONTENTS, PACKAGES
from support.matrix import plans

from builder.inspect.sbom import make_sbom

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


def _different(folders: Path) -> list[str]:
    """One path of every script: scripts that differ only in the names of recipe, site and base are one."""
    seen: dict[str, str] = {}
    for case, plan in plans():
        names = sorted({plan.image.removesuffix(".sif"), plan.base, plan.recipe, case.stem}, key=len, reverse=True)
        for path in _scripts(folders / case.name):
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#SBATCH")]
            text = "\n".join(line for line in lines if not line.startswith("# ") or "shellcheck" in line)
            for name in names:
                text = text.replace(name, "NAME").replace(name.lower().replace("_", "-"), "NAME")
            seen.setdefault(f"{path.name}\n{text}", str(path.relative_to(folders)))
    return list(seen.values())


# With what a script sources, as part of it. SC2016: nothing in single quotes is expanded, and that is meant.
WITH_SOURCES = ("--external-sources", "--source-path=SCRIPTDIR:SCRIPTDIR/..", "--exclude=SC2016")
# Each script sources up to 40 KB of the same functions. Their flow of data is analysed once, not again in each script,
# and that of a script without them: SC1091 and SC2154 are of what it would source, SC2034 of what that would use.
FLOW_OF_SOURCES_LEFT_OUT = (*WITH_SOURCES, "--extended-analysis=false")
WITHOUT_SOURCES = ("--exclude=SC2016,SC1091,SC2154,SC2034",)


def _shellcheck(folders: Path, files: list[str], *options: str) -> list[tuple[str, int]]:
    """The complaints of two processes, each with half of the files."""
    command = [tool("shellcheck"), "--format=gcc", *options]
    halves = [
        subprocess.Popen([*command, *files[part::2]], cwd=folders, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for part in (0, 1)
    ]
    return [(half.communicate()[0].decode(), half.returncode) for half in halves]


def test_shell_scripts_of_each_kind_pass_shellcheck(folders: Path) -> None:
    """One file of each name, of the recipe that has everything where it has one; `make test` looks at all."""
    files = sorted(_different(folders), key=lambda name: name.startswith("full."))
    one = {Path(name).name: name for name in files}
    assert len(one) >= 18
    assert _shellcheck(folders, sorted(one.values()), *WITH_SOURCES) == [("", 0), ("", 0)]


@pytest.mark.engines
def test_every_shell_script_passes_shellcheck(folders: Path) -> None:
    files = _different(folders)
    assert len(files) > 100
    for options in (FLOW_OF_SOURCES_LEFT_OUT, WITHOUT_SOURCES):
        assert _shellcheck(folders, files, *options) == [("", 0), ("", 0)]


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
