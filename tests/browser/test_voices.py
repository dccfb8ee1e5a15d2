"""A voice is made, looked at and tried in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from tests.api.served import free_port
from tests.browser import pages
from tests.browser.conftest import Site, log_in, site_in
from tests.voices.clips import clip_bytes
from tests.workers.commands import CLIP, TRANSCRIPT


def test_a_dropped_clip_is_measured_saved_encoded_and_speaks(
    admin: webdriver.Chrome, site: Site
) -> None:
    admin.get(f"{site.url}/admin/voices/voice/add/")
    pages.wait_for(admin, "[name=name]").send_keys("Dropped")
    admin.find_element(By.NAME, "consent_statement").send_keys("The voice is synthetic.")
    pages.drop_file(admin, ".tts-drop", CLIP, "audio/wav")

    pages.wait_for(admin, ".tts-report canvas")
    report = admin.find_element(By.CSS_SELECTOR, ".tts-report").text
    assert CLIP.name in report and "mono" in report and "dBFS" in report

    admin.find_element(By.NAME, "clips-0-transcript").send_keys(TRANSCRIPT)
    pages.picture(admin, "voice-new")
    admin.find_element(By.NAME, "_continue").click()
    pages.wait_for(admin, ".tts-state")

    with pages.same_page(admin):
        pages.wait_text(admin, ".tts-state .tts-badge", "ready")
        measures = pages.wait_for(admin, ".tts-measures").text
    assert "16000 Hz" in measures and "Noise floor" in measures
    assert admin.find_elements(By.CSS_SELECTOR, ".tts-clip canvas[data-peaks]")

    pages.wait_for(admin, "[data-try-it] button").click()
    pages.wait_for(admin, "[data-try-it] audio")
    assert "s of audio" in admin.find_element(By.CSS_SELECTOR, "[data-try-it] [data-state]").text
    pages.picture(admin, "voice-try-it")
    assert pages.console_errors(admin) == []


def test_a_recording_becomes_the_clip(admin: webdriver.Chrome, site: Site) -> None:
    admin.get(f"{site.url}/admin/voices/voice/add/")
    record = pages.wait_for(admin, ".tts-drop .tts-button")
    record.click()
    pages.patient(admin).until(
        lambda driver: re.fullmatch(
            r"([3-9]|1\d) s", driver.find_element(By.CSS_SELECTOR, ".tts-drop [aria-live]").text
        )
    )
    assert record.text == "Stop"
    record.click()

    pages.wait_for(admin, ".tts-report canvas")
    name = admin.execute_script(
        "return document.querySelector('[name=clips-0-audio]').files[0].name"
    )
    assert name == "recording.webm"
    report = admin.find_element(By.CSS_SELECTOR, ".tts-report").text
    said = re.match(r"recording\.webm · ([0-9.]+) s · ", report)
    assert said is not None, report
    assert 2.0 < float(said[1]) < 30.0


def test_a_clip_that_is_too_short_is_told_before_it_is_sent(
    admin: webdriver.Chrome, site: Site, tmp_path: Path
) -> None:
    clip = tmp_path / "short.wav"
    clip.write_bytes(clip_bytes("wav", seconds=0.3))
    admin.get(f"{site.url}/admin/voices/voice/add/")
    pages.wait_for(admin, ".tts-drop .tts-button")
    pages.drop_file(admin, ".tts-drop", clip, "audio/wav")
    assert "too short" in pages.wait_for(admin, ".tts-bad").text


def test_versions_say_what_changed(admin: webdriver.Chrome, site: Site) -> None:
    voice_id = site.make_voice("Changed")
    site.api.patch(
        f"/voices/{voice_id}", files={"transcript": (None, "Other words.")}
    ).raise_for_status()
    admin.get(f"{site.url}/admin/voices/voice/{voice_id}/change/")
    page = pages.wait_for(admin, "#content-main").get_attribute("textContent") or ""
    assert "transcript 1 changed" in page
    assert "first version" in page


def test_a_file_to_import_fills_no_other_field(
    admin: webdriver.Chrome, site: Site, tmp_path: Path
) -> None:
    """The admin's own script would write the file's name into the field of the voice's name."""
    archive = tmp_path / "broken.voice.zip"
    archive.write_bytes(b"This is no zip.")
    admin.get(f"{site.url}/admin/voices/voice/")
    admin.execute_script("document.querySelector('[data-import-voice]').parentNode.open = true")
    pages.wait_for(admin, "[name=archive]").send_keys(str(archive))

    form = admin.find_element(By.CSS_SELECTOR, "[data-import-voice]")
    assert form.find_element(By.NAME, "name").get_attribute("value") == ""
    form.find_element(By.CSS_SELECTOR, "button").click()
    state = form.find_element(By.CSS_SELECTOR, "[data-state]")
    pages.patient(admin).until(lambda _: "not a zip archive" in state.text)


