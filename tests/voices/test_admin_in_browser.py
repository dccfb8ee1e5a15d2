"""The admin in a real browser: scripts, styles and the form work together."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.pages import console_errors
from tests.factories import make_user
from tests.voices.clips import clip_bytes
from voices.models import Voice

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_person_logs_in_uploads_a_clip_and_sees_the_voice_wait(
    browser: webdriver.Chrome, live_server: LiveServer, tmp_path: Path
) -> None:
    make_user("boss", is_superuser=True)
    clip = tmp_path / "ada.wav"
    clip.write_bytes(clip_bytes("wav"))
    wait = WebDriverWait(browser, 60)

    browser.get(f"{live_server.url}/admin/voices/voice/add/")
    browser.find_element(By.NAME, "username").send_keys("boss")
    browser.find_element(By.NAME, "password").send_keys("password")
    browser.find_element(By.CSS_SELECTOR, "form [type=submit]").click()
    wait.until(expected.visibility_of_element_located((By.NAME, "name"))).send_keys("Ada")
    browser.find_element(By.NAME, "consent_statement").send_keys("She agreed in writing.")
    browser.find_element(By.NAME, "clips-0-audio").send_keys(str(clip))
    browser.find_element(By.NAME, "clips-0-transcript").send_keys("Hello there.")
    browser.find_element(By.NAME, "_save").click()

    row = wait.until(
        expected.visibility_of_element_located((By.XPATH, "//tr[contains(., 'Ada')]"))
    ).text
    assert "pending" in row.lower()
    assert Voice.objects.get().current_version is not None
    assert console_errors(browser) == []
