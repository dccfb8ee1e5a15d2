"""What may be listened to, what is refused, and what an ended job answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from rest_framework.test import APIClient

from synth.formats import FORMATS
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER
from synth.live.watcher import (
    Chunk,
    Pause,
    Place,
    SegmentState,
    Sound,
    end_live,
    keep_live,
    request_live,
)
from synth.models import RenderJob
from tests.factories import make_ended_job, make_job, make_user

pytestmark = pytest.mark.django_db(transaction=True)


def get(api: APIClient, job: RenderJob, query: str, method: str = "GET") -> Any:
    path = reverse("job-audio", args=[job.pk])
    return api.generic(method, f"{path}?{query}")


def requested(job: RenderJob) -> bool:
    return RenderJob.objects.get(pk=job.pk).live_requested_at is not None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("live=1", LiveOptions("mp3", 24_000, 64_000, 1.5)),
        *(
            (f"live=true&format={one}", LiveOptions(one, 24_000, None, 1.5))
            for one in ("pcm", "aac")
        ),
    ],
)
def test_unfinished_job_is_noted_and_handed_to_the_streams(
    api: APIClient,
    operator: User,
    sent_tasks: Callable[[str], list[str]],
    query: str,
    said: LiveOptions,
) -> None:
    options: dict[str, Any] = {
        "format": "mp3",
        "sample_rate": 24_000,
        "bit_rate": 64_000,
        "speed": 1.5,
    }
    job = make_job(owner=operator, **options)

    answer = get(api, job, query)

    assert answer.status_code == 200
    assert answer["Content-Type"] == FORMATS[said.format].content_type
    assert LiveOptions.from_header(answer[LIVE_HEADER]) == said
    assert answer["Cache-Control"] == "private, no-store"
    assert requested(job)
    assert len(sent_tasks("fill_live")) == 1
    get(api, job, query)
    assert len(sent_tasks("fill_live")) == 1  # it was asked for a moment ago


def test_head_says_what_would_come_and_changes_nothing(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)

    answer = get(api, job, "live=1&format=pcm", "HEAD")

    assert (answer.status_code, answer["Content-Type"]) == (200, "audio/pcm")
    assert LIVE_HEADER not in answer
    assert not requested(job)


def test_query_that_is_not_acted_on_is_refused(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)
    for query, code in (
        ("live=2", "invalid_choice"), ("live=", "invalid_choice"), ("live=%00", "invalid_choice"),
        ("live=1&format=m4b", "invalid_choice"), ("live=1&rate=8000", "unknown_field"),
        ("format=pcm", "live_required"), ("live=0&format=wav", "live_required"),
    ):  # fmt: skip
        answer = get(api, job, query)
        assert (answer.status_code, answer.json()["code"]) == (400, code), query
    assert not requested(job)


def test_ended_job_sends_its_file_unless_a_format_is_asked_for(
    api: APIClient, operator: User
) -> None:
    job = make_ended_job(operator)

    for query in ("live=1", "live=0"):
        assert b"".join(get(api, job, query).streaming_content) == b"0123456789"
    assert not requested(job)
    assert get(api, job, "live=1&format=pcm")[LIVE_HEADER] == LiveOptions("pcm").to_header()
    assert requested(job)


def test_ended_job_without_audio_and_another_users_job_say_why_and_are_not_noted(
    api: APIClient, operator: User
) -> None:
    cancelled = make_job(owner=operator, status=RenderJob.Status.CANCELLED)
    other = make_job(owner=make_user())

    for job, query, code in (
        (cancelled, "live=1", "job_without_audio"),
        (cancelled, "live=1&format=pcm", "job_without_audio"),
        (other, "live=1", "job_not_found"),
    ):
        answer = get(api, job, query)
        assert (answer.status_code, answer.json()["code"]) == (404, code)
    assert not requested(other)


def test_job_is_forgotten_only_after_its_end_and_when_nobody_listens(operator: User) -> None:
    running, ended = make_job(owner=operator), make_ended_job(operator)
    for job in (running, ended):
        request_live(job.pk)
    long_ago = "2020-01-01T00:00:00Z"
    RenderJob.objects.update(live_requested_at=long_ago, finished_at=long_ago)

    keep_live([ended.pk])
    assert end_live(keep_seconds=60) == 0
    RenderJob.objects.update(live_requested_at=long_ago)
    assert end_live(keep_seconds=60) == 1

    assert (requested(running), requested(ended)) == (True, False)
    assert keep_live([ended.pk]) == 0  # who comes again has to ask


RATE = 1000
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def chunks(name: str, *lengths: int, is_whole: bool = False, rate: int = RATE) -> list[Chunk]:
    """Return the pieces of one attempt, whose keys are its name and their index."""
    last = len(lengths) - 1
    return [
        Chunk(index, f"{name}{index}" if length else "", length, rate, is_whole and index == last)
        for index, length in enumerate(lengths)
    ]


def state(
    status: str = "claimed",
    take: uuid.UUID | None = None,
    pause: int = 0,
    **attempts: Sequence[Chunk],
) -> SegmentState:
    """Return a segment's state; `first` and `second` are attempts, the newer one named first."""
    names = {"first": FIRST, "second": SECOND}
    return SegmentState(status, take, pause, {names[name]: one for name, one in attempts.items()})


