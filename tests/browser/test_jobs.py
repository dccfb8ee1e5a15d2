"""Jobs are queued, watched, heard, cancelled and retried in a real browser."""

from __future__ import annotations

import json

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import Select
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser import pages
from tests.browser.conftest import Site
from tests.workers.commands import PATIENCE_SECONDS

TEXT = "I came back to the long room. The lamp was out, and the wind was at the door."
LONG = " ".join(f"This is sentence number {number} of a long text." for number in range(300))


@pytest.fixture(scope="module")
def voice(site: Site) -> str:
    site.make_voice("Reader")
    return "Reader"


def badge_of(job_id: str) -> str:
    return f'[data-job="{job_id}"] [data-badge]'


def test_a_job_from_the_form_is_watched_to_its_end_and_its_player_seeks(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    admin.get(f"{site.url}/admin/synth/renderjob/add/")
    pages.wait_for(admin, "[name=text]").send_keys(TEXT)
    Select(admin.find_element(By.NAME, "voice")).select_by_visible_text(voice)
    admin.find_element(By.NAME, "_save").click()
    job_id = pages.wait_for(admin, "[data-job]").get_attribute("data-job") or ""
    assert admin.current_url == f"{site.url}/admin/synth/renderjob/{job_id}/change/"
    admin.get(f"{site.url}/admin/synth/renderjob/")
    with pages.same_page(admin):
        pages.wait_text(admin, badge_of(job_id), "succeeded")
        row = pages.wait_for(admin, f'[data-job="{job_id}"] [data-listen]')

    assert admin.find_element(By.CSS_SELECTOR, "progress").get_attribute("value") == "1"
    pages.picture(admin, "jobs")
    row.click()
    wait_pressed(admin, row, "true")
    admin.get(f"{site.url}/admin/synth/renderjob/{job_id}/change/")
    player = pages.wait_for(admin, "[data-whole-player]")
    place = admin.execute_async_script(
        """
        const [player, done] = arguments;
        player.addEventListener("loadedmetadata", () => { player.currentTime = 2.5; });
        player.addEventListener("seeked", () => done(player.currentTime));
        player.preload = "auto";
        player.load();
        """,
        player,
    )
    assert place == pytest.approx(2.5, abs=0.1)
    assert pages.console_errors(admin) == []


def test_a_job_is_cancelled_and_retried_from_the_list(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    job_id = site.submit(LONG, voice)
    admin.get(f"{site.url}/admin/synth/renderjob/")

    run_action(admin, job_id, "cancel_chosen")
    pages.wait_text(admin, badge_of(job_id), "cancelled")
    run_action(admin, job_id, "retry_chosen")

    pages.wait_text(admin, badge_of(job_id), "queued", "running")
    run_action(admin, job_id, "make_bulk")
    assert site.api.get(f"/jobs/{job_id}").json()["priority"] == "bulk"
    site.api.post(f"/jobs/{job_id}/cancel").raise_for_status()


def test_page_of_a_job_moves_by_itself_and_its_rows_play_in_place(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    text = " ".join(f"The gate number {number} was open again." for number in range(12))
    job_id = site.submit(text, voice)
    admin.get(f"{site.url}/admin/synth/renderjob/{job_id}/change/")
    pages.wait_for(admin, "[data-segment]")
    with pages.same_page(admin):
        pages.wait_text(admin, badge_of(job_id), "succeeded")
        total = len(segments(site, job_id))
        pages.wait_count(admin, "[data-segment] [data-listen]", total)
    assert len(admin.find_elements(By.TAG_NAME, "audio")) == 1  # of the whole file
    assert (
        admin.find_elements(By.CSS_SELECTOR, '[data-action="cancel"], [data-action="retry"]') == []
    )
    pages.picture(admin, "job")

    rows = admin.find_elements(By.CSS_SELECTOR, "[data-listen]")
    rows[0].click()
    wait_pressed(admin, rows[0], "true")
    wait_pressed(admin, rows[1], "true")  # it follows
    assert rows[0].get_attribute("aria-pressed") == "false"
    rows[1].click()
    wait_pressed(admin, rows[1], "false")

    wave = admin.find_element(By.CSS_SELECTOR, "[data-timeline] canvas")
    marks = json.loads(wave.get_attribute("data-marks") or "")
    assert [number for number, _, _ in marks] == list(range(1, total + 1))
    wave.click()  # the middle of it
    player = admin.find_element(By.CSS_SELECTOR, "[data-whole-player]")
    seconds = float(wave.get_attribute("data-seconds") or 0)
    pages.patient(admin).until(lambda _: time_of(player) >= seconds / 2 - 1)
    pages.wait_count(admin, "tr[data-mark][aria-current]", 1)
    wave.send_keys(Keys.HOME)
    pages.patient(admin).until(lambda _: time_of(player) < seconds / 2 - 1)
    assert pages.console_errors(admin) == []


def test_page_goes_on_after_the_connection_broke(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    job_id = site.submit(LONG, voice)
    admin.get(f"{site.url}/admin/synth/renderjob/{job_id}/change/")
    pages.wait_for(admin, '[data-action="cancel"]')
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    admin.execute_cdp_cmd("Network.enable", {})
    admin.execute_cdp_cmd("Network.emulateNetworkConditions", offline)

    assert "does not answer" in pages.wait_for(admin, "[data-away]").text
    site.api.post(f"/jobs/{job_id}/cancel").raise_for_status()
    online = offline | {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    admin.execute_cdp_cmd("Network.emulateNetworkConditions", online)

    pages.wait_text(admin, badge_of(job_id), "cancelled")
    pages.wait_hidden(admin, "[data-away]")
    assert pages.wait_for(admin, '[data-action="retry"]')
    pages.console_errors(admin)  # of the time without a connection


def test_job_is_stopped_and_retried_on_its_page(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    job_id = site.submit(LONG, voice)
    admin.get(f"{site.url}/admin/synth/renderjob/{job_id}/change/")

    pages.wait_for(admin, '[data-action="cancel"]').click()
    answers = pages.wait_for(admin, "dialog[open]").find_elements(By.TAG_NAME, "button")
    assert [answer.text for answer in answers] == ["Stop the job", "Keep rendering"]
    answers[1].click()
    pages.wait_count(admin, "dialog", 0)
    assert site.api.get(f"/jobs/{job_id}").json()["cancel_requested"] is False
    pages.wait_for(admin, '[data-action="cancel"]').click()
    pages.wait_for(admin, "dialog[open] .tts-primary").click()
    pages.wait_text(admin, badge_of(job_id), "cancelled")

    pages.wait_for(admin, '[data-action="retry"]').click()
    pages.wait_text(admin, badge_of(job_id), "queued", "running")
    site.api.post(f"/jobs/{job_id}/cancel").raise_for_status()
    assert pages.console_errors(admin) == []


@pytest.mark.parametrize("page", ["list", "job", "review", "users"])
def test_long_word_widens_no_page(
    admin: webdriver.Chrome, site: Site, voice: str, page: str
) -> None:
    word = "Donaudampfschifffahrtsgesellschaftskapitaenswitwe" * 4
    job_id = site.submit(f"{word} is a word.", voice)
    site.wait_for(f"/jobs/{job_id}", "succeeded")
    paths = {
        "list": "synth/renderjob/",
        "job": f"synth/renderjob/{job_id}/change/",
        "review": "synth/segment/",
        "users": "auth/user/",
    }
    if page == "users":
        user = {"username": word[:150], "email": f"{word[:64]}@{word[:60]}.example"}
        site.api.post("/users", json=user).raise_for_status()
    for set_width in (pages.set_phone, pages.set_desktop):
        set_width(admin)
        admin.get(f"{site.url}/admin/{paths[page]}")
        pages.wait_for(admin, "#main")
        assert pages.overflow(admin) <= 0
    if page in ("list", "users"):
        assert pages.scrolled(admin) <= 0
    if page == "list":
        cut = """
            const table = document.querySelector("#result_list");
            return [...table.querySelectorAll("[data-listen]")].filter(
              (one) => one.getBoundingClientRect().right > innerWidth).length;
        """
        assert admin.execute_script(cut) == 0


def test_one_segment_is_rendered_again(admin: webdriver.Chrome, site: Site, voice: str) -> None:
    job_id = site.submit(TEXT, voice)
    site.wait_for(f"/jobs/{job_id}", "succeeded")
    before = segments(site, job_id)
    admin.get(f"{site.url}/admin/synth/renderjob/{job_id}/change/")
    assert pages.wait_for(admin, "canvas[data-peaks]")
    pages.picture(admin, "job-segments")

    pages.wait_for(admin, '[data-action="again"]').click()
    pages.patient(admin).until(lambda it: segments(site, job_id)[0]["seed"] != before[0]["seed"])
    site.wait_for(f"/jobs/{job_id}", "succeeded")

    after = segments(site, job_id)
    assert [one["seed"] for one in after[1:]] == [one["seed"] for one in before[1:]]


def wait_pressed(browser: webdriver.Chrome, button: WebElement, state: str) -> None:
    pages.patient(browser).until(lambda _: button.get_attribute("aria-pressed") == state)


def time_of(player: WebElement) -> float:
    return float(player.get_property("currentTime"))  # type: ignore[arg-type]  # a number


def run_action(browser: webdriver.Chrome, job_id: str, name: str) -> None:
    """Choose a job's row and run one of the list's actions on it."""
    box = f'input[name="_selected_action"][value="{job_id}"]'
    pages.wait_for(browser, box).click()
    browser.execute_script(
        """
        const select = document.querySelector("select[name=action]");
        select.value = arguments[0];
        select.dispatchEvent(new Event("change", {bubbles: true}));
        """,
        name,
    )
    button = pages.wait_for(browser, "[name=index][type=submit], button[name=index]")
    button.click()
    WebDriverWait(browser, PATIENCE_SECONDS).until(staleness_of(button))  # the next page is there
    pages.wait_for(browser, f'[data-job="{job_id}"] [data-badge]')


def segments(site: Site, job_id: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = site.api.get(f"/jobs/{job_id}/segments").json()["results"]
    return found
