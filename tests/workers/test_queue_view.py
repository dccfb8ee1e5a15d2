"""The view that programs scale workers by: what would be claimed now, and what is held."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from synth.models import BookFile, BookSource, Export, RenderJob, Segment
from synth.transitions.claims import claimable_segments
from tests.factories import (
    CODEC_FINGERPRINT,
    claim,
    make_book,
    make_book_file,
    make_delivery,
    make_ended_job,
    make_export,
    make_job,
    make_transcript,
    make_user,
    make_version,
    make_voice,
)
from tests.workers.pairs import Pair, assert_whole, submit, wait_ended, wait_for
from ttsweb import leases
from ttsweb.work import ROLES, Kind
from workers.kinds import WORKS

pytestmark = pytest.mark.usefixtures("pair")

HOUR = dt.timedelta(hours=1)
KINDS = {kind.label: kind for kind in WORKS}


def read_view() -> dict[str, dict[str, Any]]:
    """Return the rows by kind, without it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind, role, waiting, held, oldest_seconds FROM tts_queue")
        rows = cursor.fetchall()
    assert len({row[0] for row in rows}) == len(rows)
    names = ("role", "waiting", "held", "oldest_seconds")
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def ask(role: str) -> int:
    """Return what the chart's KEDA asks."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT SUM(waiting + held) FROM tts_queue WHERE role = %s", [role])
        return int(cursor.fetchone()[0])


def claimable(kind: Kind) -> set[Any]:
    """Return what a worker would claim, as the product itself asks it."""
    rows: Any = WORKS[kind].waiting()
    if kind is Kind.SEGMENT:
        rows = claimable_segments(CODEC_FINGERPRINT)
    return set(rows.values_list("pk", flat=True))


def check_equal() -> None:
    """Hold every row of the view to what workers would claim and what they hold."""
    found = read_view()
    assert set(found) == set(KINDS)
    for label, kind in KINDS.items():
        held = kind.model._default_manager.filter(claim_token__isnull=False)
        expected = (len(claimable(kind)), held.count())
        assert (found[label]["waiting"], found[label]["held"]) == expected, label


def test_empty_queue_has_a_row_for_each_kind_that_says_which_worker_takes_it() -> None:
    rows = read_view()
    assert {label: row.pop("role") for label, row in rows.items()} == {
        label: role for label, kind in KINDS.items() for role in ("gpu", "cpu")
        if kind.queue in ROLES[role]
    }  # fmt: skip
    assert all(row == {"waiting": 0, "held": 0, "oldest_seconds": 0} for row in rows.values())
    assert (ask("gpu"), ask("cpu")) == (0, 0)


def test_only_segments_that_may_be_rendered_now_wait() -> None:
    owner, past, future = make_user(), timezone.now() - HOUR, timezone.now() + HOUR
    private = make_voice(owner=make_user())
    make_job(segments=3)
    make_job(segments=2, status=RenderJob.Status.RUNNING, deadline_at=future)
    make_job(version=make_version(None), owner=owner)  # its own clip
    make_job(voice=private, owner=make_user(is_superuser=True))
    make_job(voice=private)  # the installation's own
    make_job(voice=make_voice(owner=make_user(), shared=True), owner=owner)
    make_job(voice=make_voice(versions=0))  # without a voice
    assert read_view()["segment"]["waiting"] == 10
    for kept_back in (
        {"cancel_requested": True}, {"paused_at": past}, {"deadline_at": past},
        {"status": RenderJob.Status.CANCELLED}, {"voice": make_voice(ready=False)},
        {"voice": make_voice(deleted_at=past)}, {"voice": make_voice(consent_withdrawn_at=past)},
        {"voice": private, "owner": owner},
    ):  # fmt: skip
        make_job(**kept_back)
    make_job().segments.update(not_before=future)
    make_job().segments.update(status=Segment.Status.DONE)

    assert read_view()["segment"]["waiting"] == 10
    check_equal()


def test_segment_waits_no_longer_for_the_take_that_another_one_renders() -> None:
    first, second = make_job(), make_job()
    claim(1)
    Segment.objects.filter(job=first).update(content_key="k" * 64)
    Segment.objects.filter(job=second).update(content_key="k" * 64)

    assert (read_view()["segment"]["waiting"], read_view()["segment"]["held"]) == (0, 1)
    check_equal()


def test_what_is_claimed_counts_until_it_ends_so_that_no_worker_is_taken_away_from_it() -> None:
    owner, now = make_user(), timezone.now()
    make_job(segments=3)
    make_version(status="pending")
    make_transcript(owner)
    make_export(make_ended_job(owner), format="mp3", status=Export.Status.QUEUED)
    make_delivery(owner)
    make_book(owner, state=BookSource.State.IMPORTING)
    made = make_book_file(make_book(owner, job=make_ended_job(owner)))
    BookFile.objects.filter(pk=made.pk).update(status=BookFile.Status.QUEUED)
    for kind in KINDS.values():  # one of each is due for an hour
        pk = next(iter(claimable(kind)))
        kind.model._default_manager.filter(pk=pk).update(not_before=now - HOUR)
    make_version(status="pending", not_before=now + HOUR)
    check_equal()
    assert (ask("gpu"), ask("cpu")) == (5, 4)
    assert all(3600 <= row["oldest_seconds"] < 7200 for row in read_view().values())

    for kind in KINDS.values():
        if kind is Kind.SEGMENT:
            claim(100)
        else:
            pks = list(claimable(kind))
            assert len(leases.claim(WORKS[kind].waiting(), pks, worker="w")) == len(pks)

    assert {row["waiting"] for row in read_view().values()} == {0}
    assert {row["oldest_seconds"] for row in read_view().values()} == {0}
    assert (ask("gpu"), ask("cpu")) == (5, 4)
    check_equal()
    # A worker that is gone leaves a lease that ran out: some worker has to come and free it.
    Segment.objects.update(lease_until=now - HOUR)
    assert ask("gpu") == 5

    done = {"claim_token": None, "status": "done"}
    Segment.objects.update(**done)
    for kind in set(KINDS.values()) - {Kind.SEGMENT}:
        rows = kind.model._default_manager.filter(claim_token__isnull=False)
        rows.update(**{kind.model.STATE: "failed", "claim_token": None})
    assert (ask("gpu"), ask("cpu")) == (0, 0)


def test_view_outlives_migrations_that_take_tables_below_it_away() -> None:
    make_job(segments=2)
    if connection.vendor == "postgresql":  # and so does who may look
        with connection.cursor() as cursor:
            cursor.execute("GRANT SELECT ON tts_queue TO PUBLIC")

    call_command("migrate", "voices", "0002", verbosity=0)
    call_command("migrate", verbosity=0)

    assert read_view()["segment"]["waiting"] == 2
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT relacl::text FROM pg_class WHERE relname = 'tts_queue'")
            assert "=r/" in cursor.fetchone()[0]


def test_view_misses_workers_for_a_job_until_it_has_ended_and_then_none(pair: Pair) -> None:
    worker, voice = pair.start_with_voice()
    assert worker.stop() == 0
    assert (ask("gpu"), ask("cpu")) == (0, 0)

    job = submit(voice, sentences=3)
    assert (ask("gpu"), ask("cpu")) == (3, 0)
    pair.start_worker("another-pod")

    def is_over() -> bool:
        wanted = ask("gpu") + ask("cpu")
        job.refresh_from_db()
        assert wanted or job.status in RenderJob.FINAL  # nobody is sent away from running work
        return not wanted

    wait_for(is_over, what="nobody is needed any more")
    wait_ended(job)
    assert_whole(job)
