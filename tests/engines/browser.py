"""A real browser without a window: what it says, what it asks for, how wide a page is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

LIMIT = 240_000  # milliseconds for a browser on a busy machine


@dataclass
class Seen:
    """What a page did while it was shown."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's chromium, driven by the DevTools protocol."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("there is no chromium on PATH: run tests/testbed/engines.sh browser, or `make test`", pytrace=False)
    with sync_playwright() as tools:
        # The pages are our own, and a container of CI has no namespaces for the sandbox.
        started = tools.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=LIMIT)
        yield started
        started.close()


def look(started: Browser, file: Path, *, width: int, scheme: str) -> Seen:
    """Show a file in a window of its own, in light or dark."""
    light = "dark" if scheme == "dark" else "light"
    page = started.new_context(viewport={"width": width, "height": 900}, color_scheme=light).new_page()
    page.set_default_timeout(LIMIT)
    seen = Seen(page)
    page.on("console", lambda message: seen.said.append(message.text))
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("dialog", lambda dialog: seen.said.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: seen.asked.append(request.url))
    page.goto(file.as_uri())
    return seen
