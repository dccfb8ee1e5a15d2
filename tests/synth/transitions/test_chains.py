"""Chained segments keep their order, hold up nobody, and go with an earlier one that changes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from synth.jobs.planning import LONGEST, links_of
from synth.models import Export, RenderJob, Segment, Take
from synth.transitions.claims import SegmentClaim
from synth.transitions.jobs import JobStatus, complete_jobs
from synth.transitions.segment_edits import choose_take, render_again, say_otherwise
from synth.transitions.segments import fail_segment, finish_segments
from tests.factories import claim, make_job, make_take, stored

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Status = Segment.Status


def make_chained(
    *, chapters: int = 1, length: int = LONGEST, history: int = 1, speakers: Sequence[int] = (0,)
) -> RenderJob:
    """Return a job whose chapters have one chain for each speaker, who take turns."""
    job = make_job(segments=0, history=history)
    rows = []
    for number in range(chapters):
        chapter = job.chapters.get_or_create(index=number)[0]
        who = [speakers[index % len(speakers)] for index in range(length)]
        for index, link in enumerate(links_of(who, [1] * length)):
            rows.append(
                Segment(
                    job=job, chapter=chapter, index=index, text=f"Said {index}.",
                    spoken_text=f"Said {index}.", seed=index, speaker=who[index],
                    chain=link.chain, chain_place=link.place, chain_left=link.left,
                )
            )  # fmt: skip
    Segment.objects.bulk_create(rows)
    RenderJob.objects.filter(pk=job.pk).update(segments_total=len(rows))
    return job


def places(claims: Sequence[SegmentClaim]) -> list[tuple[int, int]]:
    """Return chapter and index of claimed segments, in order."""
    rows = Segment.objects.filter(pk__in=[one.pk for one in claims])
    return sorted(rows.values_list("chapter__index", "index"))


def finish(claims: Sequence[SegmentClaim]) -> None:
    finish_segments([(one, make_take()) for one in claims])


def finish_all(job: RenderJob) -> None:
    """Render a job to its end, and make its file."""
    while claims := claim():
        finish(claims)
    assert Export.objects.get(job=job).status == Export.Status.QUEUED
    Export.objects.filter(job=job).update(status=Export.Status.DONE)
    RenderJob.objects.filter(pk=job.pk).update(status=JobStatus.SUCCEEDED)


def statuses(job: RenderJob) -> str:
    """Return the first letters of the statuses of a job's segments, in order."""
    rows = job.segments.order_by("chapter__index", "index")
    return "".join(status[0] for status in rows.values_list("status", flat=True))


def test_each_waits_for_the_one_before_it_and_chapters_go_side_by_side() -> None:
    make_chained(chapters=5, length=3)
    plain = make_job(segments=2)

    first = claim(6)
    chained = [one for one in first if one.job_id != plain.pk]
    assert places(chained) == [(number, 0) for number in range(5)]
    assert [one.job_id for one in claim()] == [plain.pk], "nothing else is free"
    finish(chained[1:3])
    assert places(claim()) == [(1, 1), (2, 1)]


def test_speakers_who_take_turns_do_not_wait_for_each_other() -> None:
    make_chained(length=6, speakers=(0, 1))

    assert places(claim()) == [(0, 0), (0, 1)]


def test_segment_that_failed_holds_up_nobody() -> None:
    job = make_chained(length=3)

    (one,) = claim()
    fail_segment(one, code="x", message="y")
    (two,) = claim()
    assert places([two]) == [(0, 1)]
    finish([two])
    assert places(claim()) == [(0, 2)]
    assert statuses(job) == "fdc"


def test_named_segment_waits_as_well() -> None:
    """What a message brings, and a suspect that runs alone, are named."""
    job = make_chained(length=2)
    last = job.segments.get(index=1)

    assert claim(ids=[last.pk]) == []
    finish(claim(1))
    assert [one.pk for one in claim(ids=[last.pk])] == [last.pk]


