"""What may be listened to, what is refused, and what an ended job answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from rest_framework.test import APIClient

from synth.live.streams import LIVE_HEADER
from synth.live.watcher import (
    Chunk,
    Place,
    SegmentState,
    Silence,
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


@pytest.mark.parametrize(("query", "said"), [("live=1", "wav"), ("live=true&format=pcm", "pcm")])
def test_unfinished_job_is_noted_and_handed_to_the_streams(
    api: APIClient, operator: User, sent_tasks: Callable[[str], list[str]], query: str, said: str
) -> None:
    job = make_job(owner=operator)

    answer = get(api, job, query)

    assert (answer.status_code, answer[LIVE_HEADER]) == (200, said)
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


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("live=2", "invalid_choice"),
        ("live=", "invalid_choice"),
        ("live=%00", "invalid_choice"),
        ("live=1&format=mp3", "invalid_choice"),
        ("live=1&rate=8000", "unknown_field"),
        ("format=pcm", "live_required"),
        ("live=0&format=wav", "live_required"),
    ],
)
def test_query_that_is_not_acted_on_is_refused(
    api: APIClient, operator: User, query: str, code: str
) -> None:
    job = make_job(owner=operator)

    answer = get(api, job, query)

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not requested(job)


def test_job_with_a_speed_is_refused_with_what_to_do(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator, speed=1.5)

    answer = get(api, job, "live=1")

    assert (answer.status_code, answer.json()["code"]) == (409, "live_not_possible")
    assert "speed 1.5" in answer.json()["detail"]
    assert "speed 1 to listen" in answer.json()["detail"]


def test_ended_job_sends_its_file_unless_samples_are_asked_for(
    api: APIClient, operator: User
) -> None:
    job = make_ended_job(operator)

    assert b"".join(get(api, job, "live=1").streaming_content) == b"0123456789"
    assert b"".join(get(api, job, "live=0").streaming_content) == b"0123456789"
    assert not requested(job)
    assert get(api, job, "live=1&format=pcm")[LIVE_HEADER] == "pcm"
    assert requested(job)


def test_ended_job_without_audio_says_why(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator, status=RenderJob.Status.CANCELLED)

    for query in ("live=1", "live=1&format=pcm"):
        answer = get(api, job, query)
        assert (answer.status_code, answer.json()["code"]) == (404, "job_without_audio")


def test_another_users_job_is_not_there_and_is_not_noted(api: APIClient) -> None:
    job = make_job(owner=make_user())

    answer = get(api, job, "live=1")

    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
    assert not requested(job)


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
        if isinstance(step, Silence):
            found.append(f"pause {step.num_samples}")
        else:
            found.append(f"{step.key}+{step.skip}:{step.num_samples}")
    return found


def test_pieces_are_played_as_they_come_and_the_next_segment_follows_the_pause() -> None:
    place = Place([1, 2])

    assert steps(place, state()) == []
    assert steps(place, state(first=chunks("a", 10))) == ["a0+0:10"]
    assert steps(place, state(first=chunks("a", 10, 5))) == ["a1+0:5"]
    whole = state("done", FIRST, 200, first=chunks("a", 10, 5, 3, is_whole=True))
    assert steps(place, whole, state(first=chunks("b", 7))) == ["a2+0:3", "pause 200", "b0+0:7"]
    assert not place.is_over


def test_end_that_has_no_samples_of_its_own_is_an_end() -> None:
    place = Place([1])

    assert steps(place, state(first=chunks("a", 10, 0, is_whole=True))) == ["a0+0:10"]
    assert place.is_over


def test_piece_behind_one_that_is_missing_waits_for_it() -> None:
    place, listed = Place([1]), chunks("a", 10, 5, 3, is_whole=True)

    assert steps(place, state(first=[listed[0], listed[2]])) == ["a0+0:10"]
    assert steps(place, state(first=listed)) == ["a1+0:5", "a2+0:3"]


def test_lost_attempt_is_left_at_the_sample_where_it_stops() -> None:
    place = Place([1])
    steps(place, state(first=chunks("a", 10, 5)))

    behind = state(second=chunks("b", 10, 4), first=chunks("a", 10, 5))
    assert steps(place, behind) == []
    ahead = state(second=chunks("b", 10, 7, is_whole=True), first=chunks("a", 10, 5))
    assert steps(place, ahead) == ["b1+5:2"]
    assert place.is_over


def test_attempt_that_goes_on_is_not_left_for_a_newer_one() -> None:
    place = Place([1])
    steps(place, state(first=chunks("a", 10)))

    both = state(second=chunks("b", 10, 9), first=chunks("a", 10, 5))
    assert steps(place, both)[0] == "a1+0:5"


def test_older_attempt_is_never_gone_back_to() -> None:
    place = Place([1])
    steps(place, state(second=chunks("b", 5)))

    older_is_longer = state(second=chunks("b", 5), first=chunks("a", 5, 5))
    assert steps(place, older_is_longer) == []


def test_finished_segment_is_heard_as_its_take_alone_unless_it_was_begun() -> None:
    both = state(
        "done", FIRST, second=chunks("b", 9, is_whole=True), first=chunks("a", 4, is_whole=True)
    )

    assert steps(Place([1]), both) == ["a0+0:4"]
    begun = Place([1])
    steps(begun, state(second=chunks("b", 5)))
    assert steps(begun, state("done", FIRST, second=chunks("b", 5, 4, is_whole=True))) == ["b1+0:4"]


def test_take_whose_pieces_are_still_to_be_made_is_waited_for() -> None:
    place = Place([1])

    assert steps(place, state("done", FIRST, second=chunks("b", 9))) == []
    assert not place.is_over


def test_segment_without_audio_is_passed_over_with_its_pause() -> None:
    failed, cancelled, spoken = (
        state("failed", pause=300),
        state("cancelled", pause=300),
        state("done", FIRST, 100, first=chunks("a", 4, is_whole=True)),
    )
    place = Place([1, 2, 3, 4])

    assert steps(place, failed, spoken, cancelled, failed) == ["a0+0:4", "pause 100"]
    assert place.is_over


def test_segment_that_fails_when_it_was_heard_in_part_ends_there() -> None:
    place = Place([1, 2])
    steps(place, state(first=chunks("a", 10)))

    spoken = state("done", SECOND, second=chunks("b", 4, is_whole=True))
    assert steps(place, state("failed", first=chunks("a", 10)), spoken) == ["b0+0:4"]


def test_another_sample_rate_ends_the_stream() -> None:
    place = Place([1, 2])
    spoken = state("done", FIRST, first=chunks("a", 4, is_whole=True))
    other = state("done", SECOND, second=chunks("b", 4, is_whole=True, rate=RATE * 2))

    assert steps(place, spoken, other) == ["a0+0:4"]
    assert place.is_over


def test_window_moves_with_the_place() -> None:
    place = Place([1, 2, 3, 4, 5, 6])
    assert list(place.window) == [1, 2, 3, 4]

    steps(place, state("failed"), state("failed"), state("failed"))

    assert list(place.window) == [4, 5, 6]


def test_sound_says_the_rate() -> None:
    step = Place([1]).step({1: state(first=chunks("a", 4))})

    assert step == Sound("a0", 0, 4, RATE)