def test_a_book_is_chosen_without_an_error(
    admin: webdriver.Chrome, site: Site, tmp_path: Path
) -> None:
    book = tmp_path / "small.md"
    book.write_text("# One\n\nWords.\n", encoding="utf-8")
    admin.get(f"{site.url}/admin/synth/booksource/add/")
    pages.wait_for(admin, "[data-drop]")
    admin.find_element(By.CSS_SELECTOR, "[data-files]").send_keys(str(book))
    assert "small.md" in pages.wait_for(admin, ".tts-upload").text
    assert pages.console_errors(admin) == []


def test_names_of_other_services_voices_are_set_by_one_form(
    admin: webdriver.Chrome, site: Site
) -> None:
    voice = site.make_voice("Named")
    admin.get(f"{site.url}/admin/voices/voicealias/")
    rows = pages.wait_for(admin, ".tts-table tbody").find_elements(By.TAG_NAME, "tr")
    Select(rows[0].find_element(By.TAG_NAME, "select")).select_by_value(voice)
    rows[13].find_element(By.CSS_SELECTOR, "[type=text]").send_keys("Bedtime")
    Select(rows[13].find_element(By.TAG_NAME, "select")).select_by_value(voice)
    admin.find_element(By.CSS_SELECTOR, "#content .tts-button[type=submit]").click()
    pages.wait_words(admin, "body", "The names were saved.")

    shown = admin.find_elements(By.CSS_SELECTOR, ".tts-table tbody th")
    assert [row.text for row in shown[:2]] == ["alloy", "ash"] and shown[13].text == "bedtime"
    pages.assert_fit_for_all(admin, site.url, "voice-names")
    with httpx.Client(base_url=site.url, headers=site.api.headers) as client:
        for name in ("alloy", "BEDTIME"):
            said = {"input": ".", "voice": name}
            assert client.post("/v1/audio/speech", json=said).headers["X-TTS-Voice"] == "Named"


@pytest.fixture
def visitor(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser without a log-in, for a site with a user of its own."""
    pages.log_out(browser)
    yield browser
    pages.log_out(browser)


def test_words_of_a_clip_are_proposed_corrected_and_saved(
    visitor: webdriver.Chrome, tmp_path: Path
) -> None:
    plugged = "tests.workers.rendering.plugged:lenient"
    browser = visitor
    with site_in(tmp_path, free_port(), TTS_TRANSCRIBER=plugged) as hearing:
        log_in(browser, hearing)
        browser.get(f"{hearing.url}/admin/voices/voice/add/")
        pages.wait_for(browser, "[name=name]").send_keys("Heard")
        browser.find_element(By.NAME, "consent_statement").send_keys("The voice is synthetic.")
        propose = browser.find_element(By.XPATH, "//button[text()='Propose the words']")
        assert not propose.is_enabled()
        pages.drop_file(browser, ".tts-drop", CLIP, "audio/wav")
        pages.wait_for(browser, ".tts-report canvas")

        propose.click()

        words = browser.find_element(By.NAME, "clips-0-transcript")
        pages.patient(browser).until(lambda _: words.get_attribute("value"))
        assert words.get_attribute("value") == "what the clip says"
        state = propose.find_element(By.XPATH, "following-sibling::*[@role='status']")
        assert "correct every word before you save" in state.text
        pages.assert_fit_for_all(browser, hearing.url, "voice-proposed")
        pages.set_desktop(browser)

        words.clear()
        words.send_keys(TRANSCRIPT)
        propose.click()
        pages.patient(browser).until(lambda _: "What you have written stays" in state.text)
        assert words.get_attribute("value") == TRANSCRIPT

        browser.find_element(By.NAME, "language").send_keys("fr")
        propose.click()
        pages.patient(browser).until(lambda _: "hears de, en, not fr" in state.text)

        browser.find_element(By.NAME, "language").clear()
        browser.find_element(By.NAME, "_continue").click()
        pages.wait_for(browser, ".tts-state")
        [voice] = hearing.api.get("/voices").json()["results"]
        assert voice["clips"][0]["transcript"] == TRANSCRIPT
        assert pages.console_errors(browser) == []


def test_form_says_that_no_transcriber_is_there(admin: webdriver.Chrome, site: Site) -> None:
    admin.get(f"{site.url}/admin/voices/voice/add/")
    pages.wait_for(admin, ".tts-drop")
    row = admin.find_element(By.ID, "clips-group").text
    assert "No transcriber is set up here that could propose them." in row
    assert "Propose the words" not in row
