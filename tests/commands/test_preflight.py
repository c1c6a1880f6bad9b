"""What a build refuses before it writes anything, and that a dry run says the very same."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.execute import machine
from builder.execute.folder_lock import lock_folder
from builder.layers.cache import Store, compute_key
from builder.sif.sif import make_empty_sif, write_header

ENV = "name: demo\ndependencies: [pip: [six==1.16.0]]\n"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command said."""

    code: int
    err: str


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with one recipe, on a machine that has nothing but what a test puts on PATH."""
    for name in list(os.environ):
        if name.startswith(("BASH_FUNC_module", "RECIPE_", "SLURM_", "SBATCH_")) or name in ("BASH_ENV", "TMPDIR"):
            monkeypatch.delenv(name, raising=False)
    folder, programs = tmp_path / "work", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "MODULE_FILES", ())
    (folder / "env.yml").write_text(ENV)
    (folder / "rocm.yml").write_text("name: rocm\ndependencies: [python=3.12, pip: [torch==2.6.0]]\n")
    return folder


def have(place: Path, *names: str) -> None:
    for name in names:
        program = place.parent / "bin" / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)


def recipe(*words: str) -> Answer:
    import contextlib

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(words))
    assert "Traceback" not in err.getvalue()
    return Answer(code=code, err=err.getvalue())


def left(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def errors(text: str) -> str:
    """The findings that are errors."""
    return text[text.index("error[") :]


def both(*words: str, place: Path) -> Answer:
    """A dry run and the build refuse with the same words, and leave nothing."""
    before = left(place)
    dry = recipe("build", *words, "-n")
    assert left(place) == before
    real = recipe("build", *words)
    assert left(place) == before
    assert (dry.code, errors(dry.err)) == (real.code, errors(real.err))
    return real


def test_a_machine_without_the_module_command_is_none_of_lumis(place: Path) -> None:
    done = both("lumi-g", "rocm.yml", "--base", "docker://ubuntu:24.04", place=place)
    assert done.code == 4
    assert "this is not a machine of 'lumi-g': there is no module command here" in done.err
    assert "`recipe plan lumi-g rocm.yml --base docker://ubuntu:24.04`" in done.err


def test_nor_one_without_its_base_image(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", "() { :; }")
    done = both("lumi-g", "rocm.yml", place=place)
    assert done.code == 4
    assert "this is not a machine of 'lumi-g': its base image '/appl/" in done.err


def test_a_missing_own_base_image_is_a_fault_of_the_command(place: Path) -> None:
    done = both("local", "env.yml", "--base", "no-such.sif", place=place)
    assert (done.code, "no-such.sif' does not exist" in done.err) == (2, True)
    assert "--base" in done.err


@pytest.mark.usefixtures("place")
def test_without_sbatch_nothing_is_submitted_with_one_error() -> None:
    for words in (("env.yml",), ("env.yml", "rocm.yml", "-o", "several")):
        done = recipe("build", "lumi-g", *words, "--submit", "--account", "project_1")
        assert done.code == 4
        assert done.err.count("there is no sbatch here") == 1
        assert "recipe plan lumi-g" in done.err
    assert recipe("build", "lumi-g", "env.yml", "--submit", "-n").code == 4
    assert recipe("build", "lumi-g", "env.yml", "--submit").err.count("error[") == 1


def test_an_output_in_the_way(place: Path) -> None:
    (place / "mine.sif").write_text("precious")
    assert both("local", "env.yml", "-o", "mine.sif", place=place).code == 2


def test_a_folder_that_does_not_exist_or_may_not_be_written(place: Path) -> None:
    assert both("local", "env.yml", "-o", "no/such/x.sif", place=place).code == 2
    (place / "closed").mkdir(mode=0o500)
    if os.geteuid():
        assert both("local", "env.yml", "-o", "closed/x.sif", place=place).code == 2


def test_programs_that_are_missing(place: Path) -> None:
    done = both("local", "env.yml", place=place)
    assert (done.code, "which is not on PATH" in done.err) == (4, True)


@contextmanager
def ready(place: Path) -> Iterator[None]:
    """With programs that look as if they could build."""
    have(place, "apptainer", "mksquashfs", "unsquashfs", "bash", "sync", "python3")
    yield


def test_a_temporary_folder_and_a_cache_that_cannot_be_used(place: Path) -> None:
    with ready(place):
        assert recipe("build", "local", "env.yml", "-n").code == 0
        assert both("local", "env.yml", "--tmpdir", "no-such", place=place).code == 2
        os.environ["RECIPE_CACHE_DIR"] = "/proc/none"
        try:
            done = both("local", "env.yml", place=place)
        finally:
            del os.environ["RECIPE_CACHE_DIR"]
        assert (done.code, "RECIPE_CACHE_DIR" in done.err) == (4, True)
    assert left(place) == ["env.yml", "rocm.yml"]


def test_another_build_at_work(place: Path) -> None:
    import threading

    with ready(place):
        assert recipe("plan", "local", "env.yml", "-o", "demo-local.plan").code == 0
        begun, over = threading.Event(), threading.Event()

        def other() -> None:
            with lock_folder(place / "demo-local.plan"):
                begun.set()
                over.wait(60)

        thread = threading.Thread(target=other)
        thread.start()
        try:
            assert begun.wait(60)
            assert both("local", "env.yml", "-o", "demo-local.sif", place=place).code == 2
        finally:
            over.set()
            thread.join()


def test_several_at_once(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "demo-local.sif").write_text("precious")
    with ready(place):
        dry = recipe("build", "local", "dawn", "env.yml", "-o", "out", "-n")
        assert (dry.code, "demo-local.sif' exists" in dry.err) == (2, True)
        assert recipe("build", "local", "dawn", "env.yml", "-o", "made/later", "-n").code == 0
    assert not (place / "made").exists()


@pytest.mark.parametrize("words", [("plan", "-o", "demo-local.plan"), ("build", "-o", "demo-local.sif")])
def test_changes_by_hand_are_kept(place: Path, words: tuple[str, ...]) -> None:
    command, *more = words
    kit = place / "demo-local.plan"
    assert recipe("plan", "local", "env.yml", "-o", str(kit)).code == 0
    settings = kit / "run" / "site.env"
    settings.write_text("NCCL_SOCKET_IFNAME=hsn0\n")  # the user's own file
    assert recipe("plan", "local", "env.yml", "-o", str(kit)).code == 0  # nothing was changed
    script = kit / "1-build-image.sh"
    script.write_text(script.read_text() + "echo mine\n")
    (kit / "README.md").unlink()
    (kit / "run" / "mine.sh").write_text("echo mine\n")
    (kit / "train.log").write_text("a file of a job's own does no harm")
    with ready(place):
        done = recipe(command, "local", "env.yml", *more)
        assert done.code == 2
        for said in ("'1-build-image.sh' was edited", "'README.md' was removed", "'run/mine.sh' was added", "--force"):
            assert said in done.err
        assert "train.log" not in done.err
        assert script.read_text().endswith("echo mine\n")
    assert recipe("plan", "local", "env.yml", "-o", str(kit), "--force").code == 0
    assert not script.read_text().endswith("echo mine\n")
    assert settings.read_text() == "NCCL_SOCKET_IFNAME=hsn0\n"


# What sbatch writes of a job that it does not take (Slurm 24.05), and of one that it would.
REFUSES = 'echo "sbatch: error: invalid partition specified: nowhere" >&2; exit 1'
TAKES = 'echo "sbatch: Job 1 to start at 2026-11-23T00:00:00 using 1 processors on nodes n1 in partition small" >&2'
SUBMIT = ("lumi-g", "env.yml", "--base", "docker://ubuntu:24.04", "--submit", "--account", "project_1")


def sbatch_stand_in(place: Path, answer: str) -> Path:
    """An sbatch that notes its words and whether the script that it is to read is there."""
    have(place, "sbatch")
    asked = place.parent / "asked"
    script = f'echo "$@" >>{asked}\nfor last; do :; done\n[ -f "$last" ] && echo there >>{asked}\n{answer}\n'
    (place.parent / "bin" / "sbatch").write_text(f"#!/bin/sh\n{script}")
    return asked


def test_a_dry_run_asks_slurm_and_the_build_says_the_same(place: Path) -> None:
    asked = sbatch_stand_in(place, REFUSES)
    dry = recipe("build", *SUBMIT, "--partition", "nowhere", "-n")
    assert (dry.code, "there is no partition 'nowhere' here" in dry.err) == (2, True)
    assert left(place) == ["env.yml", "rocm.yml"]
    lines = asked.read_text().splitlines()
    assert {line.split()[0] for line in lines[::2]} == {"--test-only"}
    assert set(lines[1::2]) == {"there"}
    assert "--partition=nowhere" in lines[0]
    real = recipe("build", *SUBMIT, "--partition", "nowhere")
    assert (real.code, errors(real.err)) == (dry.code, errors(dry.err))
    several = recipe("build", "lumi-g", "env.yml", "rocm.yml", *SUBMIT[2:], "--partition", "nowhere", "-o", "out", "-n")
    assert (several.code, several.err.count("there is no partition 'nowhere' here") > 1) == (2, True)
    assert not (place / "out").exists()


def test_a_dry_run_of_jobs_that_slurm_would_take(place: Path) -> None:
    asked = sbatch_stand_in(place, TAKES)
    assert recipe("build", *SUBMIT, "-n").code == 0
    assert all("--test-only" in line for line in asked.read_text().splitlines()[::2])
    assert recipe("build", *SUBMIT, "-n", "--mem", "lots").code == 2
    assert left(place) == ["env.yml", "rocm.yml"]


def test_a_missing_base_image_is_reported_where_it_is_named(place: Path) -> None:
    (place / "recipe.yml").write_text("name: own\ndependencies: [numpy]\ncontainer: {base: ./gone.sif}\n")
    (place / "base.sif").write_text("")
    done = both("local", "recipe.yml", place=place)
    assert (done.code, "  at:  recipe.yml: container.base" in done.err) == (2, True)
    done = both("local", "env.yml", "--base", str(place / "bsae.sif"), place=place)
    assert (done.code, "  at:  --base" in done.err, "did you mean" in done.err) == (2, True, True)


DOCKERS = {
    "docker-down": """
