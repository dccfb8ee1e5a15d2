"""A worker proposes what is said in a clip: with any transcriber, and with PocketSphinx itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import soundfile
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.models import Segment
from tests.factories import make_transcript, make_user
from tests.workers.clips import wav_bytes
from tests.workers.commands import CLIP, TRANSCRIPT
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from tests.workers.rendering.plugged import Lenient, Parrot, Sleeper
from ttsweb.configuration.builders import TRANSCRIBERS
from ttsweb.install.extras import EXTRAS
from ttsweb.work import Kind
from voices.models import Transcript, Voice
from workers.process.claiming import take
from workers.rendering import transcriber
from workers.rendering.transcriber import (
    TranscriberError,
    error_rate,
    find_factory,
    hears,
    make_transcriber,
)

pytestmark = pytest.mark.django_db(transaction=True)


def propose(process: MiniatureProcess, content: bytes, language: str = "en") -> Transcript:
    """Have the process hear a clip; return what became of it."""
    key = default_storage.save("transcripts/x/clip.wav", ContentFile(content))
    user = make_user("ada")
    row = make_transcript(user, original_key=key, language=language)
    take(process, Kind.TRANSCRIPT)
    process.run_all()
    row.refresh_from_db()
    assert not default_storage.exists(key)
    return row


def test_words_are_proposed_in_the_language_that_was_named(
    process: MiniatureProcess, clip_bytes: bytes
) -> None:
    parrot = Parrot(lambda: " what is\0 said ")
    process.speech._transcriber = parrot

    row = propose(process, clip_bytes, "en-GB")

    assert (row.status, row.text, row.original_key) == ("done", "what is said", "")
    [(samples, rate, language)] = parrot.asked
    assert (samples / rate, language) == (1.5, "en-GB")
    assert row.finished_at is not None and row.claim_token is None


@pytest.mark.parametrize(
    ("heard_by", "language", "code", "said"),
    [
        (None, "en", "not_heard", "This worker has no transcriber"),
        (Lenient(), "fr", "not_heard", "hears de, en, not fr"),
        (Parrot(lambda: ""), "en", "not_heard", "No words were heard"),
        (Parrot(lambda: 5), "en", "not_heard", "returned a int"),
        (Parrot(lambda: 1 / 0), "en", "not_heard", "ZeroDivisionError"),
    ],
    ids=["none", "language", "silence", "no text", "raises"],
)
def test_what_is_not_heard_is_told(
    process: MiniatureProcess,
    clip_bytes: bytes,
    heard_by: Parrot | None,
    language: str,
    code: str,
    said: str,
) -> None:
    process.speech._transcriber = heard_by
    row = propose(process, clip_bytes, language)
    assert (row.status, row.error_code, row.text) == ("failed", code, "")
    assert said in row.error_message
    assert process.may_claim and process.status.detail == ""


def test_clip_that_cannot_be_used_is_told_as_of_a_voice(process: MiniatureProcess) -> None:
    process.speech._transcriber = Parrot()
    row = propose(process, wav_bytes(np.zeros((36_000, 1), dtype=np.float32)))
    assert (row.status, row.error_code) == ("failed", "clip_silent")


def test_transcriber_that_hangs_fails_the_clip_and_not_the_worker(
    process: MiniatureProcess, clip_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcriber, "CLIP_SECONDS", 0.05)
    sleeper = Sleeper()
    process.speech._transcriber = sleeper
    row = propose(process, clip_bytes)
    sleeper.woken.set()
    assert (row.error_code, "more than 0.05 s" in row.error_message) == ("not_heard", True)


@pytest.mark.parametrize(("language", "is_heard"), [("en", True), ("de-AT", True), ("fr", False)])
def test_take_is_heard_where_the_transcriber_knows_its_language(
    process: MiniatureProcess, ready: Voice, language: str, is_heard: bool
) -> None:
    lenient = Lenient()
    process.speech._transcriber = lenient
    submit(ready, text="Ox one.", language=language, max_retakes=0)

    process.render_all()

    [segment] = Segment.objects.all()
    assert segment.take is not None
    assert ("asr_text" in segment.take.measures, bool(lenient.asked)) == (is_heard, is_heard)
    assert "asr_mismatch" not in segment.take.quality_flags  # by its own limit


def test_pocketsphinx_hears_english_and_the_same_each_time(settings: Settings) -> None:
    pytest.importorskip("pocketsphinx")
    ears: Any = make_transcriber(TRANSCRIBERS["pocketsphinx"])
    audio, rate = soundfile.read(CLIP, dtype="float32")

    heard = ears.transcribe(audio, rate, language="en")

    error = error_rate(TRANSCRIPT, heard, language="en")
    assert error is not None and error <= ears.max_error, heard
    assert len(set(TRANSCRIPT.lower().strip(".").split()) & set(heard.split())) >= 2, heard
    assert heard == ears.transcribe(audio, rate, language="en")
    assert ears.transcribe(np.zeros(16_000, dtype=np.float32), 16_000, language="en") == ""
    assert hears(ears, "en-GB") and not hears(ears, "de")


def test_package_that_is_missing_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: str) -> Any:
        raise ModuleNotFoundError("No module", name=EXTRAS["asr"])

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(TranscriberError, match=r"is missing: \./tts install asr$"):
        find_factory(TRANSCRIBERS["pocketsphinx"])
