"""A message starts what the pump would start, and nonsense in it is dropped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import current_app

from synth.engine import Engine
from synth.models import Segment
from tests.factories import make_export, make_job, make_version, make_voice
from tests.workers.conftest import MiniatureProcess
from ttsweb.leases import LeasedModel
from ttsweb.work import ADVANCE_BOOK_BATCH, FILL_LIVE, SWEEP, Kind
from workers.kinds import WORKS
from workers.process import claiming, worker_process

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def current(process: MiniatureProcess) -> Iterator[None]:
    """This interpreter is a worker process."""
    worker_process.set_current_process(process)
    yield
    worker_process.set_current_process(None)


def held(process: MiniatureProcess) -> list[tuple[Kind, object]]:
    return [(claim.kind, claim.pk) for claim in process.held.of(*Kind)]


def test_every_message_reaches_its_row(process: MiniatureProcess) -> None:
    codec = process.host.engine.codec_fingerprint
    make_job(version=make_version(codec_fingerprint=codec))
    segment, export = Segment.objects.get(), make_export(status="queued")
    version = make_voice(ready=False).current_version
    assert version is not None
    claiming.look(Kind.EXPORT)
    claiming.look(Kind.VERSION)
    assert set(held(process)) == {(Kind.EXPORT, export.pk), (Kind.VERSION, version.pk)}
    claiming.look(Kind.SEGMENT)
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
    claiming.look(Kind.SEGMENT)
    claiming.take_work(process)
    assert process.held.count(Kind.SEGMENT) == 4, "there was room for one more"
    assert sentence.pk in [claim.job_id for claim in process.held.of(Kind.SEGMENT)]
    assert books.pk not in [claim.job_id for claim in process.held.of(Kind.SEGMENT)]


def test_message_where_no_row_waits_is_nothing(process: MiniatureProcess) -> None:
    for kind in WORKS:
        claiming.look(kind)
    assert held(process) == []
    claiming.take_work(process)
    assert held(process) == []


@pytest.mark.parametrize("argument", [None, 7, "no id", [], {"a": 1}])
def test_argument_of_no_id_is_dropped(argument: object, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        claiming.advance_book_batch(argument)
    assert "message dropped" in caplog.text


def test_message_outside_of_our_worker_says_what_to_start(caplog: pytest.LogCaptureFixture) -> None:
    worker_process.set_current_process(None)
    claiming.look(Kind.EXPORT)
    assert "./tts worker" in caplog.text


def test_tasks_have_the_names_that_are_sent_and_routed() -> None:
    named = {kind.task for kind in Kind if kind.task}
    assert len(named) == 7
    assert named | {FILL_LIVE, ADVANCE_BOOK_BATCH, SWEEP} <= set(current_app.tasks)
    assert {queue.name for queue in current_app.conf.task_queues} == {kind.queue for kind in Kind}


def test_every_leased_model_is_a_kind_and_every_kind_with_a_message_has_its_work() -> None:
    assert {kind.model for kind in Kind} == set(LeasedModel.__subclasses__())
    assert set(WORKS) == {kind for kind in Kind if kind.task}
    assert all(callable(work.perform) for work in WORKS.values())


def test_name_of_a_message_stands_in_one_file() -> None:
    root = Path(claiming.__file__).parents[2]
    names = [f'"{name}"' for name in (FILL_LIVE, ADVANCE_BOOK_BATCH, SWEEP)]
    names += [f'"{kind.task}"' for kind in Kind if kind.task]
    folders = ("synth", "voices", "workers", "ttsweb")
    paths = [path for folder in folders for path in (root / folder).rglob("*.py")]
    texts = {str(path.relative_to(root)): path.read_text() for path in paths}
    for name in names:
        assert [path for path, text in texts.items() if name in text] == ["ttsweb/work.py"]
    assert current_app.conf.accept_content == ["json"], "a pickled message is refused"