echo "Cannot connect to the Docker daemon at unix:///nonexistent. Is the docker daemon running?" >&2; exit 1""",
    "docker-rights": """
echo "permission denied while trying to connect to the Docker daemon socket" >&2; exit 1""",
    "docker-buildx": """
test "$1" = version && echo "28.2.2 28.2.2" && exit; echo "docker: unknown command: docker buildx"; exit 1""",
}
SAID = {
    "docker-down": "no Docker daemon answers at 'unix:///nonexistent'",
    "docker-rights": "you may not use the Docker daemon",
    "docker-buildx": "its plug-in buildx is missing",
}


@pytest.mark.parametrize("fault", DOCKERS)
@pytest.mark.parametrize("words", [("-n",), ()])
def test_a_docker_that_cannot_build_is_found_before_a_step(fault: str, words: tuple[str, ...], place: Path) -> None:
    have(place, "apptainer", "mksquashfs", "unsquashfs", "docker")
    (place.parent / "bin" / "docker").write_text(f"#!/bin/sh{DOCKERS[fault]}\n")
    done = recipe("build", *words, "local", "env.yml", "--backend", "docker")
    assert (done.code, SAID[fault] in done.err) == (4, True), done.err
    assert sorted(path.name for path in place.iterdir()) == ["env.yml", "rocm.yml"]


def test_an_old_docker_needs_no_plug_in(place: Path) -> None:
    have(place, "apptainer", "docker")
    (place.parent / "bin" / "docker").write_text(
        '#!/bin/sh\ntest "$1" = version && echo "20.10.24+dfsg1 20.10.24+dfsg1" && exit; exit 1\n'
    )
    assert recipe("build", "-n", "local", "env.yml", "--backend", "docker").code == 0


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("text", "it is a text"),
        ("empty", "it is an empty file"),
        ("short", "it is cut short"),
        ("closed", "may not be read"),
        ("folder", "it is a folder"),
        ("pipe", "it is not a regular file"),
        ("device", "it is not a regular file"),
    ],
)
@pytest.mark.parametrize("backend", ["apptainer", "layers"])
def test_a_base_that_is_no_image_is_refused_at_once(place: Path, kind: str, why: str, backend: str) -> None:
    have(place, "apptainer", "mksquashfs", "unsquashfs")
    base = place.parent / "base.sif"
    if kind == "closed" and not os.geteuid():
        pytest.skip("root may read everything")
    if kind == "folder":
        base.mkdir()
    elif kind == "pipe":
        os.mkfifo(base)
    elif kind == "device":
        base = Path("/dev/null")
    else:
        base.write_bytes({"text": b"hello", "empty": b"", "closed": b"", "short": short_sif()}[kind])
        base.chmod(0 if kind == "closed" else 0o600)
    done = both("local", "env.yml", "--base", str(base), "--backend", backend, place=place)
    assert done.code == 2
    assert f"{base}' cannot be used: " in done.err
    assert why in done.err
    assert "at:  --base" in done.err


def short_sif() -> bytes:
    image = io.BytesIO()
    write_header(image, make_empty_sif("x86_64"), time=0)
    return image.getvalue()[:256]


@pytest.mark.parametrize(
    "base", ["oras://x", "oras://host.example/Upper:1", "docker://NoSuch/Upper", "docker://host.example/a//b"]
)
def test_a_base_whose_name_no_registry_takes_is_refused(place: Path, base: str) -> None:
    have(place, "apptainer", "mksquashfs", "unsquashfs")
    assert both("local", "env.yml", "--base", base, place=place).code == 2


@pytest.mark.parametrize("base", ["docker://a/b:1.0", "docker://localhost:5000/a", "oras://host.example:1/a/b_c:V1"])
def test_a_base_with_a_right_name_is_not(place: Path, base: str) -> None:
    have(place, "apptainer", "mksquashfs", "unsquashfs")
    assert recipe("build", "local", "env.yml", "--base", base, "-n").code == 0


def test_offline_needs_the_base_in_the_cache(place: Path) -> None:
    have(place, "apptainer", "mksquashfs", "unsquashfs")
    words = ("local", "env.yml", "--offline", "--base", "docker://ubuntu:24.04")
    done = both(*words, place=place)
    assert done.code == 4
    assert "ubuntu:24.04 was not fetched before" in done.err
    folder = place.parent / "cache" / "recipe"
    store = Store(folder)
    store.remember("known", compute_key(["reference", "docker://ubuntu:24.04"]), "k")
    store.get_path("bases", "k").touch()
    assert recipe("build", *words, "-n").code == 0


def test_a_file_for_the_image_that_may_not_be_read(place: Path) -> None:
    if not os.geteuid():
        pytest.skip("root may read everything")
    have(place, "apptainer", "mksquashfs", "unsquashfs")
    (place / "env.yml").write_text(f"{ENV}container:\n  files:\n    data: /opt/data\n")
    (place / "data").mkdir()
    (place / "data" / "closed").touch(mode=0)
    done = both("local", "env.yml", place=place)
    assert done.code == 2
    assert "closed' is to be copied into the image, and you may not read it" in done.err


def test_a_name_without_room_for_the_files_next_to_it(place: Path) -> None:
    have(place, "apptainer", "mksquashfs", "unsquashfs")
    done = both("local", "env.yml", "-o", f"{'x' * 242}.sif", place=place)
    assert (done.code, "is too long" in done.err) == (2, True)


# What is refused comes at once, and is said of every command.


def test_every_refusal_of_a_build_comes_at_once(place: Path) -> None:
    (place / "mine.sif").write_text("precious")
    done = both("local", "env.yml", "-o", "mine.sif", "--base", "/no/such.sif", place=place)
    assert done.code == 2
    assert "mine.sif' exists" in done.err
    assert "the base image '/no/such.sif' does not exist" in done.err


def test_an_account_and_the_machine_are_one_answer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have(place, "sbatch")
    monkeypatch.setattr(machine, "find_other_site", lambda _site, host: "mn5" if host else "")
    done = recipe("build", "lumi-g", "env.yml", "--submit", "-n")
    assert "requires a Slurm account" in done.err
    assert "this is not a machine of 'lumi-g'" in done.err


def test_a_base_image_of_the_user_hides_no_other_machine(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module command of another site is no module command of this one."""
    monkeypatch.setenv("BASH_FUNC_module%%", "() { :; }")
    for words in (("lumi-g", "rocm.yml"), ("local", "lumi-g", "rocm.yml")):
        done = recipe("build", *words, "--base", "docker://ubuntu:24.04", "-n")
        assert done.code == 4, words
        assert "this is not a machine of 'lumi-g': '/appl/local/containers" in done.err
    assert left(place) == ["env.yml", "rocm.yml"]


