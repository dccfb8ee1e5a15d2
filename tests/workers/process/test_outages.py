"""What passes by itself is told from what does not, and a short step outlasts it."""

from __future__ import annotations

import errno
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connection

from workers import errors as outages
from workers.errors import is_disk_full, is_outage, retry_while_away

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
