"""The front door: a text is written, heard while it is rendered, saved, made again, and copied."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser import pages
from tests.browser.conftest import PASSWORD, USER, Site

TEXT = "I came back to the long room. The lamp was out, and the wind was at the door."
ENDLESS = " ".join(f"Number {number} is a sentence of its own." for number in range(300))
LONG = f"{TEXT} The sun was low, and the river ran slowly to the sea. Nobody spoke. {TEXT}"
# What a person would hear, and what the page says, in the order in which it happens.
_LISTEN = """
window.events = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (...when) {
  const samples = this.buffer.getChannelData(0);
  const loudest = samples.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
  window.events.push({sound: this.buffer.duration, loudest});
  return start.apply(this, when);
};
new MutationObserver(() => {
  const state = document.querySelector("[data-takes] > li")?.dataset.state;
  if (window.events.at(-1)?.state !== state) window.events.push({state});
}).observe(document.querySelector("#studio-results"), {
  subtree: true, childList: true, attributes: true});
"""
_NEWCOMER = f"""
from django.contrib.auth.models import Permission, User
from voices.models import Voice
user = User.objects.create_user("newcomer", password={PASSWORD!r}, is_staff=True)
names = ["add_voice", "view_voice", "add_renderjob", "view_renderjob", "add_apikey", "view_apikey"]
user.user_permissions.set(Permission.objects.filter(codename__in=names))
# What other tests of this site left for everybody is nobody's now but the operator's.
Voice.objects.update(owner=User.objects.get(username={USER!r}), shared=False)
"""


@pytest.fixture(scope="module")
def voice(site: Site) -> str:
    return site.make_voice("Storyteller")


@pytest.fixture
def studio(admin: webdriver.Chrome, site: Site, voice: str) -> webdriver.Chrome:
    """The Studio, as an operator with a voice sees it."""
    admin.get(f"{site.url}/")
    Select(pages.wait_for(admin, "#studio-voice")).select_by_visible_text("Storyteller")
    return admin


@pytest.fixture
def newcomer(browser: webdriver.Chrome, site: Site) -> Iterator[webdriver.Chrome]:
    """The browser, not logged in, on a server that has a user without a voice and a job."""
    site.run(_NEWCOMER)
    pages.log_out(browser)
    yield browser
    pages.log_out(browser)


def write(browser: webdriver.Chrome, text: str) -> None:
    field = browser.find_element(By.NAME, "text")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text)


def press(browser: webdriver.Chrome) -> None:
    browser.find_element(By.CSS_SELECTOR, "#studio-form [type=submit]").click()


def error_of(browser: webdriver.Chrome, name: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, f'[data-error="{name}"]').text


def test_a_newcomer_logs_in_and_is_led_to_a_first_voice(
    newcomer: webdriver.Chrome, site: Site
) -> None:
    newcomer.get(f"{site.url}/")
    pages.wait_for(newcomer, "[name=username]").send_keys("newcomer")
    newcomer.find_element(By.NAME, "password").send_keys(PASSWORD, Keys.ENTER)

    steps = pages.wait_for(newcomer, ".tts-steps")
    assert newcomer.current_url == f"{site.url}/studio"
    assert "Add a voice: a clip of 3 to 30 seconds" in steps.text
    press(newcomer)
    assert error_of(newcomer, "voice").startswith("No voice is ready. Add one at")
    assert newcomer.switch_to.active_element.get_attribute("name") == "voice"
    pages.assert_fit_for_all(newcomer, site.url, "studio-new")

    pages.set_desktop(newcomer)
    newcomer.get(f"{site.url}/admin/")
    assert "Open the Studio" in pages.wait_for(newcomer, ".tts-steps").text
    assert not newcomer.find_elements(By.CSS_SELECTOR, ".tts-tile")
    pages.assert_fit_for_all(newcomer, site.url, "overview-new")


def test_a_text_sounds_and_is_then_saved_and_made_again(
    studio: webdriver.Chrome, site: Site
) -> None:
    studio.execute_script(_LISTEN)
    write(studio, LONG)
    press(studio)

    pages.wait_for(studio, "[data-takes] > li[data-sound=playing]")
    pages.picture(studio, "studio-playing")
    assert pages.violations(studio) == []
    pages.patient(studio).until(lambda it: any("sound" in one for one in events(it)))
    link = pages.wait_for(studio, "[data-takes] a[download]")
    pages.wait_for(studio, "[data-takes] > li[data-sound=ended]")

    heard = events(studio)
    job = newest(site)
    assert sum(one.get("sound", 0) for one in heard) == pytest.approx(job["audio_seconds"], abs=0.1)
    assert max(one.get("loudest", 0) for one in heard) > 0.01
    assert link.get_attribute("href") == f"{site.url}/api/v1/jobs/{job['id']}/audio"
    pages.picture(studio, "studio")
    pages.assert_fit_for_all(studio, site.url, "studio-done")

    pages.wait_for(studio, "[data-takes] li button:not(.tts-small)").click()
    pages.wait_count(studio, "[data-takes] a[download]", 2)
    again = newest(site)
    assert again["id"] != job["id"] and again["seed"] != job["seed"]
    assert again["text"] == job["text"] and again["voices"] == job["voices"]
    assert pages.console_errors(studio) == []


def test_a_text_sounds_while_it_is_rendered_and_is_cancelled_where_it_was_made(
    studio: webdriver.Chrome, site: Site
) -> None:
    studio.execute_script(_LISTEN)
    write(studio, ENDLESS)
    press(studio)
    pages.patient(studio).until(lambda it: any("sound" in one for one in events(it)))
    assert {"state": "succeeded"} not in events(studio)
    pages.wait_for(studio, "[data-takes] [data-cancel]").click()
    pages.wait_for(studio, "[data-takes] > li[data-state=cancelled]")
    assert newest(site)["status"] == "cancelled"


def test_an_empty_text_and_one_too_long_are_refused_beside_the_field(
    studio: webdriver.Chrome, site: Site
) -> None:
    write(studio, "   ")
    press(studio)
    assert error_of(studio, "text") == "Write a text first."
    assert studio.switch_to.active_element.get_attribute("name") == "text"

    studio.execute_script(
        "const box = document.querySelector('#studio-text');"
        "box.value = 'word '.repeat(40001);"
        "box.dispatchEvent(new Event('input', {bubbles: true}));"
    )
    press(studio)
    assert "200,005 characters; at most 200,000" in error_of(studio, "text")
    pages.picture(studio, "studio-error")
    assert pages.violations(studio) == []
    pages.set_phone(studio)
    pages.picture(studio, "studio-error-phone")


def test_what_the_server_refuses_and_a_lost_login_are_said_in_place(
    studio: webdriver.Chrome, site: Site
) -> None:
    write(studio, "<|speaker:7|>Nobody speaks this.")
    press(studio)
    pages.patient(studio).until(lambda it: "speaker" in error_of(it, "form"))
    write(studio, TEXT)
    pages.log_out(studio)
    press(studio)
    pages.patient(studio).until(lambda it: error_of(it, "form").startswith("You are logged out."))
    assert pages.wait_for(studio, '[data-error="form"] a').text == "Log in again"


def test_the_page_is_used_by_keyboard_alone(studio: webdriver.Chrome, site: Site) -> None:
    write(studio, TEXT + " By the keyboard.")
    studio.find_element(By.NAME, "text").send_keys(Keys.CONTROL, Keys.ENTER)
    pages.wait_for(studio, "[data-takes] a[download]")
    assert newest(site)["text"] == TEXT + " By the keyboard."


@pytest.mark.parametrize("name", ["curl", "python"])
def test_the_request_that_is_shown_runs_as_it_is(
    studio: webdriver.Chrome, site: Site, tmp_path: Path, name: str
) -> None:
    text = f'It\'s "quoted" for {name}: $HOME, `ls`, \\n and a naïve café.'
    write(studio, text)
    Select(studio.find_element(By.NAME, "format")).select_by_visible_text("flac")
    code = studio.find_element(By.CSS_SELECTOR, f'[data-code="{name}"]').text
    assert site.url in code
    key = site.api.headers["Authorization"].removeprefix("Bearer ")
    program = ["bash", "-c"] if name == "curl" else [sys.executable, "-c"]

    subprocess.run(
        [*program, code.replace("tts_…", key)],
        check=True,
        cwd=tmp_path,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "TTS_API_KEY": key},
        timeout=300,
    )

    assert newest(site)["text"] == text
    with av.open(str(tmp_path / "speech.flac")) as file:
        assert sum(frame.samples for frame in file.decode(audio=0)) > 10_000


def events(browser: webdriver.Chrome) -> list[dict[str, Any]]:
    """Return what was heard and seen so far."""
    found: list[dict[str, Any]] = browser.execute_script("return window.events")
    return found


def newest(site: Site) -> dict[str, object]:
    found: dict[str, object] = site.api.get("/jobs?limit=1").json()["results"][0]
    return site.api.get(f"/jobs/{found['id']}").json()  # type: ignore[no-any-return]
