"""A batch's page and the list of batches move by themselves, and a job's form has all options."""

from __future__ import annotations

import uuid

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.browser.conftest import Site
from tests.browser.pages import assert_fit_for_all, text_of, wait_for, wait_text, wait_words

MAKE = """
import datetime as dt
from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone
from synth.models import JobVoice, Segment
from voices.models import VoiceVersion
from tests.factories import make_batch
later = timezone.now() + dt.timedelta(days=1)
with transaction.atomic():  # the site's worker must never see a segment that it could begin
    batch = make_batch(get_user_model().objects.get(username="operator"), items=3)
    Segment.objects.filter(job__in=batch.items.all()).update(not_before=later)
    # A voice whose clips are not stored is soon found out, and its jobs fail.
    version = VoiceVersion.objects.get(voice={voice!r})
    JobVoice.objects.filter(job__batch=batch).update(version=version)
print(batch.pk)
"""
CANCEL = """
import uuid
from synth.transitions.batches import cancel_batch
cancel_batch(uuid.UUID({batch!r}))
"""
OPEN = "document.querySelectorAll('details').forEach((one) => (one.open = true))"


@pytest.fixture(scope="module")
def voice(site: Site) -> str:
    return site.make_voice("Batch reader")


def make_batch(site: Site, voice: str) -> str:
    """Return the id of a batch that no worker begins."""
    return str(uuid.UUID(site.run(MAKE.format(voice=voice))))


def test_page_of_a_batch_moves_by_itself(admin: webdriver.Chrome, site: Site, voice: str) -> None:
    batch = make_batch(site, voice)
    admin.get(f"{site.url}/admin/synth/textbatch/{batch}/change/")
    assert wait_for(admin, "[data-whole] [data-badge]").text == "queued"
    assert len(admin.find_elements(By.CSS_SELECTOR, "[data-job] [data-badge]")) == 3

    site.run(CANCEL.format(batch=batch))

    wait_words(admin, "[data-whole]", "3 of 3 items ended")
    assert wait_for(admin, "[data-whole] [data-badge]").text == "cancelled"
    badges = admin.find_elements(By.CSS_SELECTOR, "[data-job] [data-badge]")
    assert [badge.text for badge in badges] == ["cancelled"] * 3
    assert_fit_for_all(admin, site.url, "batch")


def test_list_of_batches_moves_by_itself(admin: webdriver.Chrome, site: Site, voice: str) -> None:
    batches = [make_batch(site, voice) for _ in range(2)]
    admin.get(f"{site.url}/admin/synth/textbatch/")
    row = f'[data-batch="{batches[0]}"] [data-badge]'
    assert wait_for(admin, row).text == "queued"

    site.run(CANCEL.format(batch=batches[0]))

    wait_text(admin, row, "cancelled")
    assert text_of(admin, f'[data-batch="{batches[0]}"] [data-counts]') == "3 cancelled"
    assert text_of(admin, f'[data-batch="{batches[1]}"] [data-badge]') == "queued"
    assert_fit_for_all(admin, site.url, "batches")
    site.run(CANCEL.format(batch=batches[1]))


def test_all_options_of_a_job_are_reached_on_a_phone(admin: webdriver.Chrome, site: Site) -> None:
    admin.get(f"{site.url}/admin/synth/renderjob/add/")
    admin.execute_script(OPEN)
    names = ("reference_audio", "reference_text", "pauses", "lexicons", "lexicon", "max_retakes")
    for name in (*names, "webhook", "live"):
        assert admin.find_elements(By.NAME, name), name
    assert_fit_for_all(admin, site.url, "job-options")
