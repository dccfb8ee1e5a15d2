"""A lexicon in the browser: its page, its preview and its files, in light, dark and on a phone."""

from __future__ import annotations

import uuid
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.browser.conftest import Site
from tests.browser.pages import assert_fit_for_all, set_desktop, wait_for


def make_lexicon(site: Site) -> str:
    """Return the path of a new lexicon's page, with one entry."""
    name = f"House {uuid.uuid4().hex[:6]}"
    lexicon: str = site.api.post("/lexicons", json={"name": name}).json()["id"]
    entry = {"find": "data", "say": "dayta"}
    assert site.api.post(f"/lexicons/{lexicon}/entries", json=entry).status_code == 201
    return f"{site.url}/admin/synth/lexicon/{lexicon}/change/"


def test_text_is_tried_on_a_lexicon(admin: webdriver.Chrome, site: Site) -> None:
    admin.get(make_lexicon(site))
    wait_for(admin, "#tts-preview-title")

    box = admin.find_element(By.CSS_SELECTOR, "section.tts-panel textarea")
    box.send_keys("All of the data is here.")
    box.find_element(By.XPATH, "ancestor::form//button").click()

    assert wait_for(admin, "mark").text == "data"
    assert "All of the dayta is here." in admin.page_source
    back = admin.find_element(By.XPATH, "//a[starts-with(., 'Back to ')]").rect
    area = admin.find_element(By.CSS_SELECTOR, "section.tts-panel textarea").rect
    assert back["y"] >= area["y"] + area["height"], "the button lies on the text"
    assert_fit_for_all(admin, site.url, "lexicon")


def test_page_of_a_lexicon_is_accessible_and_takes_a_file(
    admin: webdriver.Chrome, site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "entries.csv"
    file.write_text("find,say\nGIF,jif\n", encoding="utf-8")
    page = make_lexicon(site)
    admin.get(page)
    wait_for(admin, "#tts-files-title")
    assert_fit_for_all(admin, site.url, "lexicon-page")
    set_desktop(admin)

    chooser = admin.find_element(By.NAME, "file")
    chooser.send_keys(str(file))
    chooser.find_element(By.XPATH, "ancestor::form//button").click()
    wait_for(admin, "[value=GIF]")

    assert "Imported 1 entry." in admin.page_source
    admin.get(page)
    assert_fit_for_all(admin, site.url, "lexicon-imported")
