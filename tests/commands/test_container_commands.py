"""The recipe's own commands in the shells that run them: none is skipped while the build passes."""

from __future__ import annotations

import importlib.util
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.compile.backends.tykky import POST_INSTALL
from builder.compile.image_files import make_run_script
from builder.compile.render import read_template
from builder.parse.shell_text import find_open_part


def run_install(folder: Path, commands: tuple[str, ...], *, shell: str) -> subprocess.CompletedProcess[str]:
    """Run part `run` of install.sh as in an image, with a folder of the test in the place of its own."""
    text = read_template("install.sh").replace("here=/opt/recipe/build", f"here='{folder}'")
    (folder / "install.sh").write_text(text)
    (folder / "place").write_text("conda\n")
    (folder / "run.sh").write_text(make_run_script(commands))
    argv = [shell, str(folder / "install.sh"), "run"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def run_post_install(folder: Path, commands: tuple[str, ...], *, shell: str) -> subprocess.CompletedProcess[str]:
    """Source the script of tykky in a shell, as it does."""
    (folder / "post-install.sh").write_text(POST_INSTALL % make_run_script(commands))
    argv = [shell, "-ec", ". ./post-install.sh; echo goes on"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROWS = (
    (("cd /", "made=yes", 'test "$PWD$made" = /yes'), 0, ""),
    (("true", "exit 0"), 0, ""),
    (("sleep 0 & true", "exit 3"), 3, "command 2 of container.run failed"),
    (("exit 0", "touch after"), 1, "command 1 of container.run ends the shell"),
    (("true", "exec true", "touch after"), 1, "command 2 of container.run ends the shell"),
    (("trap 'exit 0' EXIT; false",), 1, "command 1 of container.run ends the shell"),
    (("trap 'exit 0' EXIT", "true", "false"), 1, "command 3 of container.run ends the shell"),
    (("trap 'true' EXIT", "false"), 1, ""),
    (("trap 'true' EXIT", "true"), 0, ""),
    (("cat <<EOF\nhello", "touch after"), None, ""),
    (("echo a \\", "touch after"), None, ""),
    (("if false; then", "touch after", "fi"), 1, "command 1 of container.run ends the shell"),
)


@pytest.mark.parametrize("run", [run_install, run_post_install], ids=["install", "tykky"])
@pytest.mark.parametrize(("commands", "code", "said"), ROWS, ids=[" | ".join(row[0]) for row in ROWS])
def test_no_command_is_skipped_in_silence(
    tmp_path: Path, run: Run, commands: tuple[str, ...], code: int | None, said: str
) -> None:
    for number, shell in enumerate(("sh", "bash")):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run(folder, commands, shell=shell)
        assert (done.returncode != 0) if code is None else (done.returncode == code), done.stderr
        assert said in done.stderr


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("rm -rf '{}/build'", "removed files of '{}/build'"),
        ("rm -rf '{}/build/'*; false", "removed files of '{}/build'"),
        ("rm -rf '{}/env'", "closed or removed '{}/env'"),
        ("rm -rf '{}/env/lib'", "closed or removed '{}/env/lib'"),
        ("rm -rf '{}/env/lib/python3.11/site-packages'/*", "removed the packages in '{}/env'"),
        (
            "cp /bin/false '{}/env/bin/python.new' && mv '{}/env/bin/python.new' '{}/env/bin/python'",
            "changed the Python of",
        ),
        ("chmod -R a-rwx '{}/env'", "closed or removed '{}/env'"),
        ("chmod o-x '{}/env/bin'; exit 3", "closed or removed '{}/env/bin'"),
        ("chmod o-r '{}/env/lib/python3.11/site-packages'", "closed or removed '{}/env/lib/python3.11/site-packages'"),
        ("rm '{}/env/bin/python'", "closed or removed '{}/env/bin/python'"),
    ],
)
def test_a_command_that_removes_what_the_build_made_is_named(
    tmp_path: Path, command: str, said: str, shell: str
) -> None:
    build, env = tmp_path / "build", tmp_path / "env"
    (env / "lib/python3.11/site-packages/six-1.16.0.dist-info").mkdir(parents=True)
    (env / "bin").mkdir()
    (env / "bin/python").symlink_to(sys.executable)
    build.mkdir()
    text = read_template("install.sh").replace("here=/opt/recipe/build", f"here='{build}'")
    text = text.replace("prefix=/opt/env", f"prefix='{env}'")
    command = command.replace("{}", str(tmp_path))
    for name, content in (("place", "venv\n"), ("run.sh", make_run_script((command, "true", "true")))):
        (build / name).write_text(content)
    (build / "install.sh").write_text(text)
    (tmp_path / "install.sh").write_text(text)
    argv = [shell, str(tmp_path / "install.sh"), "run"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path)], check=True)
    assert done.returncode == 1
    assert said.replace("{}", str(tmp_path)) in done.stderr
    if "closed" in said:
        assert f"command 1 of container.run ({command[:100]}) closed or removed" in done.stderr


