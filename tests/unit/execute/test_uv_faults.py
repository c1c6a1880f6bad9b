"""The variables that builds hand to uv and to container engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.execute.uv_values import find_uv_faults
from builder.layers.certificates import find_store

WRONG = {
    "UV_EXCLUDE_NEWER": (
        "tomorrow",
        "2026-13-01",
        "2026",
        "2026-02-31",
        "5 parsecs",
        "P",
        "2026-01-01T99:99",
        "1 month",
        "3 days 4",
        " ",
    ),
    "UV_INSECURE_HOST": ("[::1", "host:", "https://", "user@host"),
    "PIP_TRUSTED_HOST": ("a b:c",),
    "PIP_INDEX_URL": ("https://a.example/simple https://b.example/simple",),
    "APPTAINERENV_PATH": ("/x",),
    "SINGULARITYENV_PATH": ("/x",),
}
RIGHT = {
    "UV_EXCLUDE_NEWER": (
        "2026-01-31",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.5+01:00",
        "30 days",
        "P30D",
        "1w",
        "PT3H",
        "1h30m",
        "3 days, 4 hours",
        "3 days ago",
        "02:30:00",
        "1.5 hours",
        "1 min",
        "2 mins",
    ),
    "UV_INSECURE_HOST": ("[::1]:8080", "host", "host:80", "https://host", "127.0.0.1:3141", "*", "a_b.example"),
    "PIP_TRUSTED_HOST": ("a b:1",),
    "PIP_INDEX_URL": ("https://a.example/simple",),
    "UV_INDEX": ("https://a.example/simple https://b.example/simple",),
    "APPTAINERENV_PREPEND_PATH": ("/x",),
}


def list_cases(values: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, value) for name, texts in values.items() for value in texts]


@pytest.mark.parametrize(("name", "value"), list_cases(WRONG))
def test_a_wrong_value_is_a_finding_with_its_variable(name: str, value: str) -> None:
    (finding,) = find_uv_faults({name: value})
    assert finding.code == "variable"
    assert name in finding.message
    assert finding.fix.endswith(f", or unset {name}")


@pytest.mark.parametrize(("name", "value"), list_cases(RIGHT))
def test_a_right_value_is_accepted(name: str, value: str) -> None:
    assert list(find_uv_faults({name: value})) == []


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"])
def test_certificates_are_a_file_or_a_folder_that_has_some(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.pem").write_text("nothing\n")
    (tmp_path / "short.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n")
    (tmp_path / "none.pem").touch()
    for wrong in ("empty", "text.pem", "short.pem", "key.pem", "none.pem", "missing"):
        (finding,) = find_uv_faults({name: str(tmp_path / wrong)})
        assert finding.message.startswith(f"the value '{tmp_path / wrong}' of {name} is "), wrong
    store = find_store()
    if store:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "own.pem").write_bytes(Path(store).read_bytes())
        for right in (store, str(tmp_path / "folder")):
            assert list(find_uv_faults({name: right})) == []
