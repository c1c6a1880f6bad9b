"""What the page links to, quotes and leaves out: logs, SBOM, commands, scaling, ratios."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from support import report_samples as samples
from support.rows import rows

from builder.cli.main import run
from builder.model.results import Rank, Results, WorkloadResult
from builder.report.comparison import compare_results
from builder.report.page import make_report_page
from builder.report.records import LINE_LIMIT, TAIL_LINES, read_results
from builder.report.tables import find_shared_cores, format_time

PROGRAM = "python3 -c 'import torch; print(torch.__version__)'"
TOKEN = "hf_" + "abcdefghijklmnopqrstuvwxyz" * 2


class Page(HTMLParser):
    """Links, preformatted texts, classes of the cells and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        self.quoted: list[str] = []
        self.spans: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "path", "rect", "line", "circle"):
            self._open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        self.text += data
        if tag == "a":
            self.links[data] = attributes["href"] or ""
        if tag == "pre":
            self.quoted.append(data)
        if tag == "span" and data.strip() and attributes.get("class"):
            self.spans.append((attributes["class"] or "", data.strip()))


def page_of(*paths: Path, folder: Path) -> Page:
    """The page of some results, as written into a folder."""
    return Page(make_report_page([read_results(path) for path in paths], tool="recipe", folder=folder))


def built(folder: Path) -> Path:
    """A plan folder of a build that passed, with its image, logs, SBOM and provenance."""
    plan = samples.kit(folder / "x.plan")
    report = samples.report()
    for step in report["steps"]:
        step["log"] = f"logs/{step['name']}.log"
        samples.put(plan / step["log"], "done\n")
    digest = hashlib.sha256(b"an image").hexdigest()
    image = {"image": "/elsewhere/x.sif", "image_bytes": 8, "image_sha256": digest, "identity": "of elsewhere"}
    samples.put(plan / "report.json", report | image)
    samples.put(plan / "README.md", "# x\n")
    samples.put(plan / "run" / "one.sh", "")
    samples.put(folder / "x.sif", "an image")
    components = [
        {"type": "library", "name": "bash", "version": "5.2", "purl": "pkg:deb/debian/bash@5.2"},
        {"type": "library", "name": "torch", "version": "2.8.0", "purl": "pkg:pypi/torch@2.8.0"},
    ]
    samples.put(folder / "x.sif.cdx.json", {"components": components})
    samples.put(folder / "x.sif.provenance.json", {})
    return plan


def failed(folder: Path, content: str, **step: Any) -> Path:
    """A plan folder of a build whose first step failed."""
    report = samples.report(status="failed")
    finding = {"message": "step 'build-image' failed: no space", "fix": "choose another disk with --tmpdir"}
    entry = {"name": "build-image", "status": "failed", "seconds": 0.15, "exit_code": 1, "log": "logs/build-image.log"}
    report.update(steps=[{**entry, "finding": finding, **step}], checks=[], smoke={}, image="", image_bytes=None)
    report["findings"] = [finding]
    samples.put(folder / "x.plan" / "report.json", report)
    samples.put(folder / "x.plan" / "plan.json", samples.plan())
    samples.put(folder / "x.plan" / "logs" / "build-image.log", content)
    return folder / "x.plan"


def test_a_passed_build_links_to_its_files(tmp_path: Path) -> None:
    plan, pages = built(tmp_path), tmp_path / "a b%" / "pages"
    pages.mkdir(parents=True)
    for folder in (tmp_path, pages, plan):
        page = page_of(plan, folder=folder)
        assert set(page.links) == {
            "SBOM", "provenance", "plan", "commands without recipe", "report as JSON", "log of build-image",
            "log of convert", "log of smoke",
        }  # fmt: skip
        for href in page.links.values():
            assert not href.startswith("/")
            assert (folder / unquote(href)).resolve().is_file(), href
    assert page_of(plan, folder=tmp_path).links["SBOM"] == "x.sif.cdx.json"


def test_the_page_has_the_commands_that_run_the_image(tmp_path: Path) -> None:
    (commands,) = page_of(built(tmp_path), folder=tmp_path).quoted
    assert commands.splitlines() == [
        f"recipe run lumi-g x.sif -- {PROGRAM}",
        f"bash x.plan/run/one.sh {PROGRAM}",
    ]
    (tmp_path / "x.sif").unlink()
    assert page_of(tmp_path / "x.plan", folder=tmp_path).quoted == []


def test_a_missing_file_is_not_linked(tmp_path: Path) -> None:
    plan = built(tmp_path)
    for path in (tmp_path / "x.sif.cdx.json", plan / "README.md", plan / "logs" / "smoke.log"):
        path.unlink()
    (plan / "logs" / "convert.log").unlink()
    (plan / "logs" / "convert.log").symlink_to("/etc/passwd")
    page = page_of(plan, folder=tmp_path)
    assert set(page.links) == {"provenance", "plan", "report as JSON", "log of build-image"}
    assert "Packages in the image" not in page.text


