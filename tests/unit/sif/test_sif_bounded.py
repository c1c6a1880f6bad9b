"""JSON of strangers: what Python reads and nothing else can take is refused in words."""

from __future__ import annotations

import pytest
from support.rows import rows

from builder.sif import bounded
from builder.sif.bounded import BoundsError, parse_json

DEEP = bounded.DEPTH


@rows(
    ("text", "says"),
    [
        ("9" * 41, "more digits"), (f'{{"a": [-{"9" * 41}]}}', "more digits"), ("1e999", "not finite"),
        ("[-1e999]", "not finite"), ("NaN", "NaN"), ("[Infinity]", "Infinity"), ("[-Infinity]", "Infinity"),
        ('"\\ud800"', "half a character"), ('{"\\udfff": 1}', "half a character"),
        ("[" * (DEEP + 1) + "]" * (DEEP + 1), "nested too deep"), ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"a":' * (DEEP + 1) + "1" + "}" * (DEEP + 1), "nested too deep"),
        ("[" + "0," * bounded.VALUES + "0]", "values"), ('"' + "a" * bounded.LIMIT + '"', "larger than 16 MiB"),
    ],
    ids=range(14),
)  # fmt: skip
def test_security_18_json_that_nothing_else_can_take(text: str, says: str) -> None:
    with pytest.raises(BoundsError, match=says):
        parse_json(text)


@rows("text", [b"\xff", b"\x00", b"{", b"", b'{"a": 1,}', b"\xef\xbb\xbf{}", b"01", b"'a'"])
def test_security_18_what_is_no_json(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_what_is_within_the_bounds_is_read() -> None:
    found = parse_json("[" * DEEP + "]" * DEEP)
    for _ in range(DEEP - 1):
        (found,) = found
    assert found == []
    assert parse_json('["\\ud83d\\ude00", 9999999999999999999999999999999999999999, 1e308]')[0] == "\U0001f600"
    assert str(parse_json("[NaN]", finite=False)) == "[nan]"
