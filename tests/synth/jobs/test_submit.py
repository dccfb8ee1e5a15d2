"""Submitting jobs: which rows are made, which messages go out, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from synth.card import Card, read_card
from synth.jobs.submit import Order, Sender, insert_rows, segment_seed, submit_job
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
NOBODY = Sender(None)


def reference(content: bytes = b"") -> NewClip:
    return NewClip("What is said.", "clip.wav", content=content or clip_bytes("wav"))


def rejected(order: Order, sender: Sender = NOBODY) -> SubmitRejectedError:
    """Submit what must be refused; no row may be left behind."""
    before = RenderJob.objects.count()
    with pytest.raises(SubmitRejectedError) as caught:
        submit_job(order, sender)
    assert RenderJob.objects.count() == before
    return caught.value


def submit(order: Order, sender: Sender = NOBODY) -> RenderJob:
    job, _ = submit_job(order, sender)
    return job


def test_job_has_one_chapter_and_a_segment_per_sentence_and_the_cards_numbers(
    sent_tasks: Callable[[str], list[str]],
) -> None:
    voice = make_voice()

    job, made = submit_job(Order(TEXT, voice, top_k=3), Sender(make_user()))

    assert made
    assert [(one.index, one.spoken_text, one.pause_after_ms) for one in job.segments.all()] == [
        (0, "The first sentence of this text.", 300),
        (1, "The second sentence of it.", 0),
    ]
    assert (job.segments_total, job.chapters.count()) == (2, 1)
    assert JobVoice.objects.get(job=job).version == voice.current_version
    assert (job.temperature, job.top_p, job.top_k, job.seed) == (0.7, 0.9, 3, 0)
    voice.refresh_from_db()
    assert voice.last_used_at is not None
    assert len(sent_tasks("render_segments")) == 1  # for all segments
    assert not Segment.objects.filter(sent_at=None).exists()


def test_card_that_cannot_be_read_is_a_503_and_no_job(settings: Settings) -> None:
    (settings.CHECKPOINT / "card.json").write_text("{")

    error = rejected(Order(TEXT, make_voice()))

    assert (status_of(error), error.code) == (503, "checkpoint_card_invalid")


def test_job_is_written_with_one_commit_its_message_noted_in_it() -> None:
    voice = make_voice()

    with CaptureQueriesContext(connection) as queries:
        submit(Order(TEXT, voice))

    assert sum(one["sql"] == "COMMIT" for one in queries.captured_queries) == 1
    assert queries.captured_queries[-1]["sql"] == "COMMIT"


def test_message_that_could_not_be_sent_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "send", lambda kind, rows: False)

    submit(Order(TEXT, make_voice()))

    assert not Segment.objects.exclude(sent_at=None).exists()


def test_unknown_voice_is_a_404_and_never_another_voice() -> None:
    make_voice("Somebody")
    gone = make_voice()
    Voice.objects.filter(pk=gone.pk).update(deleted_at=timezone.now())
    inline = str(make_version().pk)  # a job's reference
    unknown = ("nobody", "7b6b1de4-6f2c-4a3c-9e0a-111111111111", "%", inline, str(gone.pk))
    for name in unknown:
        error = rejected(Order(TEXT, name), Sender(make_user()))
        assert (status_of(error), error.code) == (404, "voice_not_found"), name
    assert rejected(Order(TEXT, gone)).code == "voice_not_found"  # it was just looked up


def test_voice_without_a_version_is_not_ready_and_one_that_failed_says_why() -> None:
    assert rejected(Order(TEXT, make_voice(versions=0))).code == "voice_not_ready"
    voice = make_voice()
    voice.versions.update(status="failed", error_code="clip_silent", error_message="Only silence.")
    assert "Only silence." in str(rejected(Order(TEXT, voice)))


def test_reference_is_stored_pinned_and_sent_to_the_encoder(
    sent_tasks: Callable[[str], list[str]], stored_objects: Callable[[], list[str]]
) -> None:
    job = submit(Order(TEXT, reference=reference()))

    version = job.voices.get().version
    assert version.voice is None
    assert version.clips.get().transcript == "What is said."
    assert len(stored_objects()) == 1
    assert version.sent_at is not None
    assert len(sent_tasks("encode_voice_version")) == 1
    assert sent_tasks("render_segments") == []


def test_reference_that_is_not_taken_leaves_nothing_behind(
    stored_objects: Callable[[], list[str]],
) -> None:
    for clip, code in (
        (NewClip("What is said.", content=b"plain text"), "clip_not_audio"),
        (NewClip("What is said.", content=b""), "clip_empty"),
        (NewClip(" ", content=clip_bytes("wav")), "transcript_required"),
    ):
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
        submit(Order(TEXT, reference=reference()))

    assert stored_objects() == []
    assert not RenderJob.objects.exists()
    assert not VoiceVersion.objects.exists()


def test_two_jobs_share_the_bytes_of_one_reference_until_both_have_ended(
    stored_objects: Callable[[], list[str]],
) -> None:
    first = submit(Order(TEXT, reference=reference()))
    second = submit(Order(TEXT, reference=reference()))

    assert len(stored_objects()) == 1
    cancel_job(first.pk)
    assert len(stored_objects()) == 1
    cancel_job(second.pk)
    assert stored_objects() == []


def sender_with_key(owner: User, body_digest: str = "d") -> Sender:
    return Sender(owner, idempotency_key="k", body_digest=body_digest)


def test_key_of_a_user_gives_the_same_job_until_it_is_deleted() -> None:
    owner, order = make_user(), Order(TEXT, make_voice())
    sender, another = sender_with_key(owner), sender_with_key(make_user())

    first, made = submit_job(order, sender)
    assert made
    assert submit_job(order, sender) == (first, False)
    assert Segment.objects.count() == 2
    error = rejected(order, sender_with_key(owner, "other"))
    assert (status_of(error), error.code) == (422, "idempotency_key_reused")
    assert submit_job(order, another)[1], "another user's key is another key"
    first.delete()
    assert submit_job(order, sender)[1]


def test_lost_race_for_a_key_returns_the_winners_job(
    monkeypatch: pytest.MonkeyPatch, stored_objects: Callable[[], list[str]]
) -> None:
    sender, order = sender_with_key(make_user()), Order(TEXT, reference=reference())
    real_read = read_card

    def other_request_wins(folder: Path) -> Card:
        """Submit as the other request between our look for the key and our insert."""
        monkeypatch.setattr("synth.jobs.planning.read_card", real_read)
        submit_job(order, sender)
        return real_read(folder)

    monkeypatch.setattr("synth.jobs.planning.read_card", other_request_wins)

    job, made = submit_job(order, sender)

    assert not made
    assert job == RenderJob.objects.get()
    assert VoiceVersion.objects.count() == 1
    assert len(stored_objects()) == 1


def test_seed_is_of_the_words_the_speaker_and_the_jobs_seed_wherever_they_stand() -> None:
    given = [(0, "Hello.", 0), (1, "Hello.", 0), (0, "Hello!", 0), (0, "Hello.", 1)]
    seeds = {segment_seed(*one) for one in given}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert segment_seed(0, "Hello.", 0) == segment_seed(0, "Hello.", 0)

    voice, sentence = make_voice(), "The very same sentence is here."
    first = submit(Order(sentence, voice))
    second = submit(Order(f"Something else comes before it. {sentence}", voice))
    assert first.segments.get().seed == second.segments.get(index=1).seed
