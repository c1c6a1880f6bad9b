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
    ("UV_DEFAULT_INDEX", "file:///nope", "the value 'file:///nope' of UV_DEFAULT_INDEX is not an address or a folder"),
    ("UV_HTTP_TIMEOUT", "0", "the value '0' of UV_HTTP_TIMEOUT is not a whole number from 1 on"),
    ("UV_CONCURRENT_DOWNLOADS", "0", "the value '0' of UV_CONCURRENT_DOWNLOADS is not a whole number from 1 on"),
    ("UV_SYSTEM_CERTS", "x", "the value 'x' of UV_SYSTEM_CERTS is not true or false"),
    ("SSL_CERT_FILE", "/nope.pem", "the value '/nope.pem' of SSL_CERT_FILE is not a file that exists"),
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
    for line in ("build -n local env.yml", "lock local env.yml", "fetch local env.yml"):
        assert run(line.split()) == 2, line
        printed = capsys.readouterr().err
        assert f"error[variable]: {said}" in printed, line
        assert "hun" not in printed
    assert run(["doctor", "--offline", "local"]) == 4
    printed = capsys.readouterr().out
    assert said in printed
    assert "hun" not in printed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RECIPE_REGISTRY", "u:hunter2@h"),
        ("RECIPE_TORCH_INDEX", "u:hunter2@h"),
        ("RECIPE_TORCH_INDEX", "https://u:hunter2@h"),
        ("APPTAINER_CONTAINALL", "x"),
        ("SINGULARITY_NO_MOUNT", "tmp"),
        ("APPTAINER_NV", "yes"),
        ("SINGULARITY_DISABLE_CACHE", "tRue"),
        ("APPTAINER_MEMORY", "1G"),
        ("APPTAINER_CONFIG_FILE", "/nope"),
        ("UV_KEYRING_PROVIDER", "silly"),
        ("UV_DEFAULT_INDEX", "silly/value"),
        ("UV_INDEX_URL", "silly/value"),
    ],
)
def test_a_variable_is_refused_and_no_login_printed(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Path("env.yml").write_text("name: x\ndependencies:\n  - pip: [six==1.16.0]\n")
    for line, code in (("build -n local env.yml", 2), ("doctor --offline local", 4)):
        assert run(line.split()) == code, line
        printed = "".join(capsys.readouterr())
        assert name in printed
        assert "hunter2" not in printed
