"""What is told of a job follows from its rows, and from the id of what was told before."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from synth.api.jobs.events import (
    MAX_ID_CHARS,
    MAX_IDS_PER_BATCH,
    BadEventIdError,
    JobState,
    Seen,
    news,
    read_changed,
)
from synth.jobs.retry import retry
from synth.models import RenderJob, Segment
from synth.transitions.jobs import cancel_job
from tests.factories import make_job, make_take

pytestmark = pytest.mark.django_db(transaction=True)

Told = list[tuple[str, dict[str, Any]]]
Status = RenderJob.Status


def state_of(job: RenderJob) -> JobState:
    """Read one job."""
    state: JobState = read_changed({job.pk: (None,)})[job.pk]
    return state


def parse(text: str) -> tuple[Told, list[str]]:
    """Return name and data of each event of a stream, and the ids."""
    answer, ids = [], []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "event" in fields:
            answer.append((fields["event"], json.loads(fields["data"])))
        if "id" in fields:
            ids.append(fields["id"])
    return answer, ids


def tell(seen: Seen, job: RenderJob) -> list[str]:
    """Return short forms of what is new: `state running`, `segment 0 done`, `progress 1`."""
    answer, _ = parse("".join(news(seen, state_of(job))))
    short = {
        "state": lambda data: f"state {data['status']}",
        "segment": lambda data: f"segment {data['index']} {data['status']}",
        "progress": lambda data: f"progress {data['segments_done']}",
    }
    return [short[name](data) for name, data in answer]


def close(job: RenderJob, index: int, status: str = "done") -> None:
    """Close a segment as a worker does: the segment's row, and the job's counter."""
    job.segments.filter(index=index).update(status=status)
    if status == "done":
        make_take([job.segments.get(index=index)], audio_seconds=1.5)
    job.refresh_from_db()
    job.status = Status.RUNNING
    setattr(job, f"segments_{status}", getattr(job, f"segments_{status}") + 1)
    job.save()


def test_events_follow_a_job_from_the_queue_to_its_end() -> None:
    job, seen = make_job(segments=2), Seen()

    assert tell(seen, job) == ["state queued", "progress 0"]
    assert tell(seen, job) == []
    close(job, 1)
    assert tell(seen, job) == ["state running", "segment 1 done", "progress 1"]
    close(job, 0, "failed")
    RenderJob.objects.filter(pk=job.pk).update(status=Status.PARTIAL)
    assert tell(seen, job) == ["segment 0 failed", "progress 1", "state partial"]
    assert tell(seen, job) == []


def test_events_say_what_a_client_needs_to_go_on() -> None:
    job = make_job(segments=1)
    close(job, 0)
    RenderJob.objects.filter(pk=job.pk).update(status=Status.SUCCEEDED, audio_seconds=1.8)

    answer, _ = parse("".join(news(Seen(), state_of(job))))

    # fmt: off
    segment = {"chapter": 0, "index": 0, "status": "done", "error_code": "", "audio_seconds": 1.5}
    progress = {"progress": 1.0, "segments_total": 1, "segments_done": 1, "segments_failed": 0,
                "segments_cancelled": 0, "audio_seconds": 1.8}
    state = {"status": "succeeded", "final": True, "error_code": "", "error_message": "",
             "audio_url": f"/api/v1/jobs/{job.pk}/audio"}
    # fmt: on
    assert answer == [("segment", segment), ("progress", progress), ("state", state)]


def test_every_id_leads_to_exactly_what_came_after_it() -> None:
    job = make_job(segments=4)
    for index in (0, 2, 3):
        close(job, index)
    state = state_of(job)
    answer, ids = parse("".join(news(Seen(), state)))
    assert len(ids) == len(answer) == 5

    for number, event_id in enumerate(ids, start=1):
        again = Seen.from_event_id(event_id, max_segments=4)
        assert parse("".join(news(again, state)))[0] == answer[number:]


def test_long_replay_has_few_ids_and_the_last_event_has_one() -> None:
    job = make_job(segments=0)
    chapter = job.chapters.get()
    Segment.objects.bulk_create(
        Segment(job=job, chapter=chapter, index=i, text="a", spoken_text="a", seed=i, status="done")
        for i in range(1000)
    )

    text = "".join(news(Seen(), state_of(job)))

    answer, ids = parse(text)
    assert len(answer) == 1002
    assert 50 < len(ids) <= MAX_IDS_PER_BATCH
    assert text.rstrip("\n").rsplit("\n\n", 1)[-1].startswith("id: queued!0.0.0!0:0-999!!")


def test_cancelled_and_retried_job_takes_its_segments_back() -> None:
    job, seen = make_job(segments=2), Seen()
    close(job, 0)
    tell(seen, job)

    cancel_job(job.pk)
    assert tell(seen, job) == ["segment 1 cancelled", "progress 1", "state cancelled"]
    job.refresh_from_db()
    retry(job)
    again = tell(Seen.from_event_id(seen.event_id(), max_segments=2), job)
    assert again == ["state queued", "segment 1 queued", "progress 1"]


def test_look_at_jobs_that_did_not_change_is_one_query(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    jobs = [make_job(segments=3) for _ in range(3)]
    marks = {job.pk: [state_of(job).mark] for job in jobs}
    gone = uuid.uuid4()

    with django_assert_num_queries(1):
        assert read_changed(marks) == {}
    close(jobs[1], 0)
    with django_assert_num_queries(2):
        read_changed(marks)
    with django_assert_num_queries(3):  # what is no job might be a batch of books
        found = read_changed({**marks, gone: [None]})

    assert set(found) == {jobs[1].pk, gone}
    assert found[gone] is None


def test_id_gives_back_what_was_seen() -> None:
    closed = {(0, index): "done" for index in (0, 1, 2, 4, 6, 7)} | {(0, 5): "failed"}
    closed |= {(1, 0): "done", (3, 9): "cancelled"}
    seen = Seen("running", (7, 1, 1), closed)

    text = seen.event_id()

    assert text == "running!7.1.1!0:0-2,4,6-7;1:0!0:5!3:9"
    assert Seen.from_event_id(text, max_segments=9) == seen
    assert Seen.from_event_id(Seen().event_id(), max_segments=0) == Seen()


def test_id_of_many_gaps_stays_short_and_names_nothing_that_was_not_seen() -> None:
    closed = {(chapter, index): "done" for chapter in range(9) for index in range(0, 2000, 2)}
    closed |= {(0, index): "failed" for index in range(1, 2000, 2)}
    seen = Seen("running", (1, 1, 0), closed)

    text = seen.event_id()
    read = Seen.from_event_id(text, max_segments=20_000)

    assert len(text) < MAX_ID_CHARS + 50
    assert 500 < len(read.closed) < len(closed)
    assert read.closed.items() <= closed.items()
    assert Seen.from_event_id(seen.event_id(10**9), max_segments=20_000) == seen


@pytest.mark.parametrize("max_chars", range(12))
def test_id_can_be_cut_at_any_length(max_chars: int) -> None:
    seen = Seen("", (), {(10, 1): "done", (10, 3): "done", (11, 1): "done"})

    read = Seen.from_event_id(seen.event_id(max_chars), max_segments=3)

    assert read.closed.items() <= seen.closed.items()


@pytest.mark.parametrize(
    "text",
    [
        "x", "5", "!", "a!b!c!d!e", "running!1!0:0", "running!1.0.0!0:0!!!", "RUNNING!!!!",
        "running!1.x.0!!!", "running!1.-1.0!!!", "running!!0!!", "running!!0:!!",
        "running!!0:5-3!!",
        "running!!:1!!", "running!!x:1!!", "running!!0:1,!!", "running!!0:\uff11!!",
        "running!!0:0-9999999!!", "running!!0:0-9!0:0!", "running!!0:0-5;1:0-5!!",
        "running!!0:12345678!!", "running!!0:0-0-0!!",
    ],
)  # fmt: skip
def test_text_that_is_no_id_of_a_job_of_ten_segments_is_refused(text: str) -> None:
    with pytest.raises(BadEventIdError):
        Seen.from_event_id(text, max_segments=10)
