"""A lock in the forms of other tools, read again by `packaging` and by ourselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from packaging.pylock import Pylock
from support.rows import rows

from builder.layers.conda_solver import CondaPackage
from builder.lock.forms import Form, report_base, write_form
from builder.model.finding import UnsupportedError
from builder.model.lock import BaseLock, Lock, LockRequest, PipFile
from builder.parse.recipe import load_recipe

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64
SIX = PipFile(
    name="six", version="1.16.0", kind="wheel", sha256=ONE, size=11053,
    url="https://files.example/six-1.16.0-py2.py3-none-any.whl",
)  # fmt: skip
SOURCE = PipFile(name="own", version="2.0", kind="sdist", url="https://files.example/own-2.0.tar.gz", sha256=TWO)
DIRECT = replace(SIX, name="direct", url="https://h.example/direct-1.16.0-py3-none-any.whl", direct=True)
TORCH = PipFile(
    name="torch", version="2.8.0+rocm6.4", kind="wheel", sha256=THREE, torch=True,
    url="https://torch.example/torch-2.8.0%2Brocm6.4-cp312-cp312-manylinux_2_28_x86_64.whl",
)  # fmt: skip
COMMIT = PipFile(name="tool", version="", kind="vcs", url=f"git+https://git.example/tool@{'a' * 40}", direct=True)
PYTHON = CondaPackage(
    name="python", version="3.12.4", build="h0_cpython", subdir="linux-64", sha256=ONE, md5="5" * 32, size=3,
    url="https://conda.example/conda-forge/linux-64/python-3.12.4-h0_cpython.conda",
    depends=("libffi >=3.4,<4.0a0", "tzdata"),
)  # fmt: skip
ASKED = LockRequest(place="venv", arch="x86_64", base="docker://b.example/b:1", python="3.12")
PIP = Lock(
    site="lumi-g", recipe="f" * 64, tool="recipe", asked=ASKED, base=BaseLock(reference="docker://b.example/b:1"),
    pip=(DIRECT, SOURCE, SIX, TORCH),
)  # fmt: skip
CONDA = replace(PIP, asked=replace(ASKED, place="conda", channels=("conda-forge", "nodefaults")), conda=(PYTHON,))


def write(lock: Lock, form: Form) -> str:
    return write_form(lock, form=form, file="environment.yml")


def refuse(lock: Lock, form: Form) -> list[tuple[str, str]]:
    with pytest.raises(UnsupportedError) as caught:
        write(lock, form)
    return [(finding.message, finding.fix) for finding in caught.value.findings]


def test_packaging_reads_the_pylock_and_finds_every_file(tmp_path: Path) -> None:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    lock = replace(PIP, pip=(*PIP.pip, COMMIT))
    found = Pylock.from_dict(tomllib.loads(write(lock, "pylock")))
    found.validate()
    assert str(found.requires_python) == "==3.12.*"
    for package, file in zip(found.packages, sorted(lock.pip, key=lambda one: one.name), strict=True):
        assert str(package.name) == file.name
        assert str(package.version or "") == file.version
        source = package.archive or package.sdist or next(iter(package.wheels or ()), None)
        if file.kind != "vcs":
            assert source is not None
            assert (source.url, dict(source.hashes)) == (file.url, {"sha256": file.sha256})
    path = tmp_path / "pylock.toml"
    path.write_text(write(PIP, "pylock"))
    read = {line.name: line for line in load_recipe(path).pip}
    assert {name: line.hashes for name, line in read.items()} == {
        file.name: (f"sha256:{file.sha256}",) for file in PIP.pip
    }
    assert read["torch"].specifier == "==2.8.0"


def test_the_requirements_name_the_file_of_torch_and_hash_all(tmp_path: Path) -> None:
    text = write(replace(PIP, asked=replace(ASKED, options=("--require-hashes", "--pre"))), "requirements")
    head, *lines = text.splitlines()
    assert head == "# Written by `recipe lock lumi-g environment.yml --format requirements`: Python 3.12, Linux, x86_64"
    assert lines == [
        "--pre",
        f"direct @ {DIRECT.url} --hash=sha256:{ONE}",
        f"own==2.0 --hash=sha256:{TWO}",
        f"six==1.16.0 --hash=sha256:{ONE}",
        f"torch @ {TORCH.url} --hash=sha256:{THREE}",
    ]
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    assert [line.text for line in load_recipe(path).pip] == lines[1:]


def test_conda_lock_has_every_package_with_its_hash() -> None:
    found = yaml.safe_load(write(CONDA, "conda-lock"))
    assert (found["version"], found["metadata"]["platforms"]) == (1, ["linux-64"])
    assert found["metadata"]["channels"] == [{"url": "conda-forge", "used_env_vars": []}]
    first, *others = found["package"]
    assert first == {
        "name": "python", "version": "3.12.4", "manager": "conda", "platform": "linux-64", "url": PYTHON.url,
        "dependencies": {"libffi": ">=3.4,<4.0a0", "tzdata": ""}, "hash": {"md5": "5" * 32, "sha256": ONE},
        "category": "main", "optional": False,
    }  # fmt: skip
    assert [(one["manager"], one["name"], one["version"], one["url"], one["hash"]) for one in others] == [
        ("pip", file.name, file.version, file.url, {"sha256": file.sha256}) for file in PIP.pip
    ]


def test_an_explicit_list_has_every_package_with_its_hash() -> None:
    lines = write(replace(CONDA, pip=()), "explicit").splitlines()
    assert lines[1:] == ["# platform: linux-64", "@EXPLICIT", f"{PYTHON.url}#sha256:{ONE}"]


@rows(
    ("lock", "form", "what", "fix"),
    [
        (CONDA, "pylock", "it has 1 conda packages", "use --format conda-lock"),
        (CONDA, "requirements", "it has 1 conda packages", "use --format conda-lock"),
        (CONDA, "explicit", "it has 4 Python packages of pip", "use --format conda-lock"),
        (PIP, "explicit", "it has no conda packages, and so no Python", "use --format pylock"),
        (PIP, "conda-lock", "it has no conda packages, and so no Python", "use --format pylock"),
        (
            replace(PIP, pip=(COMMIT,)),
            "requirements",
            "'tool' is a commit, which has no hash",
            "name a release of it, or the address of a wheel, and lock again",
        ),
        (
            replace(PIP, pip=(replace(SIX, url="file:///w/six.whl"),)),
            "pylock",
            "'file:///w/six.whl' is a file of this machine",
            "lock it from an index or a channel with an address",
        ),
    ],
)
def test_what_a_form_cannot_say_is_refused(lock: Lock, form: Form, what: str, fix: str) -> None:
    message = f"the form '{form}' cannot say all of the lock for 'lumi-g': {what}"
    assert refuse(lock, form) == [(message, fix)]


def test_a_lock_for_a_base_images_python_is_said_to_be_a_part() -> None:
    (finding,) = report_base(replace(PIP, asked=replace(ASKED, place="base")), file="environment.yml")
    assert finding.level == "warning"
    assert finding.message.startswith("the packages in 'docker://b.example/b:1' are not in it")
    assert report_base(PIP, file="environment.yml") == ()
