"""A message starts what the pump would start, and nonsense in it is dropped."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from synth.engine import Engine
from synth.models import Segment
from tests.factories import make_export, make_job, make_version, make_voice
from tests.workers.conftest import MiniatureProcess
from workers import tasks
from workers.celery import app
from workers.process import claiming, running
from workers.process.held_claims import Kind

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def current(process: MiniatureProcess) -> Iterator[None]:
    """This interpreter is a worker process."""
    running.set_current(process)
    yield
    running.set_current(None)


def held(process: MiniatureProcess) -> list[tuple[Kind, object]]:
    return [(claim.kind, claim.pk) for claim in process.held.of(*Kind)]


def test_every_message_reaches_its_row(process: MiniatureProcess) -> None:
    codec = process.host.engine.codec_fingerprint
    make_job(version=make_version(codec_fingerprint=codec))
    segment, export = Segment.objects.get(), make_export(status="queued")
    version = make_voice(ready=False).current_version
    assert version is not None

    tasks.assemble(str(export.pk))
    tasks.encode_voice_version(str(version.pk))
    assert held(process) == unordered((Kind.EXPORT, export.pk), (Kind.VERSION, version.pk))

    tasks.render_segments([segment.pk])
    assert process.wake.is_set(), "the pump sleeps on"
    claiming.take_work(process)
    assert (Kind.SEGMENT, segment.pk) in held(process)


def test_message_of_a_lane_with_much_in_flight_does_not_jump_the_order(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "slots", 2)
    version = make_version(codec_fingerprint=process.host.engine.codec_fingerprint)
    make_job(version=version, lane="books", segments=9)
    claiming.take_work(process)
    books = make_job(version=version, lane="books", segments=9)
    sentence = make_job(version=version, lane="other")
    process.held.drop(process.held.of(Kind.SEGMENT)[0])

    tasks.render_segments(list(books.segments.values_list("pk", flat=True)))
    claiming.take_work(process)

    assert process.held.count(Kind.SEGMENT) == 4, "there was room for one more"
    assert sentence.pk in [claim.job_id for claim in process.held.of(Kind.SEGMENT)]
    assert books.pk not in [claim.job_id for claim in process.held.of(Kind.SEGMENT)]


def unordered(*pairs: tuple[Kind, object]) -> object:
    class Same:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, list) and set(other) == set(pairs)

    return Same()


def test_message_of_a_row_that_is_gone_is_nothing(process: MiniatureProcess) -> None:
    tasks.render_segments([1, 2, 3])
    tasks.assemble(str(uuid.uuid4()))
    tasks.encode_voice_version(str(uuid.uuid4()))

    assert held(process) == []
    claiming.take_work(process)
    assert held(process) == []


@pytest.mark.parametrize("task", [tasks.assemble, tasks.encode_voice_version])
@pytest.mark.parametrize("argument", [None, 7, "no id", [], {"a": 1}])
def test_argument_that_is_no_id_is_dropped(
    task: object, argument: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        task(argument)  # type: ignore[operator]

    assert "message dropped" in caplog.text


@pytest.mark.parametrize(
    "argument", [None, 7, "123", ["1"], [True], [-1], [2**63], [1.5], list(range(1, 1002))]
)
def test_argument_that_is_no_list_of_ids_is_dropped(
    argument: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tasks.render_segments(argument)

    assert "message dropped" in caplog.text


def test_message_outside_of_our_worker_says_what_to_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running.set_current(None)

    tasks.assemble(str(uuid.uuid4()))

    assert "./tts worker" in caplog.text


def test_tasks_have_the_names_that_are_sent_and_routed() -> None:
    routes = app.conf.task_routes

    for name in routes:
        assert name in app.tasks


def test_pickled_message_is_refused() -> None:
    assert app.conf.accept_content == ["json"]
