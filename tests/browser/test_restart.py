"""A server that is stopped and started again: open pages say so, and go on by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.api.served import free_port
from tests.browser import pages
from tests.browser.conftest import log_in, served, site_in

TEXT = " ".join(f"The gate number {number} was open again." for number in range(150))
PAGES = {"list": "/admin/synth/renderjob/", "job": "/admin/synth/renderjob/{job}/change/"}


@pytest.fixture
def visitor(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser without a log-in: the sites of these tests have users of their own."""
    pages.log_out(browser)
    yield browser
    pages.log_out(browser)


@pytest.mark.parametrize("name", PAGES)
def test_page_says_that_the_server_is_away_and_goes_on_once_it_is_back(
    visitor: webdriver.Chrome, tmp_path: Path, name: str
) -> None:
    port = free_port()
    with site_in(tmp_path, port) as site:
        job = site.submit(TEXT, site.make_voice("Reader"))
        log_in(visitor, site)
        visitor.get(site.url + PAGES[name].format(job=job))
        badge = f'[data-job="{job}"] [data-badge]'
        pages.wait_text(visitor, badge, "running")
        visitor.execute_script("window.stays = true")

    assert "does not answer" in pages.wait_for(visitor, "[data-away]").text
    assert pages.text_of(visitor, badge) == "running"  # what it showed stays
    pages.picture(visitor, f"away-{name}")
    with served(site.environment, port):
        pages.wait_text(visitor, badge, "succeeded")
        pages.wait_hidden(visitor, "[data-away]")
        assert visitor.execute_script("return window.stays") is True


def test_studio_says_that_the_server_is_away_and_offers_the_sound_once_it_is_back(
    visitor: webdriver.Chrome, tmp_path: Path
) -> None:
    port = free_port()
    with site_in(tmp_path, port) as site:
        site.make_voice("Reader")
        log_in(visitor, site)
        visitor.get(f"{site.url}/studio")
        visitor.execute_script("document.querySelector('#studio-text').value = arguments[0]", TEXT)
        pages.wait_for(visitor, "#studio-form [type=submit]").click()
        pages.wait_for(visitor, "[data-takes] > li[data-state=running]")

    pages.wait_words(visitor, "[data-takes] > li", "cannot be reached")
    pages.picture(visitor, "away-studio")
    with served(site.environment, port):
        assert pages.wait_for(visitor, "[data-takes] > li[data-state=succeeded] a[download]")
        pages.wait_hidden(visitor, "[data-away]")
