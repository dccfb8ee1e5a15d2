"""Lists move by themselves: rows come, change and go, and a choice of rows stays as it is."""

from __future__ import annotations

import re

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser import pages
from tests.browser.conftest import Site

_START = """
import datetime as dt
from django.contrib.auth.models import User
from django.utils import timezone
from synth.models import Batch, BookSource, RenderJob, WebhookDelivery, WorkerStatus
from tests.factories import *
from voices.models import Voice
owner, now = User.objects.get(username="operator"), timezone.now()
"""
_MAKE_JOB = 'make_job(segments=0, owner=owner, status="succeeded", text="It is new.")'
# Of each list: its address, the model of its rows, how a row comes, what changes in it, and what
# it then shows.
LISTS = {
    "jobs": ("synth/renderjob", "RenderJob", _MAKE_JOB, "status='failed'", "failed"),
    "books": ("synth/booksource", "BookSource", "make_book(owner)", "title='Other'", "Other"),
    "voices": (
        "voices/voice", "Voice", 'make_voice("Newly come", owner=owner)', "archived=True",
        "archived",
    ),
    "batches": (
        "synth/textbatch", "Batch", 'make_batch(owner, "failed", items=0)',
        "status='cancelled'", "cancelled",
    ),
    "book batches": (
        "synth/bookbatch", "Batch", "make_book_batch(owner)", "name='Renamed'", "Renamed",
    ),
    "workers": (
        "synth/workerstatus", "WorkerStatus",
        'WorkerStatus.objects.create(name="elsewhere", role="cpu", started_at=now,'
        " last_seen_at=now + dt.timedelta(days=1))",
        "state='draining'", "draining",
    ),
    "deliveries": (
        "synth/webhookdelivery", "WebhookDelivery", 'make_delivery(owner, status="failed")',
        "status='delivered'", "delivered",
    ),
}  # fmt: skip


def make_row(site: Site, code: str) -> str:
    return site.run(f"{_START}print(({code}).pk)").splitlines()[-1]


def keys(browser: webdriver.Chrome) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('#result_list tbody')].map((it) => it.dataset.key)"
    )
    return [key.removeprefix("row-") for key in found]


def told_count(browser: webdriver.Chrome) -> int:
    """Return how many rows the list says that it has, on all its pages."""
    found = re.search(r"(\d+) [a-z]", pages.wait_for(browser, '[data-live="pages"]').text)
    assert found is not None
    return int(found[1])


def has_row(browser: webdriver.Chrome, key: str) -> None:
    pages.patient(browser).until(lambda it: key in keys(it))


@pytest.mark.parametrize("name", LISTS)
def test_rows_come_change_and_go_while_the_list_is_open(
    admin: webdriver.Chrome, site: Site, name: str
) -> None:
    path, model, make, change, answer = LISTS[name]
    admin.get(f"{site.url}/admin/{path}/")
    pages.wait_for(admin, "#changelist")
    with pages.same_page(admin):
        key = make_row(site, make)
        has_row(admin, key)
        row = f'[data-key="row-{key}"]'
        assert answer not in pages.wait_for(admin, row).text
        assert len(keys(admin)) <= told_count(admin)  # of several pages one is shown
        rows = f"{_START}{model}.objects.filter(pk={key!r})"
        site.run(f"{rows}.update({change})")
        pages.wait_words(admin, row, answer)
        site.run(f"{rows}.delete()")
        pages.patient(admin).until(lambda it: key not in keys(it))

    assert pages.console_errors(admin) == []


def test_a_choice_of_rows_stays_while_others_come_and_holds_all_that_are_shown(
    admin: webdriver.Chrome, site: Site
) -> None:
    first = make_row(site, _MAKE_JOB)
    admin.get(f"{site.url}/admin/synth/renderjob/")
    second = make_row(site, _MAKE_JOB)
    has_row(admin, second)

    box = f'input[name="_selected_action"][value="{first}"]'
    pages.wait_for(admin, box).click()
    third = make_row(site, _MAKE_JOB)
    site.run(f"{_START}RenderJob.objects.filter(pk={second!r}).update(status='failed')")
    pages.wait_text(admin, f'[data-key="row-{second}"] [data-badge]', "failed")
    shown = keys(admin)
    assert third not in shown  # what is chosen stays where it is
    assert pages.wait_for(admin, ".action-counter").text == f"1 of {len(shown)} selected"

    with_shift = ActionChains(admin).key_down(Keys.SHIFT)
    other = pages.wait_for(admin, f'input[name="_selected_action"][value="{second}"]')
    with_shift.click(other).key_up(Keys.SHIFT).perform()
    assert pages.wait_for(admin, ".action-counter").text == f"2 of {len(shown)} selected"
    pages.picture(admin, "jobs-chosen")
    for value in (first, second):
        pages.wait_for(admin, f'input[name="_selected_action"][value="{value}"]').click()
    has_row(admin, third)
    pages.wait_for(admin, "input.action-toggle").click()
    number = len(keys(admin))
    assert pages.wait_for(admin, ".action-counter").text == f"{number} of {number} selected"
    assert pages.console_errors(admin) == []


def test_the_first_row_of_an_empty_list_comes_by_itself(
    admin: webdriver.Chrome, site: Site
) -> None:
    admin.get(f"{site.url}/admin/synth/renderjob/?q=seldom-heard")
    assert "Nothing was found" in pages.wait_for(admin, '[data-live="list"]').text
    voice = 'make_voice("seldom-heard", owner=owner)'
    key = make_row(site, f'make_job(segments=0, owner=owner, status="succeeded", voice={voice})')
    has_row(admin, key)
    pages.wait_for(admin, "input.action-select").click()
    assert pages.wait_for(admin, ".action-counter").text == "1 of 1 selected"
    assert pages.console_errors(admin) == []