def steps(place: Place, *states: SegmentState) -> list[str]:
    """Return what follows, as text, until nothing does."""
    found = []
    while step := place.step(dict(enumerate(states, start=1))):
        if isinstance(step, Pause):
            found.append(f"pause {step.num_samples}" if step.num_samples else "end")
        else:
            found.append(f"{step.key}+{step.skip}:{step.num_samples}")
    return found


A10 = state(first=chunks("a", 10))
WHOLE_B = state("done", SECOND, second=chunks("b", 4, is_whole=True))
SPOKEN = state("done", FIRST, first=chunks("a", 4, is_whole=True))
LISTED = chunks("a", 10, 5, 3, is_whole=True)
FAILED = state("failed", pause=300)
# What is there at each look, and what follows of it; at last, whether the job is over.
PLAYS: dict[str, tuple[int, list[tuple[list[SegmentState], list[str]]], bool]] = {
    "pieces as they come, the next segment behind the pause": (2, [
        ([state()], []),
        ([A10], ["a0+0:10"]),
        ([state(first=chunks("a", 10, 5))], ["a1+0:5"]),
        ([state("done", FIRST, 200, first=LISTED), state(first=chunks("b", 7))],
         ["a2+0:3", "pause 200", "b0+0:7"]),
    ], False),
    "an end that has no samples of its own": (1, [
        ([state(first=chunks("a", 10, 0, is_whole=True))], ["a0+0:10", "end"]),
    ], True),
    "a piece behind one that is missing waits for it": (1, [
        ([state(first=[LISTED[0], LISTED[2]])], ["a0+0:10"]),
        ([state(first=LISTED)], ["a1+0:5", "a2+0:3", "end"]),
    ], True),
    "a lost attempt is left at the sample where it stops": (1, [
        ([state(first=chunks("a", 10, 5))], ["a0+0:10", "a1+0:5"]),
        ([state(second=chunks("b", 10, 4), first=chunks("a", 10, 5))], []),
        ([state(second=chunks("b", 10, 7, is_whole=True), first=chunks("a", 10, 5))],
         ["b1+5:2", "end"]),
    ], True),
    "an attempt that goes on is not left for a newer one": (1, [
        ([A10], ["a0+0:10"]),
        ([state(second=chunks("b", 10, 9), first=chunks("a", 10, 5))], ["a1+0:5", "b1+5:4"]),
    ], False),
    "an older attempt is never gone back to": (1, [
        ([state(second=chunks("b", 5))], ["b0+0:5"]),
        ([state(second=chunks("b", 5), first=chunks("a", 5, 5))], []),
    ], False),
    "a finished segment is heard as its take alone": (1, [
        ([state("done", FIRST, second=chunks("b", 9, is_whole=True), first=SPOKEN.attempts[FIRST])],
         ["a0+0:4", "end"]),
    ], True),
    "unless it was begun": (1, [
        ([state(second=chunks("b", 5))], ["b0+0:5"]),
        ([state("done", FIRST, second=chunks("b", 5, 4, is_whole=True))], ["b1+0:4", "end"]),
    ], True),
    "a take whose pieces are still to be made is waited for": (1, [
        ([state("done", FIRST, second=chunks("b", 9))], []),
    ], False),
    "a segment without audio is passed over with its pause": (4, [
        ([FAILED, SPOKEN._replace(pause_after_ms=100), state("cancelled", pause=300), FAILED],
         ["a0+0:4", "pause 100"]),
    ], True),
    "a segment that fails when it was heard in part ends there": (2, [
        ([A10], ["a0+0:10"]),
        ([state("failed", first=chunks("a", 10)), WHOLE_B], ["end", "b0+0:4", "end"]),
    ], True),
    "another sample rate ends the stream": (2, [
        ([SPOKEN, state("done", SECOND, second=chunks("b", 4, is_whole=True, rate=RATE * 2))],
         ["a0+0:4", "end"]),
    ], True),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
def test_listener_hears(name: str) -> None:
    segments, looks, is_over = PLAYS[name]
    place = Place(range(1, segments + 1))
    for states, expected in looks:
        assert steps(place, *states) == expected
    assert place.is_over == is_over


def test_window_moves_with_the_place_and_a_sound_says_its_rate() -> None:
    place = Place([1, 2, 3, 4, 5, 6])
    assert list(place.window) == [1, 2, 3, 4]
    steps(place, FAILED, FAILED, FAILED)
    assert list(place.window) == [4, 5, 6]
    assert Place([1]).step({1: state(first=chunks("a", 4))}) == Sound("a0", 0, 4, RATE)
