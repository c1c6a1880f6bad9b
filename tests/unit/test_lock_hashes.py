"""A lock takes the file whose digest the recipe gives, and no other."""

from __future__ import annotations

import pytest

from builder.lock.pip import Interpreter, _choose_file
from builder.model.finding import Location, UnsupportedError

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64
HERE = Interpreter(python="3.11", arch="x86_64", glibc="2.36")
PACKAGE = {
    "name": "six",
    "version": "1.16.0",
    "wheels": [{"url": "https://h.example/six-1.16.0-py2.py3-none-any.whl", "hashes": {"sha256": ONE}}],
    "sdist": {"url": "https://h.example/six-1.16.0.tar.gz", "hashes": {"sha256": TWO}},
}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ((), "wheel"),
        ((f"sha256:{ONE}",), "wheel"),
        ((f"sha256:{TWO}",), "sdist"),
        ((f"sha256:{TWO}", f"sha256:{ONE}"), "wheel"),
    ],
)
def test_the_file_with_the_given_digest_is_locked(given: tuple[str, ...], kind: str) -> None:
    found = _choose_file(PACKAGE, given=given, target=HERE, at=Location(file="h.txt"))
    assert found.kind == kind
    assert not given or f"sha256:{found.sha256}" in given


@pytest.mark.parametrize(
    ("given", "fix"), [(f"sha256:{THREE}", "published"), (f"sha512:{THREE}{THREE}", "the sha256 of")]
)
def test_another_digest_is_not_locked(given: str, fix: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        _choose_file(PACKAGE, given=(given,), target=HERE, at=Location(file="h.txt"))
    (finding,) = caught.value.findings
    assert finding.code == "hash"
    assert "'six 1.16.0'" in finding.message
    assert f"{given} given, sha256:{ONE}, sha256:{TWO} found" in finding.message
    assert fix in finding.fix