@pytest.mark.parametrize("edit", ["text", "seed", "choose"])
@pytest.mark.parametrize("history", [1, 2])
def test_edit_renders_itself_and_its_followers_up_to_the_bound_and_no_more(
    edit: str, history: int
) -> None:
    job = make_chained(chapters=2, length=LONGEST + 3, history=history)
    finish_all(job)
    edited = job.segments.get(chapter__index=0, index=2)
    takes = dict(job.segments.values_list("pk", "take"))
    assert edited.chain_left == LONGEST - 3

    if edit == "text":
        assert say_otherwise(edited.pk, spoken_text="Else.", seed=5, is_hand_picked=False)
    elif edit == "seed":
        assert render_again(edited.pk)
    else:
        other = make_take()
        edited.candidate_takes.add(other)
        candidate = {"take": str(other.pk), "seed": 9, "seconds": 1, "score": 1, "flags": []}
        Segment.objects.filter(pk=edited.pk).update(candidates=[candidate | {"measures": []}])
        assert choose_take(edited.pk, other.pk)

    followers = "q" * (LONGEST - 3)
    own = "d" if edit == "choose" else "q"
    assert statuses(job) == "dd" + own + followers + "ddd" + "d" * (LONGEST + 3)
    total = 2 * (LONGEST + 3)
    assert stored(job, "status", "segments_done") == (
        JobStatus.RUNNING, total - len(followers) - (own == "q"),
    )  # fmt: skip
    assert not Export.objects.filter(job=job).exists()
    gone = [takes[row.pk] for row in job.segments.filter(status="queued")]
    kept = Take.objects.filter(pk__in=gone)
    assert kept.count() == (edit == "seed"), "another take of the edited one stays to choose from"

    order = []
    while claims := claim():
        order += places(claims)
        finish(claims)
    assert order == [(0, index) for index in range(2 if own == "q" else 3, LONGEST)]
    assert stored(job, "segments_done") == (total,)


def test_take_that_a_person_chose_stays_and_ends_the_chain_of_changes() -> None:
    job = make_chained(length=5)
    finish_all(job)
    job.segments.filter(index=2).update(is_hand_picked=True)

    render_again(job.segments.get(index=0).pk)

    assert statuses(job) == "qqddd"


def test_with_two_earlier_ones_what_follows_a_chosen_take_still_changes() -> None:
    job = make_chained(length=5, history=2)
    finish_all(job)
    job.segments.filter(index=2).update(is_hand_picked=True)

    render_again(job.segments.get(index=0).pk)

    assert statuses(job) == "qqdqq"


def test_follower_that_is_being_rendered_is_taken_from_its_worker() -> None:
    job = make_chained(length=3)
    (one,) = claim()
    fail_segment(one, code="x", message="y")
    (two,) = claim()
    Segment.objects.filter(pk=two.pk).update(history_used=0)

    assert render_again(one.pk)

    assert statuses(job) == "qqq"
    assert finish_segments([(two, make_take())]) == set(), "its answer comes too late"
    row = job.segments.get(index=1)
    assert (row.history_used, row.attempts, row.claim_token) == (None, 0, None)
    assert places(claim()) == [(0, 0)]


def test_looking_reads_the_index_of_chains() -> None:
    job = make_chained(chapters=40, length=30)
    make_chained(chapters=1)
    assert job.segments.count() == 1200

    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert len(claim(64)) == 64
    assert len(queries) < 40
    if connection.vendor == "sqlite":
        looks = [one["sql"] for one in queries if "segment" in one["sql"] and "chain" in one["sql"]]
        plans = []
        with connection.cursor() as cursor:
            for sql in looks:
                if sql.startswith("SELECT"):
                    cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                    plans += [row[3] for row in cursor.fetchall()]
        assert any("segment_chain" in plan for plan in plans), plans


def test_complete_job_is_not_complete_while_followers_wait() -> None:
    job = make_chained(length=2)
    finish_all(job)
    render_again(job.segments.get(index=0).pk)
    finish(claim())

    complete_jobs([job.pk])
    assert stored(job, "status") == (JobStatus.RUNNING,)
