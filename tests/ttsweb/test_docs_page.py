"""The API's page: everything it loads is served here, and it works under the strict policy."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.pages import console_errors

URL = "/api/v1/docs"


def test_the_page_names_files_of_this_site_alone() -> None:
    client = Client()
    text = client.get(URL).content.decode()

    addresses = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(addresses) >= 5
    for address in addresses:
        assert address.startswith("/") and not address.startswith("//")
        assert client.get(address.replace("&amp;", "&"), follow=True).status_code == 200, address
    assert "<style" not in text
    assert re.search(r"<script(?![^>]*src=)", text) is None


def test_its_script_reads_the_description() -> None:
    response = Client().get(f"{URL}?script=")

    assert response.headers["Content-Type"].startswith("application/javascript")
    assert "schema" in response.content.decode()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_browser_shows_the_operations_without_a_violation_or_a_request_elsewhere(
    browser: webdriver.Chrome, live_server: LiveServer
) -> None:
    wait = WebDriverWait(browser, 60)

    browser.get(f"{live_server.url}{URL}")
    wait.until(expected.presence_of_element_located((By.ID, "operations-jobs-create_job")))
    browser.find_element(By.CSS_SELECTOR, "#operations-jobs-create_job button").click()
    wait.until(expected.visibility_of_element_located((By.CLASS_NAME, "try-out__btn"))).click()

    assert console_errors(browser) == []
    script = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    urls: list[str] = browser.execute_script(script)
    assert len(urls) >= 5
    assert [url for url in urls if not url.startswith((live_server.url, "data:"))] == []
