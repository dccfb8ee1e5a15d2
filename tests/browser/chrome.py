"""Start the one browser of a test process; it can reach nobody else."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.browser.pages import console_errors, requested_urls, set_dark, set_desktop
from tests.services import find_browser

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",  # a microphone that beeps
    "--use-fake-ui-for-media-stream",
    # No name leads anywhere.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--window-size=1280,1600",
)


@pytest.fixture(scope="session")
def chrome() -> Iterator[webdriver.Chrome]:
    """A headless Chromium with a profile of its own, and a log of all that it asks for."""
    options = webdriver.ChromeOptions()
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for option in (*_OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        options.binary_location = find_browser() or ""
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()


@pytest.fixture
def browser(chrome: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser as if it had just been opened: light, wide, its logs empty.

    To start one for every test takes longer than most of what they do; the log-in is kept. No page
    stays open afterwards: it would go on asking a server that has no database between two tests.
    """
    chrome.get("about:blank")
    set_dark(chrome, False)
    set_desktop(chrome)
    console_errors(chrome), requested_urls(chrome)
    yield chrome
    chrome.get("about:blank")
