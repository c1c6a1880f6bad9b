"""recipe report: what is read, what is shown, what a hostile result can do to the page."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support import report_samples as samples
from support.codes import without_codes
from support.hostile import PAYLOADS
from support.rows import rows

from builder.cli.main import run
from builder.report.page import make_report_page
from builder.report.records import read_results

Call = Callable[..., tuple[int, str, str]]
SCRIPTS = (
    "<script>alert(1)</script>",
    "</title></style></svg><script src=http://x.example/a.js></script>",
    "\"><img src=x onerror='alert(1)'>",
    "' onload=alert(1) x='",
    "javascript:alert(1)",
    "<!-- ]]> -->",
    "&lt;b&gt;&#x3c;script&#x3e;",
    *filter(str.strip, PAYLOADS),
)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(argument) for argument in arguments])
        assert "Traceback" not in err.getvalue()
        return code, out.getvalue(), err.getvalue()

    return call


class Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes, without any text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_plan_folder_is_reported_on_the_terminal(recipe: Call, tmp_path: Path) -> None:
    samples.kit(tmp_path / "x.plan")
    code, out, err = recipe("report", "x.plan")
    assert (code, err) == (0, "")
    assert out.startswith("digits.lumi-g.apptainer: passed\n")
    for line in (
        r"  torch +2\.8\.0\+rocm6\.4",
        r"  torch built for +ROCm 6\.4\.1",
        r"  base image +/appl/local/containers/rocm-6\.4\.sif",
        r"build-image +ok +- +4 min 20 s",
        r"digits-nodes \(job 123\) +ok +1 min 00 s +3 min 00 s +smoke nodes n\[1-2\]",
        r"mnist +pass +43\.1 s +accuracy 0\.981, loss 2\.20 to 0\.190, 222 ms a step",
        r"nodes/allreduce ×8 +pass +21\.5 s +busbw 89\.2 GB/s at 128 MiB \(floor 85\.0\)",
        r"node/probe ×4 +3 +3 +n1 +AMD Instinct MI250X \(gfx90a\) +25-31 +618b859b4ae5",
        r"checks: 14 of 14 passed",
    ):
        assert re.search(f"^{line}", out, re.MULTILINE), line


def test_every_kind_of_path_leads_to_the_results(recipe: Call, tmp_path: Path) -> None:
    kit = samples.kit(tmp_path / "x.plan")
    (tmp_path / "x.sif").write_bytes(b"an image")
    (tmp_path / "folder").mkdir()
    samples.kit(tmp_path / "folder.plan")
    whole = read_results(kit)
    assert len(whole.workloads) == 11
    assert [shape.shape for shape in whole.shapes] == ["node", "nodes"]
    for path in (kit / "report.json", tmp_path / "x.sif", tmp_path / "folder"):
        assert read_results(path).workloads == whole.workloads, path
    assert {one.shape for one in read_results(kit / "results").workloads} == {"node", "nodes"}
    assert {one.shape for one in read_results(kit / "results" / "node").workloads} == {"node"}
    (alone,) = read_results(kit / "results" / "node" / "ddp.json").workloads
    assert (alone.shape, alone.name, alone.world) == ("node", "ddp", 4)
    samples.put(tmp_path / "elsewhere.json", samples.report())
    assert [one.name for one in read_results(tmp_path / "elsewhere.json").workloads] == ["mnist"]
    for path in (".", "x.plan", "x.sif"):
        if path != ".":
            assert recipe("report", path)[0] == 0


def test_a_plan_folder_that_was_run_by_hand_has_no_report(tmp_path: Path) -> None:
    samples.put(tmp_path / "plan.json", samples.plan())
    samples.put(tmp_path / "smoke-mnist.json", samples.result("mnist", **samples.training(world=1)))
    found = read_results(tmp_path)
    assert (found.status, [one.name for one in found.workloads]) == ("passed", ["mnist"])


def test_a_workload_that_left_nothing_is_in_the_verdict(tmp_path: Path) -> None:
    verdict = {"schema": 1, "verdict": "FAIL", "reason": "rank 3 was killed",
               "workloads": {"ddp": {"verdict": "FAIL", "error": "no result", "checks": []}}}  # fmt: skip
    samples.put(tmp_path / "nodes" / "verdict.json", verdict)
    found = read_results(tmp_path)
    assert found.status == "smoke-failed"
    assert [(one.title, one.verdict, one.error) for one in found.workloads] == [("nodes/ddp", "FAIL", "no result")]
    assert found.shapes[0].reason == "rank 3 was killed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON, or was cut: expecting value"),
        ('{"schema": 1, "target"', "is not JSON, or was cut"),
        ("[]", "is not a JSON object"),
        ('"text"', "is not a JSON object"),
        ("{}", "is neither a report of a build nor a result of a workload"),
        ('{"schema": 2, "target": "x", "steps": []}', "is neither a report of a build"),
        ("[" * 100_000, "is nested too deep"),
        ('{"schema": ' + "9" * 5000 + "}", "cannot be read"),
    ],
)
def test_damaged_and_foreign_files_are_explained(recipe: Call, tmp_path: Path, content: str, message: str) -> None:
    samples.put(tmp_path / "report.json", content)
    for path in ("report.json", "."):
        code, out, err = recipe("report", path)
        assert (code, out) == (2, "")
        assert message in err or (path == "." and "report of a build" in err)
        assert "report.json" in err
        assert "  fix: " in err


def test_bytes_that_are_no_text_are_explained(recipe: Call, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(b"\x80\x81")
    assert "is not UTF-8 text" in recipe("report", "report.json")[2]
    (tmp_path / "image.sif").write_bytes(b"\x80\x81")
    assert "'image.sif' is a text file, and not an image" in recipe("report", "image.sif")[2]
    (tmp_path / "image.sif").write_bytes(bytes(32) + b"SIF_MAGIC")
    assert "has no plan folder next to it ('image.plan')" in recipe("report", "image.sif")[2]


def test_all_faults_are_told_at_once(recipe: Call, tmp_path: Path) -> None:
    samples.put(tmp_path / "cut.json", "{")
    samples.put(tmp_path / "plan" / "plan.json", samples.plan())
    (tmp_path / "empty").mkdir()
    code, out, err = recipe("report", "cut.json", "missing", "plan", "empty")
    assert (code, out) == (2, "")
    for message in (
        "not JSON",
        "'missing' does not exist",
        "nothing has been measured in 'plan' yet",
        "holds no report",
    ):
        assert message in err


def test_one_damaged_result_is_reported_and_the_others_are_shown(recipe: Call, tmp_path: Path) -> None:
    kit = samples.kit(tmp_path / "x.plan")
    samples.put(kit / "results" / "nodes" / "ddp.json", "{")
    samples.put(kit / "results" / "nodes" / "notes.json", {"mine": 1})
    code, out, err = recipe("report", "x.plan")
    assert code == 0
    assert without_codes(err).startswith("warning: 'x.plan/results/nodes/ddp.json' is not JSON, or was cut")
    assert re.search(r"^nodes/allreduce ×8 +pass", out, re.MULTILINE)
    assert "notes" not in out


def test_two_reports_are_compared(recipe: Call, tmp_path: Path) -> None:
    samples.kit(tmp_path / "a")
    samples.kit(tmp_path / "b", peak=46.0, speed=2.0)
    other = samples.plan() | {"base": "/other.sif"}
    samples.put(tmp_path / "b" / "plan.json", other)
    code, out, err = recipe("report", "a", "b", "-o", "page.html")
    assert (code, err) == (0, "page: page.html\n")
    for line in (
        r"A  digits.lumi-g.apptainer +passed +a$",
        r"B  digits.lumi-g.apptainer +smoke test failed +b$",
        r" +A +B +B/A$",
        r"build +5 min 00 s +2 min 50 s +0\.567×$",
        r"mnist: training +40\.0 s +20\.0 s +0\.500×$",
        r"mnist: images a second +300 1/s +600 1/s +2\.00×$",
        r"nodes/allreduce ×8: busbw at 1 MiB +18\.4 GB/s +9\.20 GB/s +0\.500×$",
        r"base image +/appl/local/containers/rocm-6\.4\.sif +/other\.sif$",
        r"B  nodes/allreduce ×8 +busbw at 128 MiB +FAIL +44\.6 GB/s +>= 85 GB/s$",
    ):
        assert re.search(f"^{line}", out, re.MULTILINE), line
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "0.567×" in page
    assert "/other.sif" in page


def test_the_json_holds_everything(recipe: Call, tmp_path: Path) -> None:
    samples.kit(tmp_path / "a")
    samples.kit(tmp_path / "b", speed=2.0)
    code, out, _ = recipe("report", "a", "b", "--json")
    found = json.loads(out)
    assert (code, found["schema"]) == (0, 1)
    first = found["reports"][0]
    assert first["name"] == "digits.lumi-g.apptainer"
    assert {one["name"] for one in first["workloads"]} == {"mnist", "probe", "ddp", "pi", "allreduce", "startup"}
    (build,) = [row for row in found["comparison"] if row["name"] == "build"]
    assert build == {"name": "build", "unit": "s", "better": "less", "detail": False, "complete": [True, True],
                     "values": [300.0, 170.0],
                     "ratios": [pytest.approx(0.5667, abs=1e-4)]}  # fmt: skip
    assert json.loads(recipe("report", "a", "--json")[1])["comparison"] == []


def test_a_page_replaces_a_page_and_nothing_else(recipe: Call, tmp_path: Path) -> None:
    samples.kit(tmp_path / "a")
    assert recipe("report", "a", "-o", "page.html")[0] == 0
    assert recipe("report", "a", "-o", "page.html")[0] == 0
    before = (tmp_path / "a" / "report.json").read_bytes()
    code, _, err = recipe("report", "a", "-o", "a/report.json")
    assert (code, without_codes(err).splitlines()[0]) == (2, "error: 'a/report.json' exists and is not a report page")
    assert (tmp_path / "a" / "report.json").read_bytes() == before
    code, _, err = recipe("report", "a", "-o", "none/page.html")
    assert (code, without_codes(err).splitlines()[0]) == (
        2,
        "error: 'none/page.html' cannot be written: no such file or directory",
    )


def test_too_many_reports(recipe: Call) -> None:
    assert "9 reports are too many" in recipe("report", *"abcdefghi")[2]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    kit = samples.kit(tmp_path_factory.mktemp("kit") / "x.plan")
    return make_report_page([read_results(kit)], tool="recipe")


def test_the_page_is_one_file_without_scripts(page: str) -> None:
    found = Skeleton(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base", "a"} & set(found.tags)
    assert not [name for name in found.attributes if name.startswith("on") or name == "style"]
    assert found.addresses == []
    assert "http" not in re.sub(r'http-equiv="', "", page)
    assert "url(" not in page
    assert "@import" not in page
    policy = re.search(r'content="(default-src [^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")


def test_every_figure_has_a_name_and_a_table(page: str) -> None:
    names = re.findall(r"<figcaption><h3>([^<]+)</h3>", page)
    assert names == ["Training loss", "Accuracy", "Bandwidth over size", "Scaling over ranks", "Time by step",
                     "Time by workload"]  # fmt: skip
    assert page.count('role="img" aria-label="') == page.count("Show as a table") == len(names)
    assert page.count("<svg") == page.count("</svg>")
    assert "floor 85.0 GB/s at 128 MiB" in page


def test_the_page_is_the_same_every_time(page: str, tmp_path: Path) -> None:
    again = make_report_page([read_results(samples.kit(tmp_path / "x.plan"))], tool="recipe")
    assert again.replace(str(tmp_path), "") == re.sub(r"/\S*?/kit\d+", "", page) or len(again) == len(page)


def poisoned(value: Any, payload: str) -> Any:
    """The same data with every free text replaced; the words that the report goes by stay."""
    kept = {"pass", "passed", "ok", "smoke", "build", "nodes", "node"}
    if isinstance(value, dict):
        return {key: poisoned(item, payload) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, payload) for item in value]
    return payload if isinstance(value, str) and value not in kept else value


def poisoned_page(folder: Path, payload: str) -> Skeleton:
    """The page of two runs whose every free text is the same."""
    kit = samples.kit(folder / "x.plan")
    for path in kit.rglob("*.json"):
        path.write_text(json.dumps(poisoned(json.loads(path.read_text(encoding="utf-8")), payload)), encoding="utf-8")
    results = read_results(kit)
    return Skeleton(make_report_page([results, results], tool="recipe"))


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Skeleton:
    return poisoned_page(tmp_path_factory.mktemp("harmless"), "harmless words " * 3)


@pytest.mark.property
@pytest.mark.parametrize("payload", SCRIPTS)
def test_no_text_of_a_result_becomes_markup(tmp_path: Path, harmless: Skeleton, payload: str) -> None:
    hostile = poisoned_page(tmp_path, payload)
    assert hostile.tags == harmless.tags
    assert hostile.attributes == harmless.attributes
    assert any(payload[:20].strip() in text for text in hostile.text)


@rows("payload", SCRIPTS[:5])
def test_no_name_of_a_result_becomes_markup(tmp_path: Path, payload: str) -> None:
    results = tmp_path / "results" / payload.replace("/", "-")
    samples.put(results / "ddp.json", samples.result("ddp", seconds={payload: 3.0, "total": 4.0}))
    samples.put(results / "verdict.json", {"verdict": "FAIL", "workloads": {payload: {"verdict": "FAIL"}}})
    samples.put(
        results.parent.parent / "plan.json", samples.plan() | {"packages": [{"asked": payload, "became": payload}]}
    )
    found = Skeleton(make_report_page([read_results(tmp_path)], tool="recipe"))
    assert not {"script", "img"} & set(found.tags)
    assert not [name for name in found.attributes if name.startswith("on")]


def test_odd_numbers_make_a_page_all_the_same(tmp_path: Path) -> None:
    for odd in (0, -1, 1e308, 1e-308, math.nan, math.inf, 10**400, "x", None):
        sweep = [{"bytes": 1024, "busbw": odd, "seconds": odd, "algbw": odd}, {"bytes": odd, "busbw": 1.0}]
        training = {"losses": [odd, odd, 1.0], "steps": odd, "epochs_run": odd, "first_loss": odd, "last_loss": odd}
        one = samples.result("ddp", sweep=sweep, training=training, accuracy=odd, accuracies=[odd, 0.5, odd],
                             data={"train": odd}, seconds={"total": odd, "train": odd, "import": 1.0}, world=odd,
                             floors={"1KiB": odd}, ranks=[{"rank": 0, "samples": odd}])  # fmt: skip
        two = samples.result("mnist", training=training, seconds={"train": 2.0}, data={"train": 10})
        samples.put(tmp_path / "one" / "ddp.json", one)
        samples.put(tmp_path / "one" / "mnist.json", two)
        found = read_results(tmp_path)
        page = make_report_page([found, found], tool="recipe")
        assert "nan" not in page.lower().replace("nano", "")
        assert not re.search(r'="-?inf', page)
