"""What passes by itself is told from what does not, and a short step outlasts it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connection
from django.utils import timezone
from pytest_django import Settings

from tests.workers.conftest import MiniatureProcess
from tests.workers.process.conftest import SiteOf
from voices.models import Voice, VoiceVersion
from workers import kinds as outages
from workers.bounded_child import StarvedError
from workers.kinds import is_disk_full, is_outage, retry_while_away
from workers.process.claiming import take_work

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("error", "is_one", "is_full"),
    [
        (OperationalError("gone"), True, False),
        (InterfaceError("closed"), True, False),
        (OSError(errno.ENOSPC, "full"), True, True),
        (OSError(errno.EDQUOT, "quota"), True, True),
        (OSError(errno.EFBIG, "limit"), True, True),
        (OSError(errno.EIO, "broken"), True, False),
        (FileNotFoundError(errno.ENOENT, "missing"), False, False),
        (IntegrityError("twice"), False, False),
        (ValueError("wrong"), False, False),
    ],
)
def test_outage_is_told_from_a_mistake(error: Exception, is_one: bool, is_full: bool) -> None:
    assert (is_outage(error), is_disk_full(error)) == (is_one, is_full)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A step that is tried again at once, and whose connection nobody closes."""
    monkeypatch.setattr(outages, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(connection, "close", lambda: None)
    return Mock()


def test_step_is_done_when_the_database_is_back(tries: Mock) -> None:
    tries.side_effect = [OperationalError("away"), InterfaceError("away"), "done"]

    assert retry_while_away(tries, seconds=5) == "done"


@pytest.mark.parametrize(("error", "seconds"), [(OperationalError("away"), 0.05), (ValueError, 5)])
def test_step_gives_up_after_its_time_and_at_once_for_other_errors(
    tries: Mock, error: Any, seconds: float
) -> None:
    tries.side_effect = error

    with pytest.raises((OperationalError, ValueError)):
        retry_while_away(tries, seconds=seconds)

    assert (tries.call_count == 1) is (error is ValueError)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_clip_whose_decoding_got_no_processor_is_tried_again_and_at_last_told(
    make_process: Callable[..., MiniatureProcess],
    site_of: SiteOf,
    where: str,
    voice: Voice,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = make_process(site=site_of(where))
    starved = Mock(side_effect=StarvedError("clip_decode_timeout", "It took too long."))
    monkeypatch.setattr("workers.rendering.uploads.decode_clip", starved)
    rows = VoiceVersion.objects.filter(voice=voice)

    for attempts in range(1, settings.MAX_ATTEMPTS + 1):
        take_work(process)  # the last attempt is made alone
        process.run_all()
        status = "failed" if attempts == settings.MAX_ATTEMPTS else "pending"
        assert rows.values_list("status", "attempts").get() == (status, attempts)
        rows.update(not_before=timezone.now())

    found = rows.values_list("error_code", "error_message").get()
    assert found == ("clip_decode_timeout", "It took too long.")
    assert starved.call_count == settings.MAX_ATTEMPTS
