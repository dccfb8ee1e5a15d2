"""The teachers say what they are given, speakers are made from them, and shards keep it."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from lab.training.evaluation.pitch import median_pitch
from lab.training.flite import SAMPLE_RATE, TEACHERS, Flite, FliteMissingError
from lab.training.shards import read_shard, shard_path, shard_paths, write_shard
from lab.training.sound.clips import aligned_clip
from lab.training.speakers import DEMO, HELD_OUT, NUM_TRAINED, draw_speaker, trained_speaker
from lab.training.stages.data import WAVE_EVERY, make_shards, say_to_train
from lab.training.teaching import speak
from tests.lab.training.utterances import make_speech

TEXT = "The thing had a strange look."


@pytest.mark.flite
@pytest.mark.parametrize("teacher", TEACHERS)
def test_an_utterance_s_parts_belong_together(teachers: Flite, teacher: str) -> None:
    said = teachers.say(TEXT, teacher)
    assert len(said.cepstra) == len(said.strengths) == said.num_rows
    assert said.seconds == pytest.approx(len(said.wave) / SAMPLE_RATE, abs=0.02)
    assert [name for _, name in said.words] == ["the", "thing", "had", "a", "strange", "look"]
    ends = [end for _, end, _ in said.phones]
    assert ends == sorted(ends) and ends[-1] <= said.seconds + 0.2
    assert all(
        any(abs(start - time) < 1e-6 for start, _, _ in said.phones) for time, _ in said.words
    )
    assert said.strengths.min() >= 0 and said.strengths.max() <= 1
    # The pitch track is the pitch that is heard.
    heard = median_pitch((said.wave / 32768).astype(np.float32))
    assert np.median(said.pitch[said.pitch > 0]) == pytest.approx(heard, rel=0.1)


@pytest.mark.flite
def test_the_same_text_gives_the_same_rows_whatever_was_said_before(teachers: Flite) -> None:
    first = teachers.say(TEXT, "rms")
    teachers.say("Something else.", "slt")
    again = teachers.say(TEXT, "rms")
    assert np.array_equal(first.cepstra, again.cepstra)
    assert first.phones == again.phones
    assert teachers.say("", "slt").words == ()


def test_a_system_without_flite_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Mock(side_effect=OSError("libflite.so.1: not found")))
    with pytest.raises(FliteMissingError, match="apt install flite"):
        Flite()


def test_speakers_are_apart_and_always_the_same() -> None:
    assert (HELD_OUT[0].warp, HELD_OUT[0].teacher) == (draw_speaker(9001).warp, TEACHERS[1])
    assert len({(each.teacher, each.warp, each.pitch) for each in HELD_OUT}) == len(HELD_OUT) == 20
    assert all(each.is_teacher for each in DEMO) and not any(each.is_teacher for each in HELD_OUT)
    trained = {trained_speaker(teacher, n).name for teacher in TEACHERS for n in range(2001)}
    assert len(trained) == NUM_TRAINED and not trained & {each.name for each in HELD_OUT}
    assert trained_speaker("awb", 7).teacher == "awb"


@pytest.mark.flite
def test_factors_move_length_and_pitch(teachers: Flite) -> None:
    henry = DEMO[1]
    plain = speak(TEXT, henry)
    moved = speak(TEXT, replace(henry, pitch=1.3, rate=1.5))
    before, after = median_pitch(plain), median_pitch(moved)
    assert before is not None and after is not None
    assert len(moved) / len(plain) == pytest.approx(1.5, abs=0.05)
    assert after / before == pytest.approx(1.3, abs=0.08)
    assert np.array_equal(moved, speak(TEXT, replace(henry, pitch=1.3, rate=1.5)))
    # What is synthesised is about as loud as what it is made from.
    same = speak(TEXT, replace(henry, rate=1.001))
    assert same.std() == pytest.approx(plain.std(), rel=0.35)


@pytest.mark.flite
def test_melody_is_the_pitch_s_distance_from_its_middle(teachers: Flite) -> None:
    said, clara = teachers.say("Is it a question, or not?", "slt"), DEMO[0]
    flat, lively = (
        aligned_clip(said, replace(clara, melody=melody)).pitches for melody in (0.5, 1.5)
    )
    assert np.ptp(lively) > 2 * np.ptp(flat)


def test_shards_come_back_whole(tmp_path: Path) -> None:
    speech = make_speech(4)
    write_shard(shard_path(tmp_path, 0), speech)
    back = read_shard(shard_paths(tmp_path)[0])
    for one, other in zip(speech, back, strict=True):
        assert (one.text, one.teacher, one.words) == (other.text, other.teacher, other.words)
        assert one.phones == other.phones
        assert np.array_equal(one.wave, other.wave)
        assert np.allclose(one.cepstra, other.cepstra, atol=0.005)
        assert np.allclose(one.pitch, other.pitch, rtol=1e-3)
    assert not any(len(each.wave) for each in read_shard(shard_path(tmp_path, 0), waves=False))
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.flite
def test_shards_are_made_once_and_some_keep_their_wave(teachers: Flite, tmp_path: Path) -> None:
    pytest.importorskip("pocketsphinx")
    lines: list[str] = []
    for _ in range(2):
        make_shards(tmp_path, 1, 3 * WAVE_EVERY, lines.append)
    speech = read_shard(shard_paths(tmp_path)[0])
    assert len(lines) == 1
    assert [each.teacher for each in speech[:4]] == ["slt", "rms", "awb", "slt"]
    assert [len(each.wave) > 0 for each in speech] == [True] * 3 + [False] * 9


@pytest.mark.flite
def test_what_is_too_little_or_has_other_words_is_not_trained_on(teachers: Flite) -> None:
    assert say_to_train("...", "slt") is None
    assert say_to_train("and so on " * 60, "slt") is None
    assert say_to_train("In 1984.", "slt") is None  # flite says words that are not in the text
    assert say_to_train("A plain one.", "slt") is not None
