"""Jobs are queued, watched, heard, cancelled and retried in a real browser."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import Select
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.conftest import Site
from tests.browser.pages import PATIENCE_SECONDS, console_errors, patient, picture, wait_for

TEXT = "I came back to the long room. The lamp was out, and the wind was at the door."
LONG = " ".join(f"This is sentence number {number} of a long text." for number in range(300))


@pytest.fixture(scope="module")
def voice(site: Site) -> str:
    """The name of a voice that speaks."""
    site.make_voice("Reader")
    return "Reader"


def submit(site: Site, text: str, voice: str, **options: object) -> str:
    """Queue a text over the API and return the job's id."""
    answer = site.api.post("/jobs", json={"text": text, "voice": voice, **options})
    answer.raise_for_status()
    job_id: str = answer.json()["id"]
    return job_id


def badge(driver: webdriver.Chrome, job_id: str) -> str:
    """Return the state that the page shows of a job."""
    selector = f'[data-job="{job_id}"] [data-badge]'
    return driver.find_element(By.CSS_SELECTOR, selector).text


def test_a_job_from_the_form_is_watched_to_its_end_and_its_player_seeks(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    admin.get(f"{site.url}/admin/synth/renderjob/add/")
    wait_for(admin, "[name=text]").send_keys(TEXT)
    Select(admin.find_element(By.NAME, "voice")).select_by_visible_text(voice)
    admin.find_element(By.NAME, "_save").click()
    job_id = wait_for(admin, "[data-job]").get_attribute("data-job") or ""
    admin.execute_script("window.stays = true")

    patient(admin).until(lambda it: badge(it, job_id) == "succeeded")
    player = wait_for(admin, f'[data-job="{job_id}"] audio')

    assert admin.execute_script("return window.stays") is True  # nothing was loaded anew
    assert admin.find_element(By.CSS_SELECTOR, "progress").get_attribute("value") == "1"
    picture(admin, "jobs")
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
    assert console_errors(admin) == []


def test_a_job_is_cancelled_and_retried_from_the_list(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    job_id = submit(site, LONG, voice)
    admin.get(f"{site.url}/admin/synth/renderjob/")

    run_action(admin, job_id, "cancel_chosen")
    patient(admin).until(lambda it: badge(it, job_id) == "cancelled")
    run_action(admin, job_id, "retry_chosen")

    patient(admin).until(lambda it: badge(it, job_id) in ("queued", "running"))
    run_action(admin, job_id, "make_bulk")
    assert site.api.get(f"/jobs/{job_id}").json()["priority"] == "bulk"
    site.api.post(f"/jobs/{job_id}/cancel").raise_for_status()


def test_one_segment_is_rendered_again(admin: webdriver.Chrome, site: Site, voice: str) -> None:
    job_id = submit(site, TEXT, voice)
    assert site.api.get(f"/jobs/{job_id}?wait=30").json()["status"] == "succeeded"
    before = segments(site, job_id)
    admin.get(f"{site.url}/admin/synth/renderjob/{job_id}/change/")
    assert wait_for(admin, "canvas[data-peaks]")
    picture(admin, "job-segments")

    wait_for(admin, "[data-again]").click()
    patient(admin).until(lambda it: segments(site, job_id)[0]["seed"] != before[0]["seed"])
    assert site.api.get(f"/jobs/{job_id}?wait=30").json()["status"] == "succeeded"

    assert [one["seed"] for one in segments(site, job_id)][1:] == [one["seed"] for one in before][
        1:
    ]


def run_action(browser: webdriver.Chrome, job_id: str, name: str) -> None:
    """Choose a job's row and run one of the list's actions on it."""
    box = f'input[name="_selected_action"][value="{job_id}"]'
    wait_for(browser, box).click()
    browser.execute_script(
        """
        const select = document.querySelector("select[name=action]");
        select.value = arguments[0];
        select.dispatchEvent(new Event("change", {bubbles: true}));
        """,
        name,
    )
    button = wait_for(browser, "[name=index][type=submit], button[name=index]")
    button.click()
    WebDriverWait(browser, PATIENCE_SECONDS).until(staleness_of(button))  # the next page is there
    wait_for(browser, f'[data-job="{job_id}"] [data-badge]')


def segments(site: Site, job_id: str) -> list[dict[str, object]]:
    """Return a job's segments as the API has them."""
    found: list[dict[str, object]] = site.api.get(f"/jobs/{job_id}/segments").json()["results"]
    return found
