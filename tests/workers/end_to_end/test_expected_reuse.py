"""What a plan counts as spoken before is what a worker would find by its content keys."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from django.utils import timezone

from synth.audiobooks import expectations
from synth.audiobooks.expectations import expected_reuse
from synth.audiobooks.plans import load_plan
from synth.audiobooks.start import start_book
from synth.models import Segment, WorkerStatus
from tests.factories import make_take
from tests.synth.books_api.shelf import CHAPTERS, store_book
from tests.synth.test_take_keys import ENGINE
from tests.workers.conftest import MiniatureProcess
from ttsweb.work import Kind
from voices.models import Voice
from workers.process.claiming import take
from workers.rendering.render_request import RenderRequest, build_requests


@pytest.mark.django_db(transaction=True)
def test_plan_counts_the_takes_that_a_worker_would_use_again(
    process: MiniatureProcess, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(process, Kind.VERSION)
    process.run_all()
    book = store_book()
    plan = load_plan(book)
    unknown = expected_reuse(book, plan)
    now = timezone.now()
    WorkerStatus.objects.create(
        name="gpu", role="gpu", started_at=now, last_seen_at=now,
        engine_class=asdict(process.host.engine.engine_class),
    )  # fmt: skip
    before = expected_reuse(book, plan)
    segments = list(Segment.objects.filter(job=start_book(store_book())).order_by("pk"))
    assert process.codes is not None
    requests = build_requests([one.pk for one in segments], process.codes, process.host.engine)
    spoken = segments[: len(segments) // 2]
    for segment in spoken:
        request = requests[segment.pk]
        assert isinstance(request, RenderRequest)
        make_take(content_key=request.content_key)

    found = expected_reuse(book, plan)
    otherwise = expected_reuse(store_book(options=book.options | {"seed": 8}), plan)
    monkeypatch.setattr(expectations, "MOST_CHARS", 10)  # one chapter of the three speaks for all
    about = expected_reuse(book, plan)

    assert unknown is None
    assert (before, otherwise) == ((len(segments), 0, 0.0), (len(segments), 0, 0.0))
    assert found is not None
    assert (found.segments, found.reused) == (len(segments), len(spoken))
    chars = [len(one.spoken_text) for one in segments]
    assert found.share == pytest.approx(sum(chars[: len(spoken)]) / sum(chars))
    assert about is not None
    assert abs(about.segments - len(segments)) <= len(CHAPTERS)

    engine = replace(process.host.engine.engine_class, backend="of another class")
    WorkerStatus.objects.create(
        name="newer", role="gpu", started_at=now, last_seen_at=timezone.now(),
        engine_class=asdict(engine), state="ready",
    )  # fmt: skip
    monkeypatch.undo()
    assert (
        expected_reuse(book, plan) == before
    )  # those of the worker that is not there do not count
    WorkerStatus.objects.update(state="ready")
    assert expected_reuse(book, plan) == found


@pytest.mark.django_db(transaction=True)
def test_nothing_is_told_while_the_voice_is_not_encoded(voice: Voice) -> None:
    now = timezone.now()
    WorkerStatus.objects.create(
        name="gpu", role="gpu", started_at=now, last_seen_at=now, engine_class=asdict(ENGINE)
    )
    book = store_book()

    assert expected_reuse(book, load_plan(book)) is None
