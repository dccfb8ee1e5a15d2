"""The pages of signing in, of one's account and of the audit log, as people see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyotp
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.browser import pages
from tests.ttsweb.pages.people import Place, place_in

OIDC = "http://id:secret@127.0.0.1:9/realms/x"
SMTP = "smtp://127.0.0.1:9/?from=tts@example.org"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("people")
    with place_in(folder, TTS_OIDC_URL=OIDC, TTS_SMTP_URL=SMTP) as found:
        yield found


@pytest.fixture
def visitor(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    pages.log_out(browser)
    yield browser
    pages.log_out(browser)


def type_in(browser: webdriver.Chrome, **fields: str) -> None:
    for name, text in fields.items():
        browser.find_element(By.NAME, name).send_keys(text)


def press(browser: webdriver.Chrome, words: str) -> None:
    pages.wait_for(browser, "body")
    browser.find_element(By.XPATH, f"//button[contains(., '{words}')]").click()


def test_second_step_from_the_page_of_the_account_to_the_next_log_in(
    visitor: webdriver.Chrome, place: Place, tmp_path: Path
) -> None:
    visitor.get(f"{place.url}/admin/login/?next=/account")
    assert visitor.find_element(By.LINK_TEXT, "Sign in with 127.0.0.1").is_displayed()
    pages.assert_fit_for_all(visitor, place.url, "log-in")
    pages.set_desktop(visitor)
    type_in(visitor, username="boss", password="a password of its own")
    press(visitor, "Log in")

    pages.wait_words(visitor, "#factor-state", "Off.")
    pages.assert_fit_for_all(visitor, place.url, "account")
    pages.set_desktop(visitor)
    visitor.find_element(By.NAME, "failures_only").click()
    visitor.find_element(By.CSS_SELECTOR, "[name=about][value=books]").click()
    press(visitor, "Save")
    pages.wait_count(visitor, "[name=about]:checked", 1)

    press(visitor, "Set up an authenticator")
    app = pyotp.TOTP(pages.text_of(visitor, "#factor-secret"))
    assert visitor.find_element(By.CSS_SELECTOR, ".tts-qr svg").size["width"] > 100
    pages.assert_fit_for_all(visitor, place.url, "second-step")
    pages.set_desktop(visitor)
    type_in(visitor, code=app.now())
    press(visitor, "Switch on")
    codes = pages.text_of(visitor, "#recovery-codes").split()
    pages.assert_fit_for_all(visitor, place.url, "recovery-codes")
    pages.set_desktop(visitor)
    visitor.find_element(By.LINK_TEXT, "I have kept them").click()
    pages.wait_words(visitor, "#factor-state", "On since")
    pages.assert_fit_for_all(visitor, place.url, "account-with-second-step")
    pages.set_desktop(visitor)

    pages.log_out(visitor)
    visitor.get(f"{place.url}/admin/login/?next=/admin/synth/auditentry/")
    type_in(visitor, username="boss", password="a password of its own")
    press(visitor, "Log in")
    pages.wait_for(visitor, "#code")
    pages.assert_fit_for_all(visitor, place.url, "log-in-code")
    pages.set_desktop(visitor)
    type_in(visitor, code="000000")
    press(visitor, "Log in")
    pages.wait_words(visitor, "#code-error", "wrong or was used already")
    type_in(visitor, code=codes[0])
    press(visitor, "Log in")

    pages.wait_words(visitor, "#result_list", "sign-in-code")
    pages.assert_fit_for_all(visitor, place.url, "audit-log")
    pages.set_desktop(visitor)
    pages.assert_whole_list(visitor)
    visitor.find_element(By.CSS_SELECTOR, "#result_list tbody a").click()
    pages.wait_words(visitor, "#main", "127.0.0.1")
    pages.assert_fit_for_all(visitor, place.url, "audit-entry")
