"""Messages that name a line, a path or a part of an image: the line works, and what is unknown is called so."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from builder.cli.inputs import make_context
from builder.cli.main import run
from builder.execute.machine import check_run_machine
from builder.model.contents import InstalledPackage, compare_packages
from builder.parse.site import load_site

REPORT = {"schema": 1, "target": "x on local", "status": "passed", "image": "x.sif", "steps": [], "seconds": 1.0}


@pytest.fixture
def place(tmp_path: Path, recipes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(recipes / "mnist.yml", "mnist.yml")
    return tmp_path


def failed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert run(list(words)) == code
    return capsys.readouterr().err


def test_a_suggested_plan_keeps_the_options_of_a_build(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del place
    options = ("--backend", "cotainr", "--account=project_1", "--driver=6.3", "--gpu-visibility", "rank")
    err = failed(capsys, "build", "lumi-g", "mnist.yml", *options, "-o", "x.sif", "-q", "--here", "--no-smoke", code=4)
    assert "not-this-site" in err
    line = err.partition("`recipe plan ")[2].partition("`")[0]
    assert line.split() == ["lumi-g", "mnist.yml", *options]
    assert run(["plan", *line.split()]) == 0


def test_each_of_several_builds_has_its_own_plan_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del place
    assert run(["build", "-n", "lumi-g", "local", "mnist.yml", "-o", "out", "--no-smoke"]) == 4
    assert "`recipe plan lumi-g mnist.yml`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("docker://x@sha256:1", "the digest of the base image is '1'"),
        ("docker://host/x:1@sha256:" + "g" * 64, f"is '{'g' * 57}...'"),
        ("docker://x@sha512:" + "a" * 128, "is 'sha512', and only sha256 is read"),
    ],
)
def test_a_faulty_digest_is_called_so(place: Path, capsys: pytest.CaptureFixture[str], base: str, said: str) -> None:
    del place
    err = failed(capsys, "check", "local", "mnist.yml", "--base", base)
    assert said in err
    right = err.partition("or leave it out: ")[2].strip()
    assert run(["check", "local", "mnist.yml", "--base", right]) == 0


def test_a_secret_in_a_base_image_is_not_repeated(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del place
    assert "hunter2" not in failed(capsys, "check", "local", "mnist.yml", "--base", "docker://me:hunter2@x/y:1")


def test_check_refuses_the_path_that_a_build_refuses(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"b\xff.yml")
    (place / "mnist.yml").rename(name)
    found = [failed(capsys, command, "local", name) for command in ("check", "build")]
    assert found[0] == found[1]
    assert "b\\xff.yml' is not UTF-8 text" in found[0]


def test_the_root_folder_is_no_plan_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'/' is neither a plan folder" in failed(capsys, "status", "/")


def test_a_folder_of_several_plans_has_a_report_for_each(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seconds in (("one", 1.0), ("two", 2.0), ("three", None)):
        folder = place / f"{name}.plan"
        assert run(["plan", "local", "mnist.yml", "-o", str(folder)]) == 0
        if seconds:
            (folder / "report.json").write_text(json.dumps({**REPORT, "seconds": seconds}))
    capsys.readouterr()
    assert run(["report", ".", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert [one["source"] for one in json.loads(out)["reports"]] == ["one.plan", "two.plan"]
    assert "three.plan" in err


def test_what_an_unread_image_lacks_is_unknown() -> None:
    numpy, six = (InstalledPackage(kind="pip", name=name, version="1") for name in ("numpy", "six"))
    found = compare_packages([numpy], [six], partial=(False, True))
    assert [(one.name, one.what) for one in found] == [("numpy", "unknown"), ("six", "added")]
    assert [one.what for one in compare_packages([numpy], [six])] == ["removed", "added"]


def test_diff_suggests_no_faulty_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "a-faulty.yml").write_text("dependencies: [python=3.12, torch==99.99, b: c]\n")
    (place / "x.sif").write_bytes(b"#!/usr/bin/env run-singularity\n")
    err = failed(capsys, "diff", "x.sif")
    assert "a-faulty.yml" not in err
    assert "mnist.yml" in err
    (place / "mnist.lock.yml").write_text("lock: [\n")
    assert "`recipe diff" not in failed(capsys, "diff", "x.sif")


def test_a_name_with_a_line_break_stays_on_its_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del place
    assert run(["build", "-n", "local", "mnist.yml", "-o", "a\nFAKE\x1b[31m.sif"]) in (0, 2, 4)
    out, err = capsys.readouterr()
    assert "\x1b[31m" not in out + err
    assert not [line for line in (out + err).splitlines() if line.startswith("FAKE")]


def test_diff_finds_the_lock_that_is_meant(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "mnist.lock").mkdir()
    (place / "mnist.lock.yml").write_text("lock: '1'\n")
    assert "did you mean 'mnist.lock.yml'?" in failed(capsys, "diff", "mnist.lock.yml", "mnist.local.lock")


def test_each_way_to_write_a_base_image_is_the_same_plan(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "sub").mkdir()
    (place / "x.sif").touch()
    (place / "link").symlink_to("/usr/lib")
    monkeypatch.chdir(place / "sub")
    for word in ("../x.sif", str(place / "x.sif"), "../sub/../x.sif"):
        assert make_context(base=word).base == str(place / "x.sif")
    assert make_context(base=f"{place}/link/../x.sif").base == f"{place}/link/../x.sif"  # another file


def make_image_folder(place: Path, *, site: str) -> None:
    """An image as a folder, with the label of a site and no torch."""
    (place / "x" / "bin").mkdir(parents=True)
    (place / "x" / ".singularity.d").mkdir()
    (place / "x" / ".singularity.d" / "labels.json").write_text(f'{{"recipe.site": "{site}"}}')


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (("--launcher", "torchrun", "--gpus", "2"), ()),
        (("--nodes", "2", "--gpu-visibility", "rank"), ()),
        (("--nodes", "2", "--submit", "--qos=debug", "--no-wait"), ()),
        (("--submit", "--launcher=srun", "-q"), ("-q",)),
    ],
)
def test_the_line_for_the_images_site_is_accepted_there(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    kept: tuple[str, ...],
) -> None:
    """The site of the label has no Slurm, and refuses what the other one takes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    make_image_folder(tmp_path, site="local")
    if "--submit" not in options:
        err = failed(capsys, "run", "lumi-g", "x", *options, "--", "true", code=4)
        assert f"`recipe run local x {' '.join([*kept, ''])}-- true`" in err
    if "--submit" in options:
        err = failed(capsys, "run", "local", "x", *options, "--", "true", code=3)
        assert f"`recipe run local x {' '.join([*kept, ''])}-- true`" in err


