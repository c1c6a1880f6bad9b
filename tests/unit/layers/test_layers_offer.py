"""What a container that is built is answered, and what it can see meanwhile: no login, and nothing once it is over."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.layers import wheel_server as module
from builder.layers.wheel_server import WheelServer

SETTINGS = "export UV_INDEX=https://me:S3CRET@index.example/simple/\n"
ASKED = {"minor": "3.12", "machine": "x86_64", "glibc": "2.36", "provided": {"six": "1.16.0"}}


@pytest.fixture(autouse=True)
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a container sees, without uv."""
    folder = tmp_path / "given"
    folder.mkdir()
    (tmp_path / "given.private").mkdir(0o700)
    (tmp_path / "given.private" / "settings").write_text(SETTINGS)
    for name in ("ask", "answer"):
        os.mkfifo(folder / name)
    monkeypatch.setattr(module, "find_uv", lambda: None)
    return folder


@pytest.fixture
def own(given: Path) -> Iterator[WheelServer]:
    made = WheelServer(given.parent, given=given, cache=given.parent, environment={})
    yield made
    made.close()
    assert sorted(path.name for path in given.iterdir()) == ["answer", "ask"]


def test_security_04_what_is_shown_while_something_is_built_holds_no_login(own: WheelServer, given: Path) -> None:
    assert own.answer("show\n") == "ask"
    text = (given / "settings").read_text()
    assert "export UV_INDEX='http://127.0.0.1:" in text or "export UV_INDEX=http://127.0.0.1:" in text
    assert "S3CRET" not in text
    assert "me:" not in text


def test_security_04_once_it_is_over_nothing_is_shown_any_more(own: WheelServer, given: Path) -> None:
    assert own.answer("show\n") == "ask"
    assert own.answer("over\n") == "over"
    assert not (given / "settings").exists()
    assert own.proxy is None
    for line in ("show\n", json.dumps(ASKED) + "\n", "\n", "over\n"):
        assert own.answer(line) == "over"
        assert not (given / "settings").exists()


def test_security_04_a_step_that_installs_nothing_is_shown_nothing(given: Path) -> None:
    made = WheelServer(given.parent, given=given, cache=given.parent, environment={}, closed=True)
    for line in ("show\n", json.dumps(ASKED) + "\n"):
        assert made.answer(line) == "over"
        assert not (given / "settings").exists()
    made.close()


@pytest.mark.property
@pytest.mark.parametrize(
    "change",
    [
        {"minor": "3.12 --index-url https://evil.example"}, {"minor": "3"}, {"minor": "../3.12"}, {"minor": ["3.12"]},
        {"glibc": "2.36; id"}, {"glibc": "-1"}, {"glibc": None}, {"provided": []}, {"provided": "six"},
        {"machine": "x86_64 --python /evil"}, {"machine": "../x"}, {"machine": None},
    ],
)  # fmt: skip
def test_security_04_what_a_container_asks_with_is_held_against_patterns(
    own: WheelServer, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    """uv runs on this machine: no word of a container reaches it but versions, names and an architecture."""
    monkeypatch.setattr(module, "find_uv", lambda: "uv")
    monkeypatch.setattr(module, "resolve", lambda _folder, resolver: pytest.fail(f"uv is asked: {resolver}"))
    assert own.answer(json.dumps({**ASKED, **change}) + "\n") == "ask"


def test_security_04_names_of_what_is_there_are_names(own: WheelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def resolved(_folder: object, resolver: module.Resolver) -> tuple[list[object], bool]:
        seen.append(dict(resolver.provided))
        return [], False

    monkeypatch.setattr(module, "find_uv", lambda: "uv")
    monkeypatch.setattr(module, "resolve", resolved)
    odd = {
        "six": "1.16.0",
        "-r /etc/passwd": "1",
        "a\n-r x": "1",
        "b": "1\n--pre",
        "c": "1 ; id",
        "d": None,
        "e f": "1",
    }
    assert own.answer(json.dumps({**ASKED, "provided": odd}) + "\n") == "whole"
    assert [sorted(one) for one in seen] == [["d", "six"]]
    assert seen[0]["d"] == "None"


@pytest.mark.property
@pytest.mark.parametrize("line", ["{\n", "[]\n", "null\n", "[" * 100_000 + "\n", '{"minor": 1}\n', "\n"])
def test_security_04_an_odd_question_is_one_that_cannot_be_answered(own: WheelServer, line: str) -> None:
    assert own.answer(line) == "ask"
