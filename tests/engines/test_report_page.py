"""The page of `recipe report` in a real browser: of a real build, and of results that would like to be scripts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import browser, look
from playwright.sync_api import Browser
from recipe_program import Built, Room
from support import report_samples as samples

pytestmark = pytest.mark.engines
FAILS = """
    name: fails
    dependencies:
      - pip: [six==1.16.0]
    container: {run: [no-such-program]}
"""

SCREENS = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]
# Contrast of every text with what is behind it, by the formula of WCAG 2; SVG text has `fill` for its colour.
CONTRAST = """() => {
  const parse = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  let worst = 21;
  for (const node of document.querySelectorAll("body *")) {
    if (node.matches("title, desc")) continue;
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())) continue;
    const style = getComputedStyle(node);
    const text = light(parse(node instanceof SVGElement ? style.fill : style.color)), back = light(behind(node));
    worst = Math.min(worst, (Math.max(text, back) + .05) / (Math.min(text, back) + .05));
  }
  return worst;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(digits: Built, rooms: Callable[[str], Room]) -> dict[str, Path]:
    """A page of a real build, one that compares it with a copy, one of hostile results, one of a failed build."""
    room = rooms("pages")
    again = room.folder / "again"
    shutil.copytree(digits.plan, again, symlinks=True)
    found = {name: room.folder / f"{name}.html" for name in ("one", "two", "hostile")}
    room.recipe("report", digits.image, "-o", found["one"]).expect(0)
    room.recipe("report", digits.plan, again, "-o", found["two"]).expect(0)
    kit = samples.kit(room.folder / "kit")
    for path in kit.rglob("*.json"):
        payload = "</style></svg></title><script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
        text = path.read_text(encoding="utf-8").replace('"n1"', json.dumps(payload)).replace('"finished"', '"ended"')
        path.write_text(text.replace("AMD Instinct", payload.replace('"', "")), encoding="utf-8")
    room.recipe("report", kit, kit, "-o", found["hostile"]).expect(0)
    room.write("fails.yml", FAILS)
    arguments = ("--base", os.environ["RECIPE_TEST_BASE_SIF"], "--no-smoke")
    room.recipe("build", "local", "fails.yml", *arguments, "-o", room.folder / "fails.sif").expect(5)
    found["failed"] = room.folder / "fails.html"
    room.recipe("report", room.folder / "fails.sif", "-o", found["failed"]).expect(0)
    return found


@pytest.mark.parametrize("name", ["one", "two", "hostile", "failed"])
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_a_page_is_quiet_and_fits(
    chromium: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    seen = look(chromium, pages[name], width=width, scheme=scheme)
    seen.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    kept = os.environ.get("RECIPE_TEST_PICTURES")
    if kept:
        seen.page.screenshot(full_page=True, path=Path(kept) / f"{name}-{width}-{scheme}.png")
    assert seen.said == []
    assert seen.asked == [pages[name].as_uri()]
    assert seen.overflow() == 0
    assert seen.page.evaluate(CONTRAST) >= 4.5
    assert seen.page.locator("script, img").count() == 0
    seen.page.context.close()


def test_a_real_build_has_its_figures(chromium: Browser, pages: dict[str, Path]) -> None:
    page = look(chromium, pages["one"], width=1280, scheme="light").page
    assert page.title() == "digits.local.layers – recipe report"
    assert page.locator("header .badge").inner_text() == "✓ passed"
    names = page.locator("figcaption h3").all_inner_texts()
    assert names == ["Training loss", "Accuracy", "Time by step", "Time by workload"]
    assert "shared the same CPU cores" in page.locator("main").inner_text()
    rows = page.locator("figure", has_text="Time by workload").locator("tbody tr").all()
    cells = [row.locator("td").all_text_contents() for row in rows]
    assert {"import torch", "data", "training"} <= {part for title, part, *_ in cells if title == "ddp ×2"}
    for figure in page.locator("figure > svg").all():
        box = figure.bounding_box()
        assert box is not None
        assert box["width"] > 300
        # Nothing of a drawing is outside it.
        inner = figure.evaluate(
            "svg => [...svg.querySelectorAll('text')].every(t => { const b = t.getBBox(), v = svg.viewBox.baseVal;"
            " return b.x >= -1 && b.x + b.width <= v.width + 1 && b.y >= -1 && b.y + b.height <= v.height + 1 })"
        )
        assert inner, figure.get_attribute("aria-label")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("one", {"SBOM", "provenance", "plan", "log of build-image", "log of smoke"}), ("failed", {"log", "plan"})],
)
def test_every_link_of_a_page_opens(chromium: Browser, pages: dict[str, Path], name: str, wanted: set[str]) -> None:
    page = look(chromium, pages[name], width=1280, scheme="light").page
    links = page.locator("a").all()
    assert wanted <= {link.inner_text() for link in links}
    for link in links:
        address = str(link.evaluate("one => one.href"))
        assert address.startswith("file:///"), address
        assert Path(unquote(urlsplit(address).path)).is_file(), address


def test_the_end_of_a_failed_builds_log_is_in_sight(chromium: Browser, pages: dict[str, Path]) -> None:
    page = look(chromium, pages["failed"], width=1280, scheme="light").page
    assert page.locator("header .badge").inner_text() == "✗ build failed"
    quoted = page.locator(".alert pre")
    assert "no-such-program: not found" in quoted.inner_text()
    assert quoted.evaluate("one => one.scrollHeight - one.clientHeight") == 0  # nothing of it is scrolled away
    assert "fix:" in page.locator(".alert").inner_text()


def test_the_tables_of_a_page_are_aligned(chromium: Browser, pages: dict[str, Path]) -> None:
    page = look(chromium, pages["one"], width=1280, scheme="light").page
    places = (
        "tables => tables.map(one => [one, one.rows[0].cells[1]].map(n => Math.round(n.getBoundingClientRect().x)))"
    )
    found = page.locator("section > .card > table").evaluate_all(places)
    assert len(found) >= 5
    assert len({tuple(place) for place in found}) == 1, found
    color = "one => getComputedStyle(one).color"
    assert {one.evaluate(color) for one in page.locator("td .good").all()} == {"rgb(26, 115, 64)"}


def test_a_comparison_has_ratios(chromium: Browser, pages: dict[str, Path]) -> None:
    page = look(chromium, pages["two"], width=1280, scheme="light").page
    text = page.locator("main").inner_text()
    assert "ddp ×2: training" in text
    assert "×" in text.partition("ddp ×2: training")[2].splitlines()[0]


def test_the_policy_stops_what_is_no_style_of_ours(chromium: Browser, pages: dict[str, Path]) -> None:
    """Were a text ever to become markup, the browser would not run it."""
    file = pages["one"].with_name("broken.html")
    injected = "<script>document.title = 'taken'</script><p style='position:fixed'>x</p></main>"
    file.write_text(pages["one"].read_text(encoding="utf-8").replace("</main>", injected), encoding="utf-8")
    seen = look(chromium, file, width=1280, scheme="light")
    assert seen.page.title() == "digits.local.layers – recipe report"
    assert len([line for line in seen.said if "Content Security Policy" in line]) == 2
