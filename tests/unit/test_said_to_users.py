"""What is said of lines that users write: the thing that is wrong, and a fix that works."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli import lock
from builder.cli.main import run
from builder.compile.launch.shape import choose_launch
from builder.model.finding import UnsupportedError
from builder.parse.site import load_site

Capture = pytest.CaptureFixture[str]
HEAD = "name: x\nchannels: [conda-forge]\ndependencies:\n  - python=3.12\n"
MAC = """name: x
channels: [conda-forge]
dependencies:
  - bzip2=1.0.8=h99b78c6_7
  - ca-certificates=2025.1.31=hf0a4a13_0
  - libffi=3.4.6=h1da3d7d_1
  - numpy=2.2.3=py312h7c1f314_0
  - python=3.12.9=hc22306f_1_cpython
"""
LINUX = f"{MAC}  - ld_impl_linux-64=2.43=h712a8e2_4\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    return tmp_path


FILES = [
    (f"{HEAD}  - pip: [pyhton-dotenv]\n", 0, "write python-dotenv if you mean that"),
    (f"{HEAD}  - defaults::numpy=1.26\n", 0, "write numpy=1.26, which conda-forge has"),
    (f"{HEAD}  - pip: ['git+ssh://git@github.com/a/b.git']\n", 3, "write git+https://github.com/a/b.git if all may"),
    (f"{HEAD}  - pip: ['b @ git+ssh://git@github.com:22/a/b.git@v1']\n", 3, "b @ git+https://github.com/a/b.git@v1 if"),
    (HEAD.replace("conda-forge", "defaults"), 0, "write channels: [conda-forge, nodefaults]"),
    (MAC, 3, "error[export-system]: this is the export of an environment of another system"),
    (f"{MAC}  - libcxx=19.1.7=ha82da77_0\n", 3, "error[export-system]: this is the export of an environment of macOS"),
    (MAC.replace("_0\n", "*\n"), 0, "warning[export-system]: "),
]


@rows(("text", "code", "said"), FILES)
def test_a_line_is_reported_with_what_works(tmp_path: Path, capsys: Capture, text: str, code: int, said: str) -> None:
    file = tmp_path / "x.yml"
    file.write_text(text)
    assert run(["check", "local", str(file)]) == code
    assert said in capsys.readouterr().err


@rows("text", [LINUX, MAC.replace("bzip2", "zstd").replace("ca-cert", "cert").replace("libffi", "yaml")])
def test_exports_of_linux_are_no_other_systems(tmp_path: Path, capsys: Capture, text: str) -> None:
    file = tmp_path / "x.yml"
    file.write_text(text)
    assert run(["check", "local", str(file)]) == 0
    assert "export-system" not in capsys.readouterr().err


@rows(
    ("line", "said"),
    [
        ("check frontier,dawn x.yml", "name several sites with blanks between them: frontier dawn"),
        ("check local x.yml --account p", "no such option '--account'"),
        ("lock local x.yml --account p", "no such option '--account'"),
        ("plan local x.yml -o p --account p", "--account is for jobs, and 'local' has no batch system"),
        ("explain mpi4py", "findings that speak of it: `recipe explain mpi-missing` or `recipe explain mpi-own`"),
        ("explain mpich", "findings that speak of it: `recipe explain mpi-own` or `recipe explain mpi-missing`"),
    ],
)
def test_a_line_is_refused_with_the_right_one(tmp_path: Path, capsys: Capture, line: str, said: str) -> None:
    (tmp_path / "x.yml").write_text(HEAD)
    assert run(line.split()) == 2
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.yml"]


@rows(("launcher", "said"), [("torchrun", "has torchrun start N ranks"), ("srun", "`-- mpiexec -n N COMMAND` starts")])
def test_a_launcher_agrees_with_what_check_says(tmp_path: Path, capsys: Capture, launcher: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        choose_launch(load_site("local"), launcher=launcher)
    assert said in refused.value.findings[0].fix
    file = tmp_path / "x.yml"
    file.write_text(f"{HEAD}  - mpi4py\n  - mpich\n")
    assert run(["check", "local", str(file)]) == 0
    assert "on 'local' the ranks of `--gpus N` are started by torchrun" in capsys.readouterr().err


def test_the_account_of_a_plan_is_for_sites_with_jobs(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(HEAD)
    assert run(["plan", "lumi-g", "x.yml", "-o", "p", "--account", "project_1"]) == 0


def test_init_names_the_schema_once(capsys: Capture) -> None:
    assert run(["init"]) == 0
    assert ".recipe-environment.schema.json is for your editor" in capsys.readouterr().err
    assert run(["init", "-f"]) == 0
    assert capsys.readouterr().err == ""


def test_a_correction_of_all_sites_counts_them(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.yml").write_text(HEAD.replace("name", "nmae"))
    assert run(["check", "--fix", "x.yml"]) == 0
    assert "1 line corrected\n" in (said := capsys.readouterr().err)
    assert said.endswith("outcomes are no refusal: `recipe check x.yml` lists them\n")


def test_what_is_waited_for_is_named(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered: the wait ends when the line is there."""
    monkeypatch.setattr(lock, "SILENT", 0.01)
    said = ""
    with lock.show_waiting("lumi-g", file="x.yml"):
        for _ in range(6000):
            if said := capsys.readouterr().err:
                break
            time.sleep(0.01)
    assert said == "waiting for the indexes and channels: the packages of x.yml for lumi-g ...\n"


def test_a_quick_answer_has_no_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SILENT", 3600)
    with lock.show_waiting("lumi-g", file="x.yml"):
        pass
    assert capsys.readouterr().err == ""


def test_convert_without_an_engine_leaves_nothing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tarfile

    (tmp_path / "manifest.json").write_text("[]")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "manifest.json", arcname="manifest.json")
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert run(["convert", "local", "a.tar"]) == 4
    assert "needs 'apptainer' or 'singularity'" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
