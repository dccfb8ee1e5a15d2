"""Judges that were not trained here hear words, choose sentences and tell speakers apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.training.evaluation import recognition, speaker_embedding
from lab.training.evaluation.numbers import number_sentences
from lab.training.evaluation.recognition import recogniser, split_words
from lab.training.evaluation.speaker_embedding import embed_speaker
from lab.training.evaluation.speaking import control_wave, teacher_wave
from lab.training.evaluation.spectra import RATE
from lab.training.evaluation.texts import CLIP_TEXT, PLAIN_SENTENCES
from lab.training.speakers import DEMO
from ttsweb.commands.base import StepError

needs_judges = pytest.mark.evaluation


@needs_judges
def test_words_are_heard_each_time_the_same_and_silence_has_none() -> None:
    text, speaker = PLAIN_SENTENCES[0], DEMO[0]
    heard = recogniser().hear(teacher_wave(text, speaker))
    assert len(set(heard) & set(split_words(text))) >= 6, heard
    assert recogniser().hear(np.zeros(RATE, np.float32)) == []
    assert recogniser().hear(np.zeros(0, np.float32)) == []
    assert recogniser().hear(teacher_wave(text, speaker)) == heard


@needs_judges
def test_the_sentence_that_was_said_is_chosen_and_then_any_word_is_heard_again() -> None:
    sentences = ["It was nineteen ninety-six.", "It was nineteen ninety-five.", "It was nine."]
    for index, sentence in enumerate(sentences):
        assert recogniser().choose(teacher_wave(sentence, DEMO[0]), sentences) == index
    assert recogniser().choose(np.zeros(RATE, np.float32), sentences) is None
    assert "close" in recogniser().hear(teacher_wave(PLAIN_SENTENCES[0], DEMO[0]))
    with pytest.raises(ValueError, match="lacks qqqq"):
        recogniser().choose(np.zeros(RATE, np.float32), ["Qqqq."])


@needs_judges
def test_every_word_that_is_to_be_said_is_known() -> None:
    texts = [*PLAIN_SENTENCES, *(text for one in number_sentences() for text in one.alternatives)]
    words = {word for text in texts for word in split_words(text)}
    assert [word for word in sorted(words) if not recogniser().knows(word)] == []


@needs_judges
def test_a_speaker_is_nearest_to_itself_saying_something_else() -> None:
    known = [embed_speaker(teacher_wave(CLIP_TEXT, speaker)) for speaker in DEMO]
    for index, speaker in enumerate(DEMO):
        other = embed_speaker(control_wave(PLAIN_SENTENCES[2], speaker))
        assert np.linalg.norm(other) == pytest.approx(1, abs=1e-5)
        assert int(np.argmax([other @ one for one in known])) == index


@needs_judges
def test_an_embedding_is_the_same_at_another_level_up_to_that_of_speech() -> None:
    wave = teacher_wave(CLIP_TEXT, DEMO[0])
    quiet = [embed_speaker((wave * factor).astype(np.float32)) for factor in (0.01, 0.001)]
    assert quiet[0] @ quiet[1] == pytest.approx(1, abs=1e-4)
    assert np.isfinite(embed_speaker(np.zeros(0, np.float32))).all()


def find_no_spec(name: str) -> None:
    """Find no package."""


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> Callable[[], Any]:
    """Take a package away and return what needs it."""
    if package == "resemblyzer":
        monkeypatch.setattr(speaker_embedding, "find_spec", find_no_spec)
        return speaker_embedding.find_weights
    monkeypatch.setattr("ttsweb.install.extras.find_spec", find_no_spec)
    return recognition.Recogniser


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("pocketsphinx", r": \./tts install asr$"),
        ("resemblyzer", r"--no-deps -r lab/training/evaluation/requirements\.txt$"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StepError, match=command):
        without(monkeypatch, package)()
    assert (Path(__file__).parents[4] / speaker_embedding.REQUIREMENTS).is_file()
