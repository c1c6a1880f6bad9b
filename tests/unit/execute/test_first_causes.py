"""Of a workload that an error has ended the error is shown, and not what follows from it."""

from __future__ import annotations

from builder.cli.smoke import check_lines
from builder.execute.judgement import describe_failed_checks, select_first_causes
from builder.model.report import SmokeCheck


def check(name: str, *, ok: bool = False) -> SmokeCheck:
    return SmokeCheck(name=name, ok=ok, measured="missing", expected="something")


def test_an_error_is_the_only_cause_of_its_workload() -> None:
    checks = (check("mnist: error"), check("mnist: accuracy"), check("mnist: seconds", ok=True), check("ddp: accuracy"))
    assert [item.name for item in select_first_causes(checks)] == ["mnist: error", "ddp: accuracy"]
    assert [line[:13] for line in check_lines(checks)] == ["FAIL  mnist: ", "FAIL  ddp: ac"]
    assert describe_failed_checks(checks).count("missing") == 2


def test_without_an_error_all_are_causes() -> None:
    checks = (check("mnist: accuracy"), check("mnist: losses"), check("node/ddp: error"), check("node/ddp: ranks"))
    assert [item.name for item in select_first_causes(checks)] == [
        "mnist: accuracy",
        "mnist: losses",
        "node/ddp: error",
    ]
