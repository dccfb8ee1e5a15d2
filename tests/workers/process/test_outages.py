"""What passes by itself is told from what does not, and a short step outlasts it."""

from __future__ import annotations

import errno

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connection

from workers import errors as outages
from workers.errors import is_disk_full, is_outage, retry_while_away

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (OperationalError("gone"), True),
        (InterfaceError("closed"), True),
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EIO, "broken"), True),
        (FileNotFoundError(errno.ENOENT, "missing"), False),
        (IntegrityError("twice"), False),
        (ValueError("wrong"), False),
    ],
)
def test_outage_is_told_from_a_mistake(error: Exception, is_one: bool) -> None:
    assert is_outage(error) is is_one


def test_full_disk_quota_and_size_limit_are_all_a_full_disk() -> None:
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

    assert [is_disk_full(OSError(number, "")) for number in numbers] == [True, True, True, False]


def test_step_is_done_when_the_database_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "RETRY_SECONDS", 0.01)
    answers: list[Exception | str] = [OperationalError("away"), InterfaceError("away"), "done"]

    def step() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(connection, "close", lambda: None)
    assert retry_while_away(step, seconds=5) == "done"


def test_step_gives_up_after_its_time_and_at_once_for_other_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outages, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(connection, "close", lambda: None)

    def away() -> None:
        raise OperationalError("away")

    def wrong() -> None:
        raise ValueError

    with pytest.raises(OperationalError):
        retry_while_away(away, seconds=0.05)
    with pytest.raises(ValueError):
        retry_while_away(wrong, seconds=5)
