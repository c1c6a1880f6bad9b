"""A dry run refuses the values that stop uv in the middle of a build; it names the variable and shows no login."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.main import run

ROWS = [
    ("UV_HTTP_TIMEOUT", "abc", "the value 'abc' of UV_HTTP_TIMEOUT is not a whole number"),
    ("PIP_DEFAULT_TIMEOUT", "1s", "the value '1s' of PIP_DEFAULT_TIMEOUT is not a whole number"),
    ("UV_INDEX_STRATEGY", "zz", "the value 'zz' of UV_INDEX_STRATEGY is not a value that uv knows"),
    ("UV_PRERELEASE", "yes", "the value 'yes' of UV_PRERELEASE is not a value that uv knows"),
    ("PIP_FIND_LINKS", "/nope", "the value '/nope' of PIP_FIND_LINKS is not a folder that exists"),
    ("UV_CACHE_DIR", "/proc/u", "the value '/proc/u' of UV_CACHE_DIR is not a folder that you may write to"),
    ("UV_INDEX_URL", "ftp://x", "the value 'ftp://x' of UV_INDEX_URL is not an address or a folder that can be used"),
    ("UV_DEFAULT_INDEX", "nope", "the value 'nope' of UV_DEFAULT_INDEX is not an address or a folder"),
    ("PIP_INDEX_URL", "https://bob:hun/ter2@x/simple", "the value '***' of PIP_INDEX_URL is not an address"),
]


@pytest.mark.parametrize(("name", "value", "said"), ROWS, ids=[f"{row[0]}={row[1]}" for row in ROWS])
def test_a_value_that_uv_cannot_use_is_refused(
    name: str,
    value: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for other in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_FIND_LINKS", "UV_HTTP_TIMEOUT"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Path("env.yml").write_text("name: x\ndependencies:\n  - pip: [six==1.16.0]\n")
    assert run(["build", "-n", "local", "env.yml"]) == 2
    printed = capsys.readouterr().err
    assert f"error[variable]: {said}" in printed
    assert "hun" not in printed