@pytest.mark.parametrize(("output", "letter"), [("a:b.sif", ":"), ("a,b.sif", ","), ("c:d/x.sif", ":")])
def test_no_output_that_a_container_cannot_bind(place: Path, output: str, letter: str) -> None:
    (place / "c:d").mkdir()
    done = both("local", "env.yml", "-o", output, place=place)
    assert (done.code, f"contains '{letter}'" in done.err) == (2, True)


def image_of(place: Path, name: str = "x.sif") -> Path:
    """A SIF without content, which no command of these tests runs."""
    path = place / name
    with path.open("w+b") as file:
        write_header(file, make_empty_sif("x86_64"), time=0)
        file.truncate(1 << 20)
    return path


def test_a_run_says_that_this_is_another_machine(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image_of(place)
    for site in ("lumi-g", "mn5", "frontier", "dawn"):
        done = recipe("run", site, "x.sif", "--", "true")
        assert done.code == 4, site
        assert f"this is not a machine of '{site}': " in done.err
        assert "give --here" in done.err
    have(place, "sbatch")
    monkeypatch.setenv("BASH_FUNC_module%%", "() { :; }")
    assert "this may be no machine of 'mn5'" in recipe("run", "mn5", "x.sif", "--", "true").err
    assert "no machine of 'mn5'" not in recipe("run", "mn5", "x.sif", "--here", "--", "true").err


def test_nodes_without_a_job_are_refused(place: Path) -> None:
    image_of(place)
    done = recipe("run", "local", "x.sif", "--nodes", "2", "--", "true")
    assert (done.code, "--nodes is for jobs" in done.err) == (2, True)


@pytest.mark.parametrize("command", [("run", "local", "x.sif", "--", "true"), ("smoke", "local", "x.sif")])
def test_an_image_that_is_cut_short_is_not_run(place: Path, command: tuple[str, ...]) -> None:
    image = image_of(place)
    with image.open("r+b") as file:
        file.truncate(8000)
    done = recipe(*command)
    assert (done.code, "the image 'x.sif' is not sound: it is cut short" in done.err) == (2, True)


def test_an_unknown_backend_is_a_faulty_command(place: Path) -> None:
    assert both("local", "env.yml", "--backend", "foo", place=place).code == 2
    assert both("mn5", "env.yml", "--backend", "layers", place=place).code == 3
