"""The table of mistakes at a terminal: each message is whole, and the cure that it names works."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT, Seat
from mistakes import ACCEPTED, ELSEWHERE, MISTAKES, PLACED, REVIEWED, Mistake
from screen import broken, faults
from support.registry_stand_ins import certificate, serving


def furnish(seat: Seat, files: dict[str, str | bytes]) -> None:
    seat.write({**PLACED, **files})
    for name in files:
        if name.startswith("shut"):
            (seat.work / "shut").chmod(0)


def test_every_mistake_is_tested_once() -> None:
    names = [*(row.number for row in MISTAKES), *(row[0] for row in ACCEPTED), "109", "110"]  # the last are below
    here = {int(re.sub(r"\D.*", "", name)) for name in names}
    assert here.isdisjoint(ELSEWHERE)
    assert here | set(ELSEWHERE) == REVIEWED
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), place


def test_every_row_has_its_reason() -> None:
    numbers = [row.number for row in MISTAKES]
    assert len(set(numbers)) == len(numbers)
    for row in MISTAKES:
        assert row.cure is not None or row.why, row.number
        assert row.score == 3 or row.why, row.number
    assert sum(row.cure is not None for row in MISTAKES) > 80


@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: f"{row.number}: {row.line}")
def test_a_mistake(row: Mistake, seat: Seat) -> None:
    furnish(seat, dict(row.files))
    if row.programs:
        seat.install(row.programs)
    for line in row.before:
        assert seat.type_again(line).code == 0
    seat.write(row.edited)
    wide, shown = seat.type_again(row.line, columns=120, color=False), seat.type(row.line)
    text = shown.text
    assert (wide.code, faults(wide), broken(shown, wide)) == (row.code, [], [])
    assert (shown.code, faults(shown)) == (row.code, []), text
    assert re.search(rf"error(\[[\w-]+\])?: .*{row.what}", text, re.DOTALL), text
    assert re.search(row.where, text), text
    fix = re.search(rf"fix: .*?(?:{row.fix})", text, re.DOTALL)
    assert fix is not None, text
    if row.cure is None:
        return
    after = row.cure(seat.again, row, fix)
    assert (after.code in row.then, faults(after)) == (True, []), (after.words, after.code, after.text)
    assert after.code == 0 or not re.search(rf"error(\[[\w-]+\])?: .*{row.what}", after.text, re.DOTALL), after.text


@pytest.mark.parametrize(("number", "line", "code", "said", "files"), ACCEPTED)
def test_what_is_no_mistake(
    number: str, line: str, code: int, said: str, files: dict[str, str | bytes], seat: Seat
) -> None:
    furnish(seat, files)
    shown = seat.type(line)
    assert (shown.code, faults(shown)) == (code, []), (number, shown.text)
    assert re.search(said, shown.text, re.DOTALL), (number, shown.text)


def test_109_and_110_servers_unreachable_or_untrusted(seat: Seat) -> None:
    """An index behind a proxy that is not there; then the proxy is mended, and the certificate is named."""
    pair = certificate(seat.work.parent)
    with serving(tls=pair) as server:
        index = f"    - --index-url {server.url}/simple\n    - tiny==1.0\n"
        seat.write({"x.yml": f"name: x\ndependencies:\n  - python=3.12\n  - pip:\n{index}"})
        line = "recipe lock local x.yml"
        shown = seat.type(line)
        assert (shown.code, faults(shown)) == (5, [])
        assert re.search(r"error\S*: .*could not be reached.*fix: .*set https_proxy", shown.text, re.DOTALL), shown.text
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            del seat.env[name]
        shown = seat.type(line)
        assert (shown.code, faults(shown)) == (5, [])
        assert "could not be reached" not in shown.text
        assert re.search(r"certificate is not trusted here.*fix: .*SSL_CERT_FILE", shown.text, re.DOTALL), shown.text
        assert server.seen == []
        shown = seat.type(f"SSL_CERT_FILE={pair[0]} {line}")
        assert (shown.code, faults(shown)) == (3, [])  # the stand-in has no package
        assert "certificate" not in shown.text
        assert server.seen
