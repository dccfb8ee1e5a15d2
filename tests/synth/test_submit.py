"""Submitting jobs: which rows are made, which messages go out, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from synth.card import Card, read_card
from synth.jobs.submit import Order, insert_rows, segment_seed, submit_job
from synth.models import JobVoice, RenderJob, Segment
from synth.transitions.jobs import cancel_job
from tests.factories import make_user, make_version, make_voice
from tests.voices.clips import clip_bytes
from ttsweb import work
from ttsweb.http.problems import status_of
from ttsweb.refusals import SubmitRejectedError
from voices.models import StoredClip, Voice, VoiceVersion
from voices.submit import NewClip

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

TEXT = "The first sentence of this text. The second sentence of it."


def reference(content: bytes = b"") -> NewClip:
    return NewClip("What is said.", "clip.wav", content=content or clip_bytes("wav"))


def rejected(order: Order, **arguments: Any) -> SubmitRejectedError:
    """Submit what must be refused; no row may be left behind."""
    before = RenderJob.objects.count()
    with pytest.raises(SubmitRejectedError) as caught:
        submit_job(order, **({"owner": None} | arguments))
    assert RenderJob.objects.count() == before
    return caught.value


def test_job_has_one_chapter_and_a_segment_per_sentence() -> None:
    voice = make_voice()

    job, made = submit_job(Order(TEXT, voice, seed=5), owner=make_user())

    segments = list(job.segments.all())
    assert made
    assert [segment.spoken_text for segment in segments] == [
        "The first sentence of this text.",
        "The second sentence of it.",
    ]
    assert [segment.index for segment in segments] == [0, 1]
    assert [segment.pause_after_ms for segment in segments] == [300, 0]
    assert job.segments_total == 2
    assert job.chapters.count() == 1
    assert JobVoice.objects.get(job=job).version == voice.current_version


def test_what_the_order_leaves_out_is_taken_from_the_card() -> None:
    job, _ = submit_job(Order(TEXT, make_voice(), top_k=3), owner=None)

    assert (job.temperature, job.top_p, job.top_k, job.seed) == (0.7, 0.9, 3, 0)


def test_card_that_cannot_be_read_is_a_503_and_no_job(settings: Settings) -> None:
    (settings.CHECKPOINT / "card.json").write_text("{")

    error = rejected(Order(TEXT, make_voice()))

    assert (status_of(error), error.code) == (503, "checkpoint_card_invalid")


def test_one_message_is_sent_for_all_segments_of_a_ready_voice(
    sent_tasks: Callable[[str], list[str]],
) -> None:
    submit_job(Order(TEXT, make_voice()), owner=None)

    assert len(sent_tasks("render_segments")) == 1
    assert not Segment.objects.filter(sent_at=None).exists()


def test_job_is_written_with_one_commit_its_message_noted_in_it() -> None:
    voice = make_voice()

    with CaptureQueriesContext(connection) as queries:
        submit_job(Order(TEXT, voice), owner=None)

    assert sum(one["sql"] == "COMMIT" for one in queries.captured_queries) == 1
    assert queries.captured_queries[-1]["sql"] == "COMMIT"


def test_message_that_could_not_be_sent_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "send", lambda kind, rows: False)

    submit_job(Order(TEXT, make_voice()), owner=None)

    assert not Segment.objects.exclude(sent_at=None).exists()


def test_job_of_a_voice_that_is_encoded_again_is_taken_and_waits(
    sent_tasks: Callable[[str], list[str]],
) -> None:
    voice = make_voice()
    voice.versions.update(status=VoiceVersion.Status.PENDING)

    job, _ = submit_job(Order(TEXT, voice), owner=None)

    assert job.status == RenderJob.Status.QUEUED
    assert sent_tasks("render_segments") == []


@pytest.mark.parametrize("spelling", ["Ada Lovelace", "ada lovelace", "ADA LOVELACE"])
def test_voice_is_found_by_its_name_in_whatever_case(spelling: str) -> None:
    voice = make_voice("Ada Lovelace")

    job, _ = submit_job(Order(TEXT, spelling), owner=make_user())

    assert job.voices.get().version.voice == voice


def test_voice_is_found_by_its_id() -> None:
    voice = make_voice()

    job, _ = submit_job(Order(TEXT, str(voice.pk)), owner=make_user())

    assert job.voices.get().version.voice == voice


def test_use_of_a_voice_is_noted() -> None:
    voice = make_voice()

    submit_job(Order(TEXT, voice), owner=None)

    voice.refresh_from_db()
    assert voice.last_used_at is not None


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("", 400, "text_empty"),
        (" \n\x01", 400, "text_empty"),
        ("a\0b", 400, "text_not_text"),
        ("half \ud800 pair", 400, "text_not_text"),
        ("...", 400, "text_unspeakable"),
        ("x" * 200_001, 413, "text_too_long"),
        ("<|speaker:1|>Hello there.", 400, "speaker_unknown"),
    ],
)
def test_bad_text_is_refused(text: str, status: int, code: str) -> None:
    error = rejected(Order(text, make_voice()))

    assert (status_of(error), error.code, error.attr) == (status, code, "text")


def test_job_needs_a_voice_or_a_reference_and_not_both() -> None:
    assert rejected(Order(TEXT)).code == "voice_required"
    assert rejected(Order(TEXT, "")).code == "voice_required"
    assert rejected(Order(TEXT, make_voice(), reference())).code == "voice_ambiguous"


@pytest.mark.parametrize("name", ["nobody", "7b6b1de4-6f2c-4a3c-9e0a-111111111111", "%"])
def test_unknown_voice_is_a_404_and_never_another_voice(name: str) -> None:
    make_voice("Somebody")

    error = rejected(Order(TEXT, name), owner=make_user())

    assert (status_of(error), error.code) == (404, "voice_not_found")


def test_voice_that_was_deleted_is_not_found_even_when_it_was_just_looked_up() -> None:
    voice = make_voice()
    Voice.objects.filter(pk=voice.pk).update(deleted_at=timezone.now())

    assert rejected(Order(TEXT, str(voice.pk)), owner=make_user()).code == "voice_not_found"
    assert rejected(Order(TEXT, voice)).code == "voice_not_found"


def test_voice_that_never_was_encoded_is_a_409_to_be_tried_again() -> None:
    error = rejected(Order(TEXT, make_voice(ready=False)))

    assert (status_of(error), error.code) == (409, "voice_not_ready")
    assert error.retry_after is not None
    assert rejected(Order(TEXT, make_voice(versions=0))).code == "voice_not_ready"


def test_voice_that_failed_is_a_409_with_the_reason() -> None:
    voice = make_voice()
    voice.versions.update(status="failed", error_code="clip_silent", error_message="Only silence.")

    error = rejected(Order(TEXT, voice))

    assert (status_of(error), error.code) == (409, "voice_failed")
    assert "Only silence." in str(error)


def test_newest_version_of_a_voice_is_the_one_that_speaks() -> None:
    voice = make_voice(versions=2)

    job, _ = submit_job(Order(TEXT, voice), owner=None)

    assert job.voices.get().version.number == 2


def test_reference_is_stored_pinned_and_sent_to_the_encoder(
    sent_tasks: Callable[[str], list[str]], stored_objects: Callable[[], list[str]]
) -> None:
    job, _ = submit_job(Order(TEXT, reference=reference()), owner=None)

    version = job.voices.get().version
    assert version.voice is None
    assert version.clips.get().transcript == "What is said."
    assert len(stored_objects()) == 1
    assert version.sent_at is not None
    assert len(sent_tasks("encode_voice_version")) == 1
    assert sent_tasks("render_segments") == []


@pytest.mark.parametrize(
    ("clip", "code"),
    [
        (NewClip("What is said.", content=b"plain text"), "clip_not_audio"),
        (NewClip("What is said.", content=b""), "clip_empty"),
        (NewClip(" ", content=clip_bytes("wav")), "transcript_required"),
    ],
)
def test_reference_that_is_not_taken_leaves_nothing_behind(
    clip: NewClip, code: str, stored_objects: Callable[[], list[str]]
) -> None:
    assert rejected(Order(TEXT, reference=clip)).code == code
    assert stored_objects() == []
    assert not StoredClip.objects.exists()


def test_reference_of_a_job_whose_rows_cannot_be_written_is_removed_again(
    monkeypatch: pytest.MonkeyPatch, stored_objects: Callable[[], list[str]]
) -> None:
    def fail_at_segments(model: type[Model], columns: Any) -> None:
        if model is Segment:
            raise RuntimeError("the database went away")
        insert_rows(model, columns)

    monkeypatch.setattr("synth.jobs.submit.insert_rows", fail_at_segments)

    with pytest.raises(RuntimeError):
        submit_job(Order(TEXT, reference=reference()), owner=None)

    assert stored_objects() == []
    assert not RenderJob.objects.exists()
    assert not VoiceVersion.objects.exists()


def test_two_jobs_share_the_bytes_of_one_reference_until_both_have_ended(
    stored_objects: Callable[[], list[str]],
) -> None:
    first, _ = submit_job(Order(TEXT, reference=reference()), owner=None)
    second, _ = submit_job(Order(TEXT, reference=reference()), owner=None)

    assert len(stored_objects()) == 1
    cancel_job(first.pk)
    assert len(stored_objects()) == 1
    cancel_job(second.pk)
    assert stored_objects() == []


def test_same_key_and_body_give_the_same_job() -> None:
    owner, order = make_user(), Order(TEXT, make_voice())
    keys: dict[str, Any] = {"owner": owner, "idempotency_key": "k", "body_digest": "d"}

    first, made = submit_job(order, **keys)
    second, made_again = submit_job(order, **keys)

    assert (made, made_again) == (True, False)
    assert first == second
    assert Segment.objects.count() == 2


def test_same_key_with_another_body_is_refused() -> None:
    owner, order = make_user(), Order(TEXT, make_voice())
    submit_job(order, owner=owner, idempotency_key="k", body_digest="one")

    error = rejected(order, owner=owner, idempotency_key="k", body_digest="two")

    assert (status_of(error), error.code) == (422, "idempotency_key_reused")


def test_key_of_another_user_is_another_key() -> None:
    order = Order(TEXT, make_voice())

    for _ in range(2):
        _, made = submit_job(order, owner=make_user(), idempotency_key="k", body_digest="d")
        assert made


def test_key_is_taken_again_once_its_job_was_deleted() -> None:
    owner, order = make_user(), Order(TEXT, make_voice())
    keys: dict[str, Any] = {"owner": owner, "idempotency_key": "k", "body_digest": "d"}
    first, _ = submit_job(order, **keys)
    first.delete()

    _, made = submit_job(order, **keys)

    assert made


def test_lost_race_for_a_key_returns_the_winners_job(
    monkeypatch: pytest.MonkeyPatch, stored_objects: Callable[[], list[str]]
) -> None:
    owner, order = make_user(), Order(TEXT, reference=reference())
    keys: dict[str, Any] = {"owner": owner, "idempotency_key": "k", "body_digest": "d"}
    real_read = read_card

    def other_request_wins(folder: Path) -> Card:
        """Submit as the other request between our look for the key and our insert."""
        monkeypatch.setattr("synth.jobs.planning.read_card", real_read)
        submit_job(order, **keys)
        return real_read(folder)

    monkeypatch.setattr("synth.jobs.planning.read_card", other_request_wins)

    job, made = submit_job(order, **keys)

    assert not made
    assert job == RenderJob.objects.get()
    assert VoiceVersion.objects.count() == 1
    assert len(stored_objects()) == 1


def test_seed_of_a_segment_is_of_its_words_its_speaker_and_the_jobs_seed() -> None:
    seeds = {
        segment_seed(0, "Hello.", 0),
        segment_seed(1, "Hello.", 0),
        segment_seed(0, "Hello!", 0),
        segment_seed(0, "Hello.", 1),
    }

    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert segment_seed(0, "Hello.", 0) == segment_seed(0, "Hello.", 0)


def test_same_sentence_has_the_same_seed_wherever_it_stands() -> None:
    voice = make_voice()
    sentence = "The very same sentence is here."
    first, _ = submit_job(Order(sentence, voice), owner=None)
    second, _ = submit_job(Order(f"Something else comes before it. {sentence}", voice), owner=None)

    assert first.segments.get().seed == second.segments.get(index=1).seed


def test_inline_version_is_not_found_as_a_voice() -> None:
    version = make_version()

    assert rejected(Order(TEXT, str(version.pk)), owner=make_user()).code == "voice_not_found"
