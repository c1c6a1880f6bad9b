"""The recipe's own commands in the shells that run them: none is skipped while the build passes."""

from __future__ import annotations

import subprocess
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
