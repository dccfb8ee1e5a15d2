"""The review page is walked through by keyboard alone, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser import pages
from tests.browser.conftest import Site

SENTENCES = (
    "The old gate was open again.",
    "Nobody had closed it for a long time.",
    "Water ran under the bridge all night.",
    "In the morning it was gone.",
    "She came back with the first snow.",
)
# Flags what was spoken, since the built-in model does well; the worst is the second sentence.
_FLAG = """
from synth.models import Segment
from synth.transitions.takes import with_candidate
rows = Segment.objects.filter(job={job!r}).order_by("pk")
for segment, score in zip(rows, (1, 0.1, 0.2, 0.3, 1)):
    if score < 1:
        take = segment.take
        take.quality_score, take.quality_flags = score, ["too_short"]
        take.measures["screen"] = [dict(name="too_short", value=0.3, limit=1.2)]
        take.save()
        segment.candidates = with_candidate([], take, segment.seed)
        segment.save()
        segment.candidate_takes.add(take)
"""
_LISTEN = """
window.heard = [];
const play = HTMLMediaElement.prototype.play;
HTMLMediaElement.prototype.play = function () {
  window.heard.push(new URL(this.src).pathname + new URL(this.src).search);
  return play.call(this);
};
"""


@pytest.fixture
def job(site: Site) -> Iterator[str]:
    """A spoken job, of whose five segments three are flagged."""
    if not any(one["name"] == "Reviewer" for one in site.api.get("/voices").json()["results"]):
        site.make_voice("Reviewer")
    text = "\n\n".join(SENTENCES)
    job_id = site.submit(text, "Reviewer")
    assert site.wait_for(f"/jobs/{job_id}", "succeeded")["segments_total"] == len(SENTENCES)
    site.run(_FLAG.format(job=job_id))
    yield job_id
    site.wait_for(f"/jobs/{job_id}", "succeeded")
    site.api.delete(f"/jobs/{job_id}").raise_for_status()


def items(site: Site, job_id: str, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.api.get("/review", params={"job": job_id, **query}).json()[
        "results"
    ]
    return found


def press(browser: webdriver.Chrome, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()


def text_of(browser: webdriver.Chrome, part: str) -> str:
    return pages.text_of(browser, f"[data-{part}]")


def until(browser: webdriver.Chrome, condition: Callable[[], object]) -> None:
    pages.patient(browser).until(lambda _: condition())


def now_at(browser: webdriver.Chrome, sentence: str) -> None:
    pages.wait_text(browser, ".tts-review-this", sentence)


@pytest.fixture
def page(admin: webdriver.Chrome, site: Site, job: str) -> webdriver.Chrome:
    """The page of this job's segments, the worst one shown."""
    pages.console_errors(admin)
    admin.get(f"{site.url}/admin/synth/segment/?job={job}")
    now_at(admin, SENTENCES[1])
    admin.execute_script(_LISTEN)
    return admin


def test_a_job_is_reviewed_by_keyboard_alone(page: webdriver.Chrome, site: Site, job: str) -> None:
    rows = {item["text"]: item for item in items(site, job)}
    assert text_of(page, "left") == "3"
    assert "0.3 s" in text_of(page, "flags")

    press(page, "j")
    now_at(page, SENTENCES[2])
    press(page, "k")
    now_at(page, SENTENCES[1])
    assert page.switch_to.active_element.get_attribute("id") == "tts-review-heading"

    press(page, " ")
    item = rows[SENTENCES[1]]
    around = [item["before"][-1]["audio_url"], item["takes"][0]["audio_url"]]
    around.append(item["after"][0]["audio_url"])
    until(page, lambda: page.execute_script("return window.heard") == around)

    press(page, "a")
    now_at(page, SENTENCES[2])
    until(page, lambda: text_of(page, "left") == "2")
    assert "approved" in text_of(page, "said")
    assert [one["text"] for one in items(site, job, approved="true")] == [SENTENCES[1]]

    press(page, "r")
    until(page, lambda: "has a new take" in text_of(page, "said"))
    assert len(page.find_elements(By.CSS_SELECTOR, "[data-takes] li")) == 2
    page.execute_script("window.heard.length = 0")
    ActionChains(page).key_down(Keys.SHIFT).send_keys("1").key_up(Keys.SHIFT).perform()
    first = items_of(site, rows[SENTENCES[2]]["id"])["takes"][0]
    until(page, lambda: page.execute_script("return window.heard") == [first["audio_url"]])
    press(page, "1")
    now_at(page, SENTENCES[3])
    kept = items_of(site, rows[SENTENCES[2]]["id"])
    assert (kept["take"], kept["approved"]) == (first["take"], True)

    press(page, "e")
    assert page.switch_to.active_element.get_attribute("data-words") is not None
    press(page, Keys.END, " Jar.")  # j and a are letters here
    ActionChains(page).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    until(page, lambda: items_of(site, rows[SENTENCES[3]]["id"])["spoken_text"].endswith("Jar."))
    until(page, lambda: "has a new take" in text_of(page, "said"))
    assert text_of(page, "spoken").endswith("Jar.")
    press(page, "a")
    until(page, lambda: text_of(page, "heading") == "Everything is reviewed.")

    assert items(site, job) == []
    assert pages.console_errors(page) == []


def items_of(site: Site, segment: int) -> dict[str, Any]:
    found: dict[str, Any] = site.api.get(f"/review/{segment}").json()
    return found


