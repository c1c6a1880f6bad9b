"""An image or a folder gets wrappers: our calls against the options of LUMI's release, with a stand-in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import Done, Room, run
from stand_ins.tykky_options import wrap_parser_0_4_2
from test_tykky import SITE

pytestmark = pytest.mark.engines

STAND_IN = Path(__file__).parent / "stand_ins" / "wrap-stand-in"
ELSEWHERE = "/home/someone/laptop/env"


class Wrapper:
    """A room with a site like LUMI, and the two programs on PATH."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.site = room.site("stand-in-lumi", SITE.format(tmp=room.tmp, cache=room.folder / "cache"))
        programs = room.folder / "programs"
        programs.mkdir()
        for name in ("wrap-container", "wrap-install"):
            (programs / name).symlink_to(STAND_IN)
        self.path = f"{programs}:{os.environ['PATH']}"

    def convert(self, *words: str | Path, site: str = "") -> Done:
        return self.room.recipe("convert", site or self.site, *words, PATH=self.path)

    def called(self, name: str, program: str) -> dict[str, object]:
        """What the program was called with, as its own parser reads it."""
        words = json.loads((self.room.folder / name / "share" / "called.json").read_text())
        return {key: value for key, value in vars(wrap_parser_0_4_2(program).parse_args(words)).items() if value}


@pytest.fixture(scope="module")
def wrapper(rooms: Callable[[str], Room]) -> Wrapper:
    return Wrapper(rooms("wrapper"))


@pytest.fixture(scope="module")
def image(base_sif: Path, wrapper: Wrapper) -> Path:
    wrapper.convert(base_sif, "--wrap", "/usr/bin/python3", "--wrap", "/usr/bin/env", "-o", "image").expect(0)
    return wrapper.room.folder / "image"


@pytest.fixture(scope="module")
def folder(wrapper: Wrapper) -> Path:
    """A virtual environment that was made elsewhere, as far as its scripts say."""
    made = wrapper.room.folder / "env"
    run(["/usr/bin/python3", "-m", "venv", "--copies", "--without-pip", made]).expect(0)
    script = wrapper.room.write("env/bin/hello", f"#!{ELSEWHERE}/bin/python3\nimport sys; print(sys.prefix)\n")
    script.chmod(0o755)
    wrapper.convert("env", "--wrap", "bin").expect(0)
    return wrapper.room.folder / "env-tykky"


def test_the_call_of_wrap_container_is_one_of_release_0_4_2(wrapper: Wrapper, image: Path, base_sif: Path) -> None:
    assert wrapper.called(image.name, "wrap-container") == {
        "environ": "environ.sh",
        "wrapper_paths": "/usr/bin/python3,/usr/bin/env",
        "prefix": f"{base_sif.stem}-tykky.part",
        "container": str(base_sif.resolve()),
    }


def test_the_call_of_wrap_install_is_one_of_release_0_4_2(wrapper: Wrapper, folder: Path) -> None:
    assert wrapper.called(folder.name, "wrap-install") == {
        "environ": "environ.sh",
        "wrapper_paths": "bin",
        "post_install": "post-install.sh",
        "prefix": "env-tykky.part",
        "dir": str(wrapper.room.folder.resolve() / "env"),
    }


def test_each_wrapper_has_the_binds_of_the_site_and_of_the_user(wrapper: Wrapper, image: Path) -> None:
    site = wrapper.room.site("bound", f"extends: {wrapper.site}\nruntime:\n  optional_binds: [/usr/share, /nothere]\n")
    wrapper.convert(image / "container.sif", "--wrap", "/usr/bin/env", "-o", "bound", site=site).expect(0)
    environment = wrapper.room.environment(CW_EXTRA_BIND_MOUNTS="/mine")
    done = run([wrapper.room.folder / "bound" / "bin" / "env"], env=environment).expect(0)
    assert "STAND_IN_BINDS=/tmp,/usr/share,/mine\n" in done.out
    assert "PYTHONNOUSERSITE=1\n" in done.out


def test_a_folder_made_elsewhere_has_its_path_in_the_container(wrapper: Wrapper, folder: Path) -> None:
    copied = (folder / "_inst" / "bin" / "hello").read_text()
    assert copied.startswith(f"#!{wrapper.room.folder.resolve()}/env-tykky.plan/env-tykky.part/_inst/bin/python3\n")
    assert (wrapper.room.folder / "env" / "bin" / "hello").read_text().startswith(f"#!{ELSEWHERE}/bin/python3\n")
    assert run([folder / "bin" / "python3", "-c", "print(6 * 7)"]).expect(0).out == "42\n"


def test_what_is_wrapped_already_is_left(wrapper: Wrapper, folder: Path) -> None:
    before = folder.stat()
    assert "was made from this folder" in wrapper.convert("env", "--wrap", "bin").expect(0).err
    assert folder.stat() == before
    assert "has wrappers of tykky already" in wrapper.convert(folder, "--wrap", "bin").expect(2).err


def test_a_path_that_is_not_there_is_refused_first(wrapper: Wrapper, base_sif: Path) -> None:
    done = wrapper.convert(base_sif, "--wrap", "/opt/nothere", "-o", "none").expect(2)
    assert "there is no program at '/opt/nothere'" in done.err
    assert "--wrap /usr/bin" in done.err
    assert "there is nothing at 'nothere' in 'env'" in wrapper.convert("env", "--wrap", "nothere").expect(2).err
    assert not (wrapper.room.folder / "none.plan").exists()


def test_a_python_that_stayed_elsewhere_is_refused(wrapper: Wrapper) -> None:
    away = wrapper.room.folder / "away"
    (away / "bin").mkdir(parents=True)
    (away / "bin" / "python3").symlink_to("/opt/elsewhere/bin/python3")
    (away / "bin" / "tool").write_text("#!/bin/sh\n")
    (away / "bin" / "tool").chmod(0o755)
    done = wrapper.convert("away", "--wrap", "bin").expect(2)
    assert "'bin/python3' of 'away' is of '/opt/elsewhere/bin/python3', which is not here" in done.err
    assert "pip freeze" in done.err


def test_a_wrapper_that_was_not_made_ends_the_step(wrapper: Wrapper, base_sif: Path) -> None:
    """As tykky does of files without the right to be run: it warns, and ends with 0."""
    done = wrapper.convert(base_sif, "--wrap", "/etc/default", "-o", "silent").expect(5)
    assert "wrap-container reported no error, and made no wrapper of /etc/default" in done.err
    assert not (wrapper.room.folder / "silent").exists()


def test_a_site_without_tykky_names_one_that_has_it(wrapper: Wrapper) -> None:
    done = wrapper.convert("env", "--wrap", "bin", site="local").expect(3)
    assert "the site 'local' has no tykky" in done.err
    assert "lumi-c" in done.err
