"""The public pages: about this server, what is owed for which weights, and the API to try."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.pages import console_errors
from tests.factories import logged_in
from ttsweb.configuration.env import PROJECT_DIR
from ttsweb.pages.front import is_fish_audio

DOCS = "/api/v1/docs"
BUILT_WITH = "Built with Fish Audio"
S2_CONFIG = {"model_type": "fish_qwen3_omni"}


def make_checkpoint(folder: Path, config: object, card: object = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if card is not None:
        (folder / "card.json").write_text(json.dumps(card))
    return folder


def text_of(path: str) -> str:
    response = Client().get(path)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize(
    ("config", "card", "is_theirs"),
    [
        (S2_CONFIG, None, True),
        (S2_CONFIG, {"name": "Fish Audio S2 Pro", "licence": "Fish Audio Research License"}, True),
        (S2_CONFIG, {"name": "mine", "licence": "fish audio, written licence of 2026"}, True),
        (S2_CONFIG, {"name": "mine", "licence": "Apache-2.0"}, False),
        (S2_CONFIG, {"licence": 5}, True),  # a card that says nothing cannot free the weights
        ({"model_type": "other"}, None, False),
        ([], None, False),
        ("{", None, False),
    ],
)
def test_whose_weights_they_are_is_told_by_card_then_by_the_type_of_model(
    tmp_path: Path, config: object, card: object, is_theirs: bool
) -> None:
    assert is_fish_audio(make_checkpoint(tmp_path, config, card)) is is_theirs
    assert not is_fish_audio(tmp_path / "nowhere")


@pytest.mark.parametrize("path", ["/about", "/licences"])
def test_their_weights_are_named_on_both_public_pages_and_their_licence_with_no_others(
    settings: Settings, tmp_path: Path, path: str
) -> None:
    settings.CHECKPOINT = make_checkpoint(tmp_path, S2_CONFIG)
    assert BUILT_WITH in text_of(path)
    for card in ("{", "[]", '{"name": 1}'):
        (tmp_path / "card.json").write_text(card)
        assert "cannot be read" in text_of(path), "it is said and not guessed"
    settings.CHECKPOINT = PROJECT_DIR / "synth" / "demo"
    assert BUILT_WITH not in text_of(path)
    assert "Research License" not in text_of(path)


def test_parts_are_listed_with_licences_under_the_strict_policy() -> None:
    response = Client().get("/licences")
    text = response.content.decode()
    assert "FFmpeg with x264 and x265" in text
    assert "Django</th><td>BSD-3-Clause" in text
    assert "unsafe" not in response.headers["Content-Security-Policy"]


@pytest.mark.django_db
def test_every_page_of_the_site_leads_to_it() -> None:
    page = logged_in()
    for path in ("/about", "/admin/", "/studio"):
        assert 'href="/licences"' in page.get(path).content.decode()


def test_the_page_leads_to_the_admin_and_the_schema_without_a_script() -> None:
    for path in ("/admin/", "/studio", "/api/v1/schema", "/api/v1/docs"):
        assert f'href="{path}"' in text_of("/about")
    for path in ("/about", "/licences"):
        assert "<script" not in text_of(path), path
        assert "style=" not in text_of(path), path


def test_the_page_shows_the_card_as_text(settings: Settings, tmp_path: Path) -> None:
    card = {"name": "<b>Tiny</b>", "licence": "Apache-2.0", "description": "Robotic."}
    settings.CHECKPOINT = make_checkpoint(tmp_path, {}, card)
    text = text_of("/about")
    for shown in ("&lt;b&gt;Tiny&lt;/b&gt;", "Apache-2.0", "Robotic."):
        assert shown in text


def test_the_page_names_files_of_this_site_alone() -> None:
    client, text = Client(), text_of(DOCS)

    addresses = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(addresses) >= 5
    for address in addresses:
        assert address.startswith("/") and not address.startswith("//")
        assert client.get(address.replace("&amp;", "&"), follow=True).status_code == 200, address
    assert "<style" not in text
    assert re.search(r"<script(?![^>]*src=)", text) is None
    script = client.get(f"{DOCS}?script=")
    assert script.headers["Content-Type"].startswith("application/javascript")
    assert "schema" in script.content.decode()
    assert client.post("/licences").status_code == 405, "it is only read"


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_browser_shows_the_operations_without_a_violation_or_a_request_elsewhere(
    browser: webdriver.Chrome, live_server: LiveServer
) -> None:
    wait = WebDriverWait(browser, 60)

    browser.get(f"{live_server.url}{DOCS}")
    wait.until(expected.presence_of_element_located((By.ID, "operations-jobs-create_job")))
    browser.find_element(By.CSS_SELECTOR, "#operations-jobs-create_job button").click()
    wait.until(expected.visibility_of_element_located((By.CLASS_NAME, "try-out__btn"))).click()

    assert console_errors(browser) == []
    script = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    urls: list[str] = browser.execute_script(script)
    assert len(urls) >= 5
    assert [url for url in urls if not url.startswith((live_server.url, "data:"))] == []
