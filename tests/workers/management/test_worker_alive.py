"""The probe that containers ask about their worker."""

from __future__ import annotations

import datetime as dt
import socket

import pytest
from django.core.management import call_command
from django.utils import timezone

from synth.models import WorkerStatus
from ttsweb.commands.base import CommandError

pytestmark = pytest.mark.django_db


def make_status(*, seconds_ago: float = 0, **fields: str) -> None:
    """Write the row of a worker of this host."""
    seen = timezone.now() - dt.timedelta(seconds=seconds_ago)
    values = {"name": f"{socket.gethostname()}-gpu", "role": "gpu", "state": "ready"} | fields
    WorkerStatus.objects.create(started_at=seen, last_seen_at=seen, **values)


@pytest.mark.parametrize("state", ["starting", "warming", "ready", "draining"])
def test_worker_that_was_seen_now_is_alive(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_status(state=state)
    call_command("worker_alive", "--role", "gpu")
    assert capsys.readouterr().out == f"{socket.gethostname()}-gpu is {state}\n"


@pytest.mark.parametrize(
    ("fields", "seconds_ago", "words"),
    [
        ({}, 90.0, r"No worker with the role gpu .* has reported for 60 s"),
        ({"role": "cpu"}, 0.0, r"No worker with the role gpu .* has reported for 60 s"),
        (
            {"name": "another-host-gpu"},
            0.0,
            r"No worker with the role gpu .* has reported for 60 s",
        ),
        ({"state": "failed", "detail": "It lacks a key."}, 0.0, r"failed\. It lacks a key\."),
    ],
)
def test_other_silent_or_failed_worker_does_not_count(
    fields: dict[str, str], seconds_ago: float, words: str
) -> None:
    make_status(seconds_ago=seconds_ago, **fields)
    with pytest.raises(CommandError, match=words):
        call_command("worker_alive", "--role", "gpu")
