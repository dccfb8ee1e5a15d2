"""A segment with history is rendered after the takes before it, and says where it is not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.api.jobs.serializers import SegmentSerializer
from synth.audiobooks.expectations import expected_reuse
from synth.audiobooks.plans import load_plan
from synth.audiobooks.start import start_book
from synth.contract import RenderSpec
from synth.engine.errors import PromptTooLongError
from synth.models import RenderJob, Segment, Take
from synth.transitions.segment_edits import render_again, say_otherwise
from synth.transitions.segments import fail_segment, reopen_segments
from tests.factories import make_worker, stored
from tests.synth.books_api.shelf import refusal_of, store_book
from tests.workers.conftest import TINY, MiniatureProcess
from tests.workers.engines import OtherEngine
from tests.workers.pairs import submit
from ttsweb.work import Kind
from voices.models import Voice
from workers.process.claiming import take_segments
from workers.rendering.codes import unpack_codes

pytestmark = pytest.mark.django_db(transaction=True)
TEXTS = ["Ox one.", "Ox two.", "Ox three.", "Ox four."]  # one chain: none begins one by its words


@pytest.fixture(autouse=True)
def card(tmp_path: Path, settings: Settings) -> None:
    """A card that allows history; the engine is that of the other tests."""
    settings.CHECKPOINT = tmp_path / "allowing"
    settings.CHECKPOINT.mkdir()
    allowing = {"name": "x", "licence": "y", "history": 2, "quality_screen": False}
    (settings.CHECKPOINT / "card.json").write_text(json.dumps(allowing))


@pytest.fixture
def asked(process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch) -> list[RenderSpec]:
    """What the engine is asked for, in order."""
    specs: list[RenderSpec] = []
    submit_to_engine = process.host.engine.submit

    def note(spec: RenderSpec, **how: Any) -> Any:
        specs.append(spec)
        return submit_to_engine(spec, **how)

    monkeypatch.setattr(process.host.engine, "submit", note)
    return specs


def submit_chain(voice: Voice, history: int = 2) -> RenderJob:
    return submit(voice, text="\n\n".join(TEXTS), history=history)


def render(process: MiniatureProcess) -> None:
    """Render what can be claimed until nothing can; bulk work that is put off is waited for."""
    while take_segments(process):
        process.run_all()
        time.sleep(process.ahead.put_off(is_urgent=False))


def said_before(spec: RenderSpec) -> list[str]:
    return [turn.text for turn in spec.history]


def used(job: RenderJob) -> list[int | None]:
    return list(job.segments.order_by("index").values_list("history_used", flat=True))


def test_each_segment_is_rendered_after_the_takes_before_it_and_all_are_found_again(
    process: MiniatureProcess, ready: Voice, asked: list[RenderSpec]
) -> None:
    job = submit_chain(ready)

    render(process)

    assert [said_before(spec) for spec in asked] == [
        [], TEXTS[:1], TEXTS[:2], TEXTS[1:3],
    ]  # fmt: skip
    takes = [row.take for row in job.segments.select_related("take").order_by("index")]
    for turn, take in zip(asked[3].history, takes[1:3], strict=True):
        assert take is not None and turn.key == take.content_key
        codes = unpack_codes(default_storage.open(take.codes_key).read(), {})
        assert np.array_equal(turn.codes, codes)
    assert used(job) == [0, 1, 2, 2]
    shown = SegmentSerializer(job.segments.get(index=3)).data
    assert (shown["history"], shown["history_expected"], shown["followers"]) == (2, 2, 0)
    assert stored(job, "takes_rendered", "takes_reused") == (4, 0)

    again = submit_chain(ready)
    render(process)
    assert len(asked) == 4
    assert stored(again, "takes_rendered", "takes_reused") == (0, 4)
    plain = submit_chain(ready, history=0)
    render(process)
    assert [said_before(spec) for spec in asked[4:]] == [[], [], []], "the first take is the same"
    assert stored(plain, "takes_rendered", "takes_reused") == (3, 1)
    assert used(plain) == [None] * 4


def test_edited_sentence_and_its_followers_are_other_takes(
    process: MiniatureProcess, ready: Voice, asked: list[RenderSpec]
) -> None:
    job = submit_chain(ready, history=1)
    render(process)
    before = list(job.segments.order_by("index").values_list("take__content_key", flat=True))
    edited = job.segments.get(index=1)
    del asked[:]

    say_otherwise(edited.pk, spoken_text="Cow.", seed=1, is_hand_picked=False)
    render(process)

    assert [spec.text for spec in asked] == ["Cow.", *TEXTS[2:]]
    assert said_before(asked[1]) == ["Cow."]
    after = list(job.segments.order_by("index").values_list("take__content_key", flat=True))
    assert [one == other for one, other in zip(before, after, strict=True)] == [
        True, False, False, False,
    ]  # fmt: skip
    assert Take.objects.count() == 4, "those that nobody has went"


def test_after_a_segment_that_failed_the_next_begins_anew_and_says_so(
    process: MiniatureProcess, ready: Voice, asked: list[RenderSpec]
) -> None:
    job = submit_chain(ready)
    assert take_segments(process)
    process.run_all()
    assert take_segments(process)
    (claim,) = process.held.of(Kind.SEGMENT)
    fail_segment(claim, code="x", message="y")
    process.run_all()

    render(process)

    assert [said_before(spec) for spec in asked[-2:]] == [[], TEXTS[2:3]]
    assert used(job)[2:] == [0, 1]
    shown = SegmentSerializer(job.segments.get(index=2)).data
    assert (shown["history"], shown["history_expected"]) == (0, 2)


def test_takes_of_another_decoder_are_no_history(
    process: MiniatureProcess,
    ready: Voice,
    asked: list[RenderSpec],
    make_process: Callable[..., MiniatureProcess],
) -> None:
    job = submit_chain(ready)
    for _ in TEXTS[:2]:
        take_segments(process)
        process.run_all()
    other: Any = OtherEngine(process.host.engine, decoder="d" * 64)

    render(make_process(engine=other, name="other"))

    assert [said_before(spec) for spec in asked] == [[], TEXTS[:1], [], TEXTS[2:3]]
    assert used(job) == [0, 1, 0, 1]


def test_history_without_stored_codes_or_too_long_is_left_out(
    process: MiniatureProcess,
    ready: Voice,
    asked: list[RenderSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = submit_chain(ready)
    render(process)
    rows = list(job.segments.select_related("take").order_by("index"))
    frames = [row.take.frames for row in rows if row.take is not None]
    monkeypatch.setattr("workers.rendering.render.MOST_HISTORY_FRAMES", sum(frames[1:3]) - 1)

    render_again(rows[3].pk)
    render(process)
    assert (said_before(asked[-1]), used(job)[3]) == (TEXTS[2:3], 1)

    assert rows[2].take is not None
    default_storage.delete(rows[2].take.codes_key)
    render_again(rows[3].pk)
    render(process)
    assert (said_before(asked[-1]), used(job)[3]) == ([], 0)


def test_engine_without_room_for_the_history_renders_without(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_to_engine, asked = process.host.engine.submit, []

    def refuse_history(spec: RenderSpec, **how: Any) -> Any:
        asked.append(said_before(spec))
        future = submit_to_engine(spec, **how)
        if spec.history:
            future.cancel()
            future = type(future)()
            future.set_exception(PromptTooLongError(positions=9, limit=5))
        return future

    monkeypatch.setattr(process.host.engine, "submit", refuse_history)
    job = submit_chain(ready, history=1)

    render(process)

    assert asked == [[], TEXTS[:1], [], TEXTS[1:2], [], TEXTS[2:3], []]
    assert used(job) == [0] * 4
    assert set(job.segments.values_list("status", "attempts")) == {("done", 1)}


def test_segment_that_was_claimed_too_early_waits(
    process: MiniatureProcess, ready: Voice, asked: list[RenderSpec]
) -> None:
    job = submit_chain(ready, history=1)
    for _ in range(2):
        take_segments(process)
        process.run_all()
    take_segments(process)
    reopen_segments([job.segments.get(index=1).pk])
    process.run_all()

    assert stored(job.segments.get(index=2), "status", "attempts") == (Segment.Status.QUEUED, 0)
    render(process)
    assert used(job) == [0, 1, 1, 1]


def test_book_has_the_history_of_the_card_and_its_plan_counts_the_takes_that_are_there(
    process: MiniatureProcess, ready: Voice, asked: list[RenderSpec], settings: Settings
) -> None:
    make_worker("gpu", engine_class=asdict(process.host.engine.engine_class))
    chapters = [("Oxen", "Ox two. Ox six."), ("Cows", "Cow one. Cow two.")]
    book = store_book(None, chapters)
    job = start_book(book)

    assert job.history == 2
    render(process)
    segments = list(job.segments.order_by("chapter__index", "index"))
    expected = [min(one.chain_place or 0, 2) for one in segments]
    assert [one.history_used for one in segments] == expected and max(expected) > 0
    heads = [one.spoken_text for one in segments if one.chapter.index == 1 and one.index == 0]
    assert [said_before(one) for one in asked if one.text == heads[0]] == [[]], "chapters are apart"

    again = store_book(None, chapters)
    found = expected_reuse(again, load_plan(again))
    assert found is not None and (found.segments, found.reused) == (len(segments), len(segments))
    edited = store_book(None, [("Oxen", "Ox one. Ox six."), chapters[1]])
    found = expected_reuse(edited, load_plan(edited))
    assert found is not None and 0 < found.reused < len(segments)

    plain = start_book(store_book(None, chapters, options=book.options | {"history": 0}))
    assert (plain.history, set(plain.segments.values_list("chain", flat=True))) == (0, {None})
    settings.CHECKPOINT = TINY  # whose card says nothing of it
    assert start_book(store_book(None, chapters)).history == 0
    refused = refusal_of(store_book(None, chapters, options=book.options | {"history": 1}))
    assert (refused.code, refused.attr) == ("history_not_supported", "history")