def test_the_page_lists_the_packages_of_the_sbom(tmp_path: Path) -> None:
    page = page_of(built(tmp_path), folder=tmp_path)
    assert "All 2 packages in the image" in page.text
    assert re.search(r"torch2\.8\.0pypi\s+bash5\.2deb", page.text)


def test_a_failed_build_shows_its_fix_and_log(tmp_path: Path) -> None:
    log = "".join(f"line {number}\n" for number in range(100)) + "<script>alert(1)</script>\n\x1b[31mno space\x1b[0m\n"
    plan = failed(tmp_path, log)
    markup = make_report_page([read_results(plan)], tool="recipe", folder=tmp_path)
    page = Page(markup)
    (quoted,) = page.quoted
    assert quoted.splitlines()[-2:] == ["<script>alert(1)</script>", "no space"]
    assert len(quoted.splitlines()) == TAIL_LINES
    assert "<script" not in markup
    assert "choose another disk with --tmpdir" in page.text
    assert page.links["log"] == page.links["log of build-image"] == "x.plan/logs/build-image.log"
    assert page.text.count("no space") == 3  # the finding, the table of steps, the log: not once more as a note


def test_a_log_is_masked_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "quiet-as-a-mouse")
    log = f"x quiet-as-a-mouse\nhttps://me:password@example.org/simple {TOKEN}\n" + "y" * 5000 + "\n"
    long = "secret quiet-as-" + "z" * 200_000 + "\n" + log
    for content in (log, long):
        (quoted,) = page_of(failed(tmp_path, content), folder=tmp_path).quoted
        for secret in ("quiet-as", "password", TOKEN):
            assert secret not in quoted
        assert max(map(len, quoted.splitlines())) <= LINE_LIMIT + 4


@rows("log", ["../secret", "/etc/passwd", "logs/../../secret", "logs/link", "folder/secret", "pipe"])
def test_a_log_elsewhere_is_not_read(tmp_path: Path, log: str) -> None:
    (tmp_path / "secret").write_text("mine\n")
    plan = failed(tmp_path, "", log=log)
    (plan / "logs" / "link").symlink_to(tmp_path / "secret")
    (plan / "folder").symlink_to(tmp_path)
    os.mkfifo(plan / "pipe")
    page = page_of(plan, folder=tmp_path)
    assert page.quoted == []
    assert "log" not in page.links


def test_an_image_whose_build_failed_has_a_report(tmp_path: Path) -> None:
    failed(tmp_path, "no space\n")
    assert read_results(tmp_path / "x.sif").status == "failed"


@pytest.mark.parametrize(("status", "word"), [("interrupted", "was interrupted"), ("failed", "failed")])
def test_an_earlier_image_is_named_with_the_failed_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str, word: str
) -> None:
    plan = failed(tmp_path, "no space\n", status=status)
    report = json.loads((plan / "report.json").read_text())
    samples.put(plan / "report.json", report | {"status": status})
    assert read_results(plan).earlier_image == ""  # there is no image
    samples.put(tmp_path / "x.sif", "an image")
    os.utime(tmp_path / "x.sif", (1_700_000_000, 1_700_000_000))
    said = f"the last build {word} at build-image; the image is from the build of"
    assert run(["report", str(tmp_path / "x.sif")]) == 0
    assert f": {said} 2023-11-14 22:13 UTC" in capsys.readouterr().out
    assert f"{said} 2023-11-14 22:13 UTC" in page_of(plan, folder=tmp_path).text
    metadata = {"startedOn": "2026-11-22T08:00:00Z"}
    samples.put(tmp_path / "x.sif.provenance.json", {"predicate": {"runDetails": {"metadata": metadata}}})
    assert run(["report", str(plan)]) == 0
    assert f"{said} 2026-11-22 08:00 UTC" in capsys.readouterr().out
    samples.put(plan / "report.json", report | {"status": status, "image": str(tmp_path / "x.sif")})
    assert read_results(plan).earlier_image == ""  # this build has made it


def test_a_report_says_what_became_of_the_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, image = built(tmp_path), tmp_path / "x.sif"
    samples.put(plan / "report.json", json.loads((plan / "report.json").read_text()) | {"image": str(image)})
    shutil.copytree(plan, tmp_path / "away")
    assert read_results(image).image_now == ""  # a copy that was put back
    image.write_bytes(image.read_bytes()[::-1])
    assert read_results(image).image_now == "is not the one of this report: its SHA-256 is another"
    image.write_bytes(b"\n")
    said = "is not the one of this report: it has 1 bytes now, and had 8"
    assert read_results(plan).image_now == said
    image.unlink()
    assert run(["report", str(image)]) == 0
    out, err = capsys.readouterr()
    assert "passed; the image is missing now" in out
    assert f"the image '{image}' is missing now" in err
    page = page_of(plan, folder=tmp_path)
    assert "the image is missing now" in page.text
    assert "recipe run" not in page.text
    assert read_results(tmp_path / "away").image_now == ""


