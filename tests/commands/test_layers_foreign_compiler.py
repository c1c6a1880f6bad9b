"""A Python out of an image compiles in a container, and what it hands back is held against what it was asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from builder.layers import bytecode
from builder.layers.bytecode import Compiler, find_compiler, name_compiled_file
from builder.sif.errors import LayeringError

TAG = "cpython-399"
# The last word is the folder for what was compiled.
WORKER = "#!/bin/sh\nfor out; do :; done\ncat >/dev/null\n{lines}\n"
# A runtime that notes its words, and answers what a Python is asked.
RUNTIME = '#!/bin/sh\nprintf "%s\\n" "$@" >>{log}\n{first}\necho 3.99.1 cpython-399\n'


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def compiled(folder: Path, lines: str) -> list[str]:
    """What a stand-in for an image's Python has compiled of a.py."""
    (folder / "tree").mkdir()
    (folder / "out").mkdir()
    (folder / "tree" / "a.py").write_text("1\n")
    worker = program(folder / "python", WORKER.format(lines=lines))
    made = Compiler(argv=(str(worker),), version="3.99.1", tag=TAG)
    pieces = made.compile(folder / "tree", ["a.py"], prefix="/opt/env", workers=1, out=folder / "out")
    return [piece.path for piece in pieces]


def test_what_was_asked_for_is_taken(tmp_path: Path) -> None:
    name = name_compiled_file("a.py", TAG)
    assert compiled(tmp_path, f"printf abc >$out/0.data; echo '3 {name}' >$out/0.index") == [name]


@pytest.mark.parametrize("name", ["bin/python3", "../../x", "/etc/passwd", "b.py", "__pycache__/b.cpython-399.pyc", ""])
def test_security_08_files_that_were_not_asked_for_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LayeringError, match="other files than it was given to compile"):
        compiled(tmp_path, f"printf abc >$out/0.data; echo '3 {name}' >$out/0.index")


@pytest.mark.parametrize("part", ["data", "index"])
def test_security_08_no_link_in_what_was_handed_back_is_followed(tmp_path: Path, part: str) -> None:
    (tmp_path / "mine").write_text(f"3 {name_compiled_file('a.py', TAG)}\n")
    lines = f"printf abc >$out/0.data; echo '3 {name_compiled_file('a.py', TAG)}' >$out/0.index"
    with pytest.raises(LayeringError, match="is no file"):
        compiled(tmp_path, f"{lines}; ln -sf {tmp_path / 'mine'} $out/0.{part}")


def test_security_08_a_python_of_a_recipe_runs_in_a_container_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Python 3.99 is here: that of the environment stands for it, shown to a container and not started itself."""
    own, log, base = tmp_path / "own", tmp_path / "log", tmp_path / "base.sif"
    (own / "bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    program(own / "bin" / "python3", f"#!/bin/sh\ntouch {tmp_path}/CANARY\necho 3.99.1 cpython-399\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("VIRTUAL_ENV", str(own))
    for first, network in (("", True), ('case "$*" in *--network*) exit 1 ;; esac', False)):
        log.write_text("")
        runtime = program(tmp_path / "runtime", RUNTIME.format(log=log, first=first))
        found = find_compiler("3.99", uv="", runtime=str(runtime), base=base, python="bin/python3", own=own)
        alone = ["--containall", "--no-home", "--no-mount", "tmp,cwd"]
        assert list(found.argv[:6]) == [str(runtime), "exec", *alone]
        assert ("--network" in found.argv) is network
        assert [word for word in found.argv if str(own) in word] == [f"{own}:/media/own:ro"]
        assert list(found.argv[-2:]) == [str(base), "/media/own/bin/python3"]
    assert not (tmp_path / "CANARY").exists()


@pytest.mark.parametrize("minor", ["3.99", f"3.{sys.version_info[1]}"])
def test_security_08_a_python_of_this_machine_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minor: str
) -> None:
    monkeypatch.setattr(
        bytecode, "find_image_compiler", lambda *_words, **_more: pytest.fail("a container was started")
    )
    program(tmp_path / "python3.99", "#!/bin/sh\necho 3.99.1 cpython-399\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_compiler(minor, uv="", runtime="none", base=tmp_path, python="bin/python3", own=tmp_path)
    assert len(found.argv) == 1
    assert found.version.startswith(f"{minor}.")