def test_keys_do_nothing_in_fields_in_the_help_and_when_they_are_off(
    page: webdriver.Chrome, site: Site, job: str
) -> None:
    page.find_element(By.CSS_SELECTOR, "select[name=flag]").send_keys("j")
    press(page, Keys.ESCAPE)
    page.find_element(By.ID, "tts-review-heading").click()
    press(page, "?")
    assert pages.wait_for(page, "dialog[open]")
    assert pages.violations(page) == []
    press(page, "a", "j")
    press(page, Keys.ESCAPE)
    pages.wait_count(page, "dialog[open]", 0)
    page.find_element(By.CSS_SELECTOR, "[data-keys]").click()
    page.find_element(By.ID, "tts-review-heading").click()
    press(page, "a", "j", "1", "r", "e")

    now_at(page, SENTENCES[1])
    assert len(items(site, job)) == 3
    assert page.find_elements(By.CSS_SELECTOR, "[data-editor]:not([hidden])") == []
    page.find_element(By.CSS_SELECTOR, "[data-keys]").click()
    page.find_element(By.ID, "tts-review-heading").click()
    press(page, "j")
    now_at(page, SENTENCES[2])


def test_space_on_a_button_presses_that_button(page: webdriver.Chrome) -> None:
    page.execute_script("document.querySelector('[data-do=next]').focus()")
    press(page, " ")
    now_at(page, SENTENCES[2])
    assert page.execute_script("return window.heard") == []


def test_what_is_refused_is_said(page: webdriver.Chrome, site: Site, job: str) -> None:
    item = items(site, job)[0]
    path = f"/jobs/{job}/segments/{item['id']}"
    site.api.post(f"{path}/render", json={}).raise_for_status()  # somebody else was here
    site.wait_for(f"/jobs/{job}", "succeeded")
    press(page, "a")
    until(page, lambda: "now has another chosen take" in text_of(page, "said"))
    now_at(page, SENTENCES[1])


def test_page_is_accessible_with_a_segment_in_it(page: webdriver.Chrome, site: Site) -> None:
    pages.assert_fit_for_all(page, site.url, "review-segment")


def test_empty_list_says_so(admin: webdriver.Chrome, site: Site) -> None:
    admin.get(f"{site.url}/admin/synth/segment/?flag=stuck&heard=")
    until(admin, lambda: text_of(admin, "heading") == "There is nothing to review.")
    admin.get(f"{site.url}/admin/synth/segment/?flag=stuck")
    until(admin, lambda: text_of(admin, "heading") == "No segment with audio is left to review.")
    assert text_of(admin, "left") == "0"
    press(admin, "j", "a", " ", "r", "e", "1")
    assert pages.console_errors(admin) == []
    admin.get(f"{site.url}/admin/synth/segment/?job=nothing")  # which the server refuses
    until(admin, lambda: "Expected the id of a job" in text_of(admin, "said"))


# A job whose deadline passed before anything was spoken has rows, and nothing to listen to.
_OVERDUE = """
from synth.models import RenderJob, Segment
done = RenderJob.objects.get(pk={job!r})
from tests.factories import make_job
job = make_job(segments=0, owner=done.owner, version=done.voices.get().version, status="failed",
  error_code="deadline_passed", error_message="The deadline passed.", text="A long catalogue.")
chapter = job.chapters.get()
Segment.objects.bulk_create([
  Segment(job=job, chapter=chapter, index=n, text=f"Item {{n}}.", spoken_text=f"Item {{n}}.",
    seed=n, pause_after_ms=300, status="failed", error_code="deadline_passed") for n in range({n})])
RenderJob.objects.filter(pk=job.pk).update(segments_total={n}, segments_failed={n})
print(job.pk)
"""


def test_job_without_audio_floods_nothing_and_whole_jobs_are_acted_on(
    admin: webdriver.Chrome, site: Site, job: str
) -> None:
    overdue = site.run(_OVERDUE.format(job=job, n=300)).strip()
    heard = site.api.get("/review", params={"heard": "true", "limit": 1}).json()["left"]
    assert site.api.get("/review", params={"limit": 1}).json()["left"] >= heard + 300
    admin.get(f"{site.url}/admin/synth/segment/")
    until(admin, lambda: text_of(admin, "left") == str(heard))
    texts = [row.text for row in admin.find_elements(By.CSS_SELECTOR, ".tts-review-start")]
    assert texts and not [text for text in texts if text.startswith("Item ")]
    assert pages.wait_for(admin, "[data-takes] audio")
    pages.picture(admin, "review-jobs")

    admin.find_element(By.CSS_SELECTOR, f'[data-group="{overdue}"] [data-key="see"]').click()
    until(admin, lambda: text_of(admin, "left") == "300")
    assert "Item 0." in pages.wait_for(admin, ".tts-review-this").text
    admin.get(f"{site.url}/admin/synth/segment/")
    act_on(admin, job, "approve", "Approve 3 takes of this job, heard or not?")
    assert len(items(site, job, approved="true")) == 3
    assert items(site, job) == []

    act_on(admin, overdue, "retry", "Render the 300 segments without audio again?")
    assert site.api.get(f"/jobs/{overdue}").json()["segments_failed"] == 0
    assert pages.console_errors(admin) == []
    site.api.post(f"/jobs/{overdue}/cancel").raise_for_status()


def act_on(browser: webdriver.Chrome, job: str, action: str, question: str) -> None:
    row = f'[data-group="{job}"]'
    pages.wait_for(browser, f'{row} [data-action="{action}"]').click()
    dialog = pages.wait_for(browser, "dialog[open]")
    assert question in dialog.text
    dialog.find_element(By.CSS_SELECTOR, ".tts-primary").click()
    pages.wait_count(browser, row, 0)