def test_an_image_of_another_folder_is_not_taken(tmp_path: Path) -> None:
    plan = built(tmp_path)
    samples.put(tmp_path / "away" / "y.sif", "an image")
    samples.put(tmp_path / "away" / "y.sif.cdx.json", {"components": []})
    samples.put(plan / "report.json", samples.report() | {"image": str(tmp_path / "away" / "y.sif")})
    assert read_results(plan).image_path == str(tmp_path / "x.sif")


def test_verdicts_are_marked(tmp_path: Path) -> None:
    good, bad = page_of(built(tmp_path), folder=tmp_path), page_of(failed(tmp_path / "f", ""), folder=tmp_path)
    assert ("good", "pass") in good.spans
    assert ("good", "ok") in good.spans
    assert {kind for kind, word in good.spans if word in ("pass", "ok", "exit status 0")} == {"good"}
    assert ("bad", "failed") in bad.spans


def workload(*ranks: tuple[str, str, str], device: str = "cpu") -> WorkloadResult:
    """A training over ranks: host, cores and device of each."""
    found = tuple(
        Rank(rank=number, host=host, affinity=cores, device=own) for number, (host, cores, own) in enumerate(ranks)
    )
    return WorkloadResult(name="ddp", world=len(ranks), device=device, ranks=found)


@rows(
    ("ranks", "device", "node"),
    [
        ([("n1", "0-1", "cpu"), ("n1", "0-1", "cpu")], "cpu", "n1"),
        ([("n1", "0-3", "cpu"), ("n1", "2,9", "cpu")], "cpu", "n1"),
        ([("n1", "0-3", "cpu"), ("n1", "4-7", "cpu")], "cpu", ""),
        ([("n1", "0-3", "cpu"), ("n2", "0-3", "cpu")], "cpu", ""),
        ([("n1", "", "cpu"), ("n1", "", "cpu")], "cpu", ""),
        ([("n1", "0-3", "A100"), ("n1", "0-3", "A100")], "A100", ""),
        ([("n1", "x-y,9" * 20, "cpu"), ("n1", "99999999999-1", "cpu")], "cpu", ""),
    ],
)
def test_shared_cores_are_found(ranks: list[tuple[str, str, str]], device: str, node: str) -> None:
    assert find_shared_cores(workload(*ranks, device=device)) == node


def test_ranks_on_the_same_cores_have_no_scaling(tmp_path: Path) -> None:
    plan = samples.kit(tmp_path / "x.plan")
    assert "Scaling over ranks" in page_of(plan, folder=tmp_path).text
    for path in (plan / "results").rglob("ddp.json"):
        content = json.loads(path.read_text())
        content["device"] = {"type": "cpu", "name": "cpu"}
        for rank in content["ranks"]:
            rank.update(affinity=[0, 1], device={"name": "cpu"})
        samples.put(path, content)
    text = page_of(plan, folder=tmp_path).text
    assert "Scaling over ranks" not in text
    assert "No scaling over ranks: the ranks of node/ddp ×4, nodes/ddp ×8 shared the same CPU cores of n1." in text


def test_a_failed_build_has_no_ratio(tmp_path: Path) -> None:
    good, bad = read_results(built(tmp_path)), read_results(failed(tmp_path / "f", ""))
    assert build_ratios(good, bad) == (None,)
    assert build_ratios(bad, good) == (None,)
    assert build_ratios(good, bad, good) == (None, 1.0)


def test_an_unfinished_workload_has_no_ratio(tmp_path: Path) -> None:
    plan = samples.kit(tmp_path / "x.plan")
    first = read_results(plan)
    path = plan / "results" / "nodes" / "ddp.json"
    samples.put(path, json.loads(path.read_text()) | {"error": "rank 3 was killed"})
    rows = {row.name: row.ratios for row in compare_results([first, read_results(plan)])}
    assert rows["nodes/ddp ×8: training"] == (None,)
    assert rows["node/ddp ×4: training"] == (1.0,)


def build_ratios(*reports: Results) -> tuple[float | None, ...]:
    """The ratios of the build's time."""
    return next(row.ratios for row in compare_results(reports) if row.name == "build")


def test_times_are_in_utc_and_local(monkeypatch: pytest.MonkeyPatch) -> None:
    for zone, written in (("UTC", "2026-11-23 02:36 UTC"), ("EST5", "2026-11-23 02:36 UTC (2026-11-22 21:36 EST)")):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert format_time("2026-11-23T02:36:39Z") == written
    monkeypatch.undo()
    time.tzset()
    assert format_time("yesterday") == "yesterday"
