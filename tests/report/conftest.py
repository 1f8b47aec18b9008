"""The browser that pages are opened in."""

from __future__ import annotations

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("AVGK_CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (Debian's package chromium, or AVGK_CHROMIUM=its path)")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as started:
        browser_process = started.chromium.launch(
            executable_path=program, args=[*quiet, "--disable-sync", "--no-first-run"]
        )
        yield browser_process
        browser_process.close()


@pytest.fixture
def opened(browser, tmp_path):
    """A function that writes a page and opens it; what the page complains of, or asks for, fails the test."""
    contexts, complaints, requests = [], [], []

    def open_page(write, **options):
        path = tmp_path / "page.html"
        write(path)
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        requests.remove(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == []
