"""Rows inserted by their columns, on SQLite and on PostgreSQL."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import DataError, IntegrityError

from synth.jobs.submit import columns_of, insert_rows
from synth.models import Chapter, JobVoice, RenderJob
from tests.factories import make_job

MOMENT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
TEXTS = ["It's 100 % {new}, \\n and %s.", 'A "quote", a\nline; a \\ and a ☂.', "", "NULL"]


def jobs() -> list[RenderJob]:
    """Return unsaved rows in which columns of every kind differ."""
    return [
        RenderJob(
            text=text,
            temperature=0.5 + number,
            top_p=0.8,
            top_k=number,
            seed=2**62 + number,
            pauses={"sentence": number} if number else {},
            lexicon=[{"find": text, "say": None}],
            normalise=bool(number % 2),
            deadline_at=MOMENT if number == 1 else None,
            sample_rate=None if number else 24_000,
            item_index=number,
        )
        for number, text in enumerate(TEXTS)
    ]


def answer(row: RenderJob) -> dict[str, Any]:
    """Return a row without what differs between any two."""
    own = ("id", "created_at", "updated_at")
    values = RenderJob.objects.filter(pk=row.pk).values().get()
    return {name: value for name, value in values.items() if name not in own}


@pytest.mark.usefixtures("database")
def test_rows_are_as_bulk_create_writes_them() -> None:
    rows, twins = jobs(), jobs()
    RenderJob.objects.bulk_create(twins)
    insert_rows(
        RenderJob, columns_of(rows) | {"created_at": [MOMENT] * 4, "updated_at": [MOMENT] * 4}
    )

    assert [answer(row) for row in rows] == [answer(twin) for twin in twins]
    assert {row.created_at for row in RenderJob.objects.filter(pk=rows[2].pk)} == {MOMENT}


@pytest.mark.usefixtures("database")
def test_columns_that_are_not_named_have_their_defaults_and_rows_keep_their_order() -> None:
    first, second = make_job(), make_job()
    Chapter.objects.all().delete()

    insert_rows(Chapter, {"job_id": [second.pk, first.pk]})
    insert_rows(Chapter, {"job_id": [first.pk], "index": [1]})

    rows = Chapter.objects.order_by("pk").values_list("job", "index", "title")
    assert list(rows) == [(second.pk, 0, ""), (first.pk, 0, ""), (first.pk, 1, "")]


def test_what_the_database_refuses_is_an_error_and_nothing_is_cut(database: str) -> None:
    job = make_job()
    version = job.voices.get().version_id

    with pytest.raises(IntegrityError):
        insert_rows(JobVoice, {"job_id": [job.pk], "speaker": [0], "version_id": [version]})
    if database == "postgres":  # SQLite has no limits of lengths
        with pytest.raises(DataError):
            insert_rows(
                Chapter, {"job_id": [job.pk] * 2, "index": [1, 2], "title": ["A" * 301] * 2}
            )
