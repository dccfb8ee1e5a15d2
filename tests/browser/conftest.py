"""Give the tests of this folder a browser that can reach nobody else, and a served project."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.pages import console_errors, requested_urls, set_dark, set_desktop
from tests.services import find_browser
from tests.workers.commands import (
    PATIENCE_SECONDS,
    PROJECT,
    environment_for,
    run_python,
    start,
)

CLIP = PROJECT / "synth" / "demo" / "clips" / "ref_m3.wav"
TRANSCRIPT = "The thing had a strange look in the lamp light."
USER, PASSWORD = "operator", "a password of its own"
_MAKE_USER = f"""
import django; django.setup()
from django.conf import settings
from django.contrib.auth import get_user_model
from synth.keys import create_key
from ttsweb.migration import migrate_once
migrate_once(settings.DATA_DIR)
user = get_user_model().objects.create_superuser({USER!r}, password={PASSWORD!r})
print(create_key(user, "test", scopes=("read", "voices", "jobs", "admin"))[1])
"""
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
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no name leads anywhere
    "--window-size=1280,1600",
)


@dataclass(frozen=True)
class Site:
    """A served project with a worker: where it is, and a client with its operator's key."""

    url: str
    api: httpx.Client
    environment: dict[str, str]

    def run(self, code: str) -> str:
        """Run code that looks into the site's database, and return what it prints."""
        return run_python(self.environment, f"import django; django.setup()\n{code}")

    def make_voice(self, name: str) -> str:
        """Make a voice over the API, wait until it speaks, and return its id."""
        with CLIP.open("rb") as clip:
            answer = self.api.post(
                "/voices",
                data={
                    "name": name,
                    "transcript": TRANSCRIPT,
                    "consent_statement": "The voice is synthetic.",
                },
                files={"audio": ("clip.wav", clip, "audio/wav")},
            )
        answer.raise_for_status()
        voice_id: str = answer.json()["id"]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.api.get(f"/voices/{voice_id}").json()["status"] != "ready":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return voice_id


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The project with a web process and a worker on the built-in model, once for all tests."""
    environment = environment_for(tmp_path_factory.mktemp("browser"))
    environment |= {"TTS_PUMP_SECONDS": "0.5"}
    key = run_python(environment, _MAKE_USER)
    with start(environment, "serve", "--port", _free_port(), "--json") as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"].rstrip("/")
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60) as api:
                yield Site(url, api, environment)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


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
def browser(chrome: webdriver.Chrome) -> webdriver.Chrome:
    """The browser as if it had just been opened: light, wide, its logs empty.

    To start one for every test takes longer than most of what they do; the log-in is kept.
    """
    chrome.get("about:blank")
    set_dark(chrome, False)
    set_desktop(chrome)
    console_errors(chrome), requested_urls(chrome)
    return chrome


@pytest.fixture
def admin(browser: webdriver.Chrome, site: Site) -> webdriver.Chrome:
    """The browser, logged in as the operator."""
    if not _is_logged_in(browser, site):
        browser.get(f"{site.url}/admin/")
        browser.find_element(By.NAME, "username").send_keys(USER)
        browser.find_element(By.NAME, "password").send_keys(PASSWORD)
        browser.find_element(By.CSS_SELECTOR, "form [type=submit]").click()
        WebDriverWait(browser, PATIENCE_SECONDS).until(
            expected.presence_of_element_located((By.ID, "main"))
        )
        console_errors(browser), requested_urls(browser)
    return browser


def _is_logged_in(browser: webdriver.Chrome, site: Site) -> bool:
    found = browser.execute_cdp_cmd("Network.getCookies", {"urls": [site.url]})
    return any(cookie["name"] == "sessionid" for cookie in found["cookies"])


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: it needs a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
