"""What uv is asked for: a stand-in for it writes down its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.layers.wheel_files import install_wheels
from builder.layers.wheels import Group, Resolver, parse_pins, resolve
from builder.sif.errors import LayeringError


def test_nothing_is_downloaded_before_it_is_known_to_be_wanted(tmp_path: Path) -> None:
    uv = tmp_path / "uv_stand_in"
    uv.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\nexit 1\n')
    uv.chmod(0o755)
    resolver = Resolver(uv=str(uv), minor="3.11", platform="p", work=tmp_path, environment={})
    group = Group(title="packages", pins=parse_pins(f"six==1.16.0 --hash=sha256:{'a' * 64}"))

    def online() -> None:
        raise LayeringError("not wanted")

    with pytest.raises(LayeringError, match="not wanted"):
        install_wheels(group, tmp_path / "tree", resolver=resolver, minor="3.11", number="1", online=online)
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.endswith("--offline")


def test_a_resolve_as_of_last_time_asks_no_index_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uv = tmp_path / "uv_stand_in"
    uv.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\necho "no wheels" >&2\nexit 1\n')
    uv.chmod(0o755)
    (tmp_path / "requirements.txt").write_text("six\n")
    resolver = Resolver(uv=str(uv), minor="3.11", platform="p", work=tmp_path, environment={})
    assert resolve(tmp_path, resolver.make_cached_resolver(tmp_path / "last")) == ((), True)
    assert capsys.readouterr().out == ""
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert "--offline" in asked
