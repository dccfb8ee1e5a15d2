"""Give the tests of this folder a served project, and log the browser in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from tests.api.served import ServedApi, free_port
from tests.browser.pages import console_errors, requested_urls
from tests.workers.commands import PATIENCE_SECONDS, environment_for, run_python, start

USER, PASSWORD = "operator", "a password of its own"
_MAKE_USER = f"""
import django; django.setup()
from django.conf import settings
from django.contrib.auth import get_user_model
from synth.accounts.access import create_key
from ttsweb.migration import migrate_once
migrate_once(settings.DATA_DIR)
user = get_user_model().objects.create_superuser({USER!r}, password={PASSWORD!r})
print(create_key(user, "test", scopes=("read", "voices", "jobs", "admin"))[1])
"""


@dataclass
class Site(ServedApi):
    """One with a worker, and a person who looks into it."""

    environment: dict[str, str]

    def run(self, code: str) -> str:
        """Run code that looks into the site's database, and return what it prints."""
        return run_python(self.environment, f"import django; django.setup()\n{code}")

    def submit(self, text: str, voice: str, **options: object) -> str:
        answer = self.api.post("/jobs", json={"text": text, "voice": voice, **options})
        answer.raise_for_status()
        job_id: str = answer.json()["id"]
        return job_id

    def make_voice(self, name: str) -> str:
        """Upload a voice, and return its id once it speaks."""
        voice_id = super().make_voice(name)
        self.wait_for(f"/voices/{voice_id}", "ready")
        return voice_id


@contextlib.contextmanager
def served(environment: dict[str, str], port: str) -> Iterator[str]:
    """Start the web process and a worker, and stop them at the end; the value is their address."""
    with start(environment, "serve", "--port", port, "--json") as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"].rstrip("/")
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


@contextlib.contextmanager
def site_in(folder: Path, port: str, **settings: str) -> Iterator[Site]:
    """Serve a project of its own in a folder, with a worker on the built-in model."""
    environment = environment_for(folder) | settings
    headers = {"Authorization": f"Bearer {run_python(environment, _MAKE_USER)}"}
    with (
        served(environment, port) as url,
        httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60) as api,
    ):
        yield Site(url, api, environment)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("browser"), free_port()) as found:
        yield found


@pytest.fixture
def admin(browser: webdriver.Chrome, site: Site) -> webdriver.Chrome:
    if not _is_logged_in(browser, site):
        log_in(browser, site)
    return browser


def log_in(browser: webdriver.Chrome, site: Site) -> None:
    browser.get(f"{site.url}/admin/")
    browser.find_element(By.NAME, "username").send_keys(USER)
    browser.find_element(By.NAME, "password").send_keys(PASSWORD)
    browser.find_element(By.CSS_SELECTOR, "form [type=submit]").click()
    WebDriverWait(browser, PATIENCE_SECONDS).until(
        expected.presence_of_element_located((By.ID, "main"))
    )
    console_errors(browser), requested_urls(browser)


def _is_logged_in(browser: webdriver.Chrome, site: Site) -> bool:
    found = browser.execute_cdp_cmd("Network.getCookies", {"urls": [site.url]})
    return any(cookie["name"] == "sessionid" for cookie in found["cookies"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: it needs a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
