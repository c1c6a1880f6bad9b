"""What an error about another user's files offers is an option of the command that was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.variables import _check_folder
from builder.system import trust
from builder.system.trust import TrustSettings, link_error


@pytest.mark.parametrize("offered", [False, True])
def test_trust_is_offered_by_commands_that_have_it(monkeypatch: pytest.MonkeyPatch, offered: bool) -> None:
    monkeypatch.setattr(trust, "TRUST", TrustSettings(say=str if offered else None))
    (link,) = link_error(Path("x")).findings
    assert ("--trust" in trust.TRUST.fix) == ("--trust" in link.fix) == offered


def test_a_folder_below_a_closed_one_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "closed/cache").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    try:
        assert _check_folder(str(tmp_path / "closed/cache")).endswith(f"'{tmp_path}/closed' may not be entered")
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert _check_folder(str(tmp_path / "none")) == "there is no such folder"
