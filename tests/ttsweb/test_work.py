"""Rows that wait wake workers after the commit, by few messages however many rows there are."""

from __future__ import annotations

import pytest
from django.db import transaction
from pytest_django import DjangoAssertNumQueries

from synth.models import Segment
from tests.factories import make_job
from ttsweb import work
from ttsweb.work import FILL_LIVE, MOST_MESSAGES, SEGMENTS_PER_MESSAGE, Kind


class Broker:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.is_away = False

    def send_task(self, name: str, **_: object) -> None:
        if self.is_away:
            raise ConnectionError
        self.sent.append(name)


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(work, "current_app", made)
    return made


@pytest.mark.parametrize(
    ("kind", "rows", "messages"),
    [
        (Kind.SEGMENT, 10_000, MOST_MESSAGES), (Kind.SEGMENT, SEGMENTS_PER_MESSAGE, 1),
        (Kind.SEGMENT, SEGMENTS_PER_MESSAGE + 1, 2), (Kind.EXPORT, 3, 3),
        (Kind.EXPORT, 100, MOST_MESSAGES), (Kind.BOOK, 1, 1),
    ],
)  # fmt: skip
def test_messages_are_bounded_however_many_rows_wait(
    kind: Kind, rows: int, messages: int, broker: Broker
) -> None:
    assert work.send(kind, rows)
    assert broker.sent == messages * [kind.task]


def test_message_that_the_broker_does_not_take_is_noted_as_not_sent(
    broker: Broker, transactional_db: None
) -> None:
    broker.is_away = True
    assert not work.send(Kind.EXPORT, 3)
    work.enqueue(Kind.SEGMENT, [make_job(segments=1).segments.get().pk])
    assert Segment.objects.get().sent_at is None


@pytest.mark.django_db(transaction=True)
def test_workers_are_woken_after_the_commit_and_the_rows_say_so_before_it(broker: Broker) -> None:
    first, second = make_job(segments=2).segments.all()

    with transaction.atomic():
        work.enqueue(Kind.SEGMENT, [second.pk])
        work.enqueue_task(FILL_LIVE)
        assert broker.sent == []
        assert list(Segment.objects.filter(sent_at=None)) == [first]

    assert broker.sent == [Kind.SEGMENT.task, FILL_LIVE]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_sent_for_an_undone_transaction_or_for_no_rows(
    broker: Broker, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    segment = make_job(segments=1).segments.get()
    with pytest.raises(LookupError), transaction.atomic():
        work.enqueue(Kind.SEGMENT, [segment.pk])
        raise LookupError
    with django_assert_num_queries(0):
        work.enqueue(Kind.SEGMENT, [])
    segment.refresh_from_db()
    assert (broker.sent, segment.sent_at) == ([], None)