def test_a_torch_for_cpus_is_refused_before_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is started: what torch was built for is in its files."""
    monkeypatch.chdir(tmp_path)
    make_image_folder(tmp_path, site="lumi-g")
    torch = tmp_path / "x" / "opt" / "env" / "lib" / "python3.12" / "site-packages" / "torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.8.0+cpu'\ncuda = None\nhip = None\nxpu = None\n")
    err = failed(capsys, "smoke", "lumi-g", "x", "--here", code=6)
    assert "failed, before a run: torch 2.8.0+cpu is not built for amd GPUs" in err


def test_run_and_smoke_say_the_same_of_an_image_of_another_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both refuse on a machine that is not the site's, and none names a base image that the image does not use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    make_image_folder(tmp_path, site="local")
    said = [failed(capsys, "run", "lumi-g", "x", "--", "true", code=4), failed(capsys, "smoke", "lumi-g", "x", code=4)]
    for err, line in zip(said, ("recipe run local x -- true", "recipe smoke local x"), strict=True):
        assert "warning[image-site]: 'x' was built for 'local', and 'lumi-g' is named" in err
        assert f"`{line}`" in err
        assert "error[not-this-site]" in err
        assert "its base image" not in err


def test_a_launcher_outside_of_a_job_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing there would start ranks by it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    make_image_folder(tmp_path, site="mn5")
    err = failed(capsys, "run", "mn5", "x", "--here", "--launcher", "srun", "--", "true")
    assert "--launcher is for jobs, and this shell is not in one" in err
    assert "fix: add --submit, or leave it out" in err
    err = failed(capsys, "smoke", "mn5", "x", "--here", "--launcher", "srun")
    assert "--launcher is for jobs" in err
    assert "leave it out: `recipe smoke mn5 x --here`" in err


def test_a_site_without_host_names_is_known_by_its_folders(tmp_path: Path) -> None:
    """A machine with sbatch and modules may be another site's."""
    (tmp_path / "sbatch").touch(mode=0o755)
    environment = {"PATH": str(tmp_path), "BASH_FUNC_module%%": "() { true; }"}
    site = load_site("frontier")
    assert site.hostnames == ()
    runtime = replace(site.runtime, optional_binds=(str(tmp_path), str(tmp_path / "cray")))
    found = check_run_machine(replace(site, runtime=runtime), environment=environment)
    assert found is not None
    assert found.message.endswith(f"'{tmp_path}/cray', which its containers use, is not here")
    here = replace(runtime, optional_binds=(str(tmp_path), "/data/$USER"))
    assert check_run_machine(replace(site, runtime=here), environment=environment) is None
