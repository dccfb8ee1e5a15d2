"""A voice is made, looked at and tried in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.browser.conftest import CLIP, TRANSCRIPT, Site
from tests.browser.pages import (
    console_errors,
    drop_file,
    patient,
    picture,
    same_page,
    wait_for,
    wait_text,
)
from tests.voices.clips import clip_bytes


def test_a_dropped_clip_is_measured_saved_encoded_and_speaks(
    admin: webdriver.Chrome, site: Site
) -> None:
    admin.get(f"{site.url}/admin/voices/voice/add/")
    wait_for(admin, "[name=name]").send_keys("Dropped")
    admin.find_element(By.NAME, "consent_statement").send_keys("The voice is synthetic.")
    drop_file(admin, ".tts-drop", CLIP, "audio/wav")

    wait_for(admin, ".tts-report canvas")
    report = admin.find_element(By.CSS_SELECTOR, ".tts-report").text
    assert "ref_m3.wav" in report and "mono" in report and "dBFS" in report

    admin.find_element(By.NAME, "clips-0-transcript").send_keys(TRANSCRIPT)
    picture(admin, "voice-new")
    admin.find_element(By.NAME, "_continue").click()
    wait_for(admin, ".tts-state")

    with same_page(admin):
        wait_text(admin, ".tts-state .tts-badge", "ready")
        measures = wait_for(admin, ".tts-measures").text
    assert "22050 Hz" in measures and "Noise floor" in measures
    assert admin.find_elements(By.CSS_SELECTOR, ".tts-clip canvas[data-peaks]")

    wait_for(admin, "[data-try-it] button").click()
    wait_for(admin, "[data-try-it] audio")
    assert "s of audio" in admin.find_element(By.CSS_SELECTOR, "[data-try-it] [data-state]").text
    picture(admin, "voice-try-it")
    assert console_errors(admin) == []


def test_a_recording_becomes_the_clip(admin: webdriver.Chrome, site: Site) -> None:
    admin.get(f"{site.url}/admin/voices/voice/add/")
    record = wait_for(admin, ".tts-drop .tts-button")
    record.click()
    patient(admin).until(
        lambda driver: re.fullmatch(
            r"([3-9]|1\d) s", driver.find_element(By.CSS_SELECTOR, ".tts-drop [aria-live]").text
        )
    )
    assert record.text == "Stop"
    record.click()

    wait_for(admin, ".tts-report canvas")
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
    wait_for(admin, ".tts-drop .tts-button")
    drop_file(admin, ".tts-drop", clip, "audio/wav")
    assert "too short" in wait_for(admin, ".tts-bad").text


def test_versions_say_what_changed(admin: webdriver.Chrome, site: Site) -> None:
    voice_id = site.make_voice("Changed")
    site.api.patch(
        f"/voices/{voice_id}", files={"transcript": (None, "Other words.")}
    ).raise_for_status()
    admin.get(f"{site.url}/admin/voices/voice/{voice_id}/change/")
    page = wait_for(admin, "#content-main").get_attribute("textContent") or ""
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
    wait_for(admin, "[name=archive]").send_keys(str(archive))

    form = admin.find_element(By.CSS_SELECTOR, "[data-import-voice]")
    assert form.find_element(By.NAME, "name").get_attribute("value") == ""
    form.find_element(By.CSS_SELECTOR, "button").click()
    state = form.find_element(By.CSS_SELECTOR, "[data-state]")
    patient(admin).until(lambda _: "not a zip archive" in state.text)


def test_a_book_is_chosen_without_an_error(
    admin: webdriver.Chrome, site: Site, tmp_path: Path
) -> None:
    book = tmp_path / "small.md"
    book.write_text("# One\n\nWords.\n", encoding="utf-8")
    admin.get(f"{site.url}/admin/synth/booksource/add/")
    wait_for(admin, "[data-drop]")
    admin.find_element(By.CSS_SELECTOR, "[data-files]").send_keys(str(book))
    assert "small.md" in wait_for(admin, ".tts-upload").text
    assert console_errors(admin) == []