SIX = "lib/python{}.{}/site-packages/six.py".format(*sys.version_info)
SEEN = "env/bin/python -c 'import six; print(six.__version__)' >seen"


@pytest.fixture(scope="module")
def whole_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a package whose .pyc file is not compared with its source."""
    top = tmp_path_factory.mktemp("whole")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(top / "env")], check=True)
    module = top / "env" / SIX
    info = module.with_name("six-1.16.0.dist-info")
    info.mkdir()
    module.write_text("__version__ = '1.16.0'\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n")
    (info / "RECORD").write_text("six.py,,\nsix-1.16.0.dist-info/METADATA,,\nsix-1.16.0.dist-info/RECORD,,\n")
    py_compile.compile(str(module), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return top


def run_in_environment(top: Path, folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    shutil.copytree(top, folder, symlinks=True, dirs_exist_ok=True)
    build, env = folder / "build", folder / "env"
    build.mkdir()
    text = read_template("install.sh").replace("here=/opt/recipe/build", f"here='{build}'")
    text = text.replace("prefix=/opt/env", f"prefix='{env}'")
    files = {"place": "venv\n", "run.sh": make_run_script(commands), "requirements.txt": "six==1.16.0\n"}
    for name, content in (files | {"install.sh": text}).items():
        (build / name).write_text(content)
    argv = ["sh", str(build / "install.sh"), "run"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_module_that_a_command_changes_is_imported(whole_environment: Path, tmp_path: Path) -> None:
    done = run_in_environment(whole_environment, tmp_path, f"sed -i 's/1.16.0/9.9/' env/{SIX}", SEEN)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen").read_text() == "9.9\n"
    (compiled,) = (tmp_path / "env" / SIX).parent.glob("__pycache__/six.*.pyc")
    head = compiled.read_bytes()[4:16]
    assert head == b"\x01\0\0\0" + importlib.util.source_hash((tmp_path / "env" / SIX).read_bytes())


def test_a_module_that_cannot_be_compiled_loses_its_pyc(whole_environment: Path, tmp_path: Path) -> None:
    done = run_in_environment(whole_environment, tmp_path, f"echo '<<<' >env/{SIX}", "true")
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "env" / SIX).parent.glob("__pycache__/six.*"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ln -sfn /bin/true env/bin/python3", "which no longer runs"),
        ("rm -f env/pyvenv.cfg", "pyvenv.cfg"),
        (f"rm env/{SIX}", "removed packages or modules of the recipe: six"),
        (f"rm -r env/{SIX[:-3]}-1.16.0.dist-info", "removed"),
    ],
)
def test_a_command_that_breaks_what_was_asked_for_is_named(
    whole_environment: Path, tmp_path: Path, command: str, said: str
) -> None:
    done = run_in_environment(whole_environment, tmp_path, command, "true")
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ("pytest==1 \\\n    --hash=sha256:aa\nPyYAML>=5\nclick[x] @ https://h/c.whl\nruamel_yaml\n", ""),
        ("--index-url https://h\n./own\nown.whl\ngit+https://h/y\n# note\nnot-here; python_version < '3'\n", ""),
        ("six_not_there==1.0\npytest\nAbsent.Too\nby_base\n", "Absent.Too six_not_there"),
    ],
)
def test_a_package_that_was_not_installed_is_named(tmp_path: Path, lines: str, missing: str) -> None:
    text = read_template("install.sh").replace("here=/opt/recipe/build", f"here='{tmp_path}'")
    text = text.replace("prefix=/opt/env", f"prefix='{tmp_path}'")
    text = text.replace("    system | python | links", "    check_installed | system | python | links")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    contents = {"place": "venv\n", "requirements.txt": lines, "protected.txt": "by-base\nruamel.yaml\n"}
    contents["install.sh"] = text
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    argv = ["sh", str(tmp_path / "install.sh"), "check_installed"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (1 if missing else 0), done.stderr
    assert done.stderr.strip().endswith(f"these packages are not installed: {missing}" if missing else "")


COMPLETE = (
    "echo \"a $(echo ')') b\"",
    "cat <<EOF\nhello 'x\nEOF",
    "cat <<-'EOF' >/x\n\thi \"\n\tEOF\necho",
    "if a; then b; fi",
    "case $x in a) b;; (c|d) e;; esac",
    "x=$(case a in b) echo in;; *) echo;; esac)",
    "f() { a; }",
    "( a; b ) || c",
    "echo $((1<<3))",
    "((1<<3)) && a",
    "echo a # it's",
    "echo a\\\n b",
    "a &&\n b",
    "echo ${x:-'a'}",
    "echo `echo 'a'`",
    "sleep 300 & exit 3",
    "echo {a,b} }",
    "echo if",
    "echo $#",
    "cat <<<'x'",
    "while read x; do echo; done </etc/passwd",
    "cat <<A <<B\n1\nA\n2\nB",
    "echo $'a\\'b'",
    "if (a); then\n case x in\n  y) z ;;\n esac\nelse\n b\nfi",
    "! a",
    "a &",
    "[[ a =~ (b|c) ]]",
    "a=(1 2 3)",
    "echo `a \\`b\\` c`",
)
OPEN = (
    "echo 'a",
    'echo "a',
    "cat <<EOF\nhello",
    "cat <<EOF",
    "if true; then",
    "( a",
    "{ a",
    "while x; do",
    "for x in a; do b",
    "case x in a) b;;",
    "a &&",
    "a ||",
    "a |",
    "echo $(a",
    "echo ${a",
    "echo `a",
    'echo "$(a"',
    "f() {",
    "cat <<-EOF\n\tx\n EOF",
    "if a; then b; else",
    "((1+2",
    "echo $((1+2",
    'echo "a\\"',
    "a && # c",
    "cat <<'E F'\nx\nEF",
)


def test_what_is_open_is_what_bash_finds_open() -> None:
    for text in (*COMPLETE, *OPEN):
        read = subprocess.run(
            ["bash", "-n"], input=f"{text}\n", capture_output=True, text=True, timeout=60, check=False
        )
        assert bool(read.returncode or read.stderr) is (text in OPEN), text
        assert bool(find_open_part(text)) is (text in OPEN), text
    for text in ("echo a \\", "echo a \\\n", "echo a \\ "):
        assert find_open_part(text) == "a backslash"


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("locked", [False, True], ids=["solved", "locked"])
@pytest.mark.parametrize(
    ("removed", "gone"),
    [
        ("ffmpeg-7.1.0-h1_0.json", "ffmpeg"),
        ("ca-certificates-2026.1-h2_0.json", ""),
        ("*.json", "ffmpeg gxx_linux-64"),
        ("../six.py", ""),
    ],
)
def test_a_conda_package_that_is_removed_is_named(
    tmp_path: Path, removed: str, gone: str, locked: bool, shell: str
) -> None:
    build, records = tmp_path / "build", tmp_path / "env" / "conda-meta"
    records.mkdir(parents=True)
    build.mkdir()
    for name in ("ffmpeg-7.1.0-h1_0", "gxx_linux-64-14.2-h5_2", "ca-certificates-2026.1-h2_0", "ffmpeg-extra-1-0"):
        (records / f"{name}.json").write_text("{}")
    (records / "history").touch()
    text = read_template("install.sh").replace("here=/opt/recipe/build", f"here='{build}'")
    text = text.replace("prefix=/opt/env", f"prefix='{tmp_path}/env'")
    command = f"rm -f '{records}'/{removed}"
    (build / "place").write_text("conda\n")
    (build / "run.sh").write_text(make_run_script((command,)))
    address = "https://c.example/linux-64/"
    lines = [f"{address}{name}.conda#sha256:{'0' * 64}\n" for name in ("ffmpeg-7.1.0-h1_0", "gxx_linux-64-14.2-h5_2")]
    if locked:
        (build / "conda-explicit.txt").write_text("".join(["# platform: linux-64\n@EXPLICIT\n", *lines]))
    else:
        head = "name: x\nchannels:\n  - conda-forge\ndependencies:\n"
        (build / "environment.yml").write_text(
            f"{head}  - conda-forge::ffmpeg>=7\n  - 'gxx_linux-64=14.*'\n  - nothere\n"
        )
    (build / "install.sh").write_text(text)
    argv = [shell, str(build / "install.sh"), "run"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    said = f"removed conda packages of the recipe: {gone}: keep them"
    assert (done.returncode, said in done.stderr) == ((1, True) if gone else (0, False)), done.stderr
