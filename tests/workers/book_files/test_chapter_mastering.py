"""Chapters come out at their target, over room tone, and their voices at one level."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from synth.api.books.file_views import report_plot
from synth.audio.writers import read_blocks
from tests.workers.book_files.made_books import RATE, book, chapter, encoder, pulses, spoken
from workers.book_files.book_audio import SegmentSpan
from workers.book_files.chapter_encodes import Encoder, Encoding
from workers.book_files.chapter_mastering import ACX, STANDARD, Mastering, measure_levels, room_tone
from workers.book_files.sidecars import book_report

ASKED = [(form, STANDARD) for form in ("aac", "mp3", "opus", "flac", "wav")] + [("mp3", ACX)]
SELDOM = [("aac", ACX), ("opus", ACX), ("flac", ACX), ("wav", ACX)]


@pytest.mark.parametrize(
    ("form", "mastering"),
    [*ASKED, *(pytest.param(*one, marks=pytest.mark.thorough) for one in SELDOM)],
    ids=lambda one: getattr(one, "name", one),
)
def test_files_of_every_format_pass_what_was_asked(
    form: str, mastering: Mastering, encodes: Path
) -> None:
    chapters = list(encoder(encodes, mastering).chapters(book(3), Encoding(form)))
    report = book_report(chapters, mastering)

    assert report["passed"], [row["checks"] for row in report["chapters"]]
    for row in report["chapters"]:
        assert row["floor_dbfs"] <= -60
        if mastering is ACX:
            assert -23 <= row["rms_dbfs"] <= -18
            assert row["peak_dbfs"] <= row["true_peak_dbtp"] <= -3
        else:
            assert row["loudness_lufs"] == pytest.approx(-18, abs=0.5)


def test_report_is_measured_on_the_file_and_not_on_what_went_in(work: Encoder) -> None:
    one = work.chapter(book(1), 0, Encoding("mp3"))
    again = measure_levels(read_blocks(one.path, "mp3", one.sample_rate), one.sample_rate)
    assert one.levels == again


def test_silence_fails_with_a_sentence_and_is_not_turned_up(work: Encoder) -> None:
    silent = spoken("Silent", np.zeros(RATE, np.float32))
    empty = spoken("Empty", np.zeros(0, np.float32), index=1)
    one = dataclasses.replace(book(1), chapters=(silent, empty))
    chapters = list(work.chapters(one, Encoding("aac")))
    report = book_report(chapters, STANDARD)
    assert report["failed_chapters"] == [0, 1]
    assert "silent" in report["chapters"][0]["checks"][0]["sentence"]
    assert [one.gain_db for one in chapters] == [0.0, 0.0]
    assert chapters[1].num_samples / RATE == pytest.approx(2.75, abs=0.03)


def test_peaks_that_stand_in_the_way_of_the_target_are_told(encodes: Path) -> None:
    clicks = 0.001 * pulses(10.0, level=1.0)
    clicks[::4410] = 0.9  # the whole loudness is in single samples
    one = dataclasses.replace(book(1), chapters=(spoken("Clicks", clicks),))
    made = list(encoder(encodes, ACX).chapters(one, Encoding("flac")))
    row = book_report(made, ACX)["chapters"][0]
    assert row["true_peak_dbtp"] <= -3
    assert not row["passed"]
    assert next(check for check in row["checks"] if not check["passed"])["sentence"].endswith(".")


def test_head_tail_and_pauses_are_quiet_and_never_digital_silence(work: Encoder) -> None:
    one = work.chapter(book(1), 0, Encoding("wav"))
    audio = np.concatenate(list(read_blocks(one.path, "wav", RATE)))
    head, tail = round(0.75 * RATE), 2 * RATE
    pause = audio[one.spans[0].end + 500 : one.spans[1].start - 500]
    for part in (audio[: head - 500], audio[-tail + 500 :], pause):
        assert 20 * np.log10(np.sqrt(np.mean(part**2))) == pytest.approx(-75, abs=2.5)
        assert not np.any(np.all(part[: len(part) // 64 * 64].reshape(-1, 64) == 0, axis=1))
    assert one.spans[0].start == head


def test_room_tone_is_the_same_wherever_it_is_asked_for() -> None:
    whole = room_tone(0, 600_000, -70)
    parts = [room_tone(at, 1000, -70) for at in range(0, 600_000, 1000)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert 20 * np.log10(np.sqrt(np.mean(whole**2))) == pytest.approx(-70, abs=0.05)
    assert (
        np.rint(room_tone(0, 4, 0) * 1000).tolist() == np.rint(whole[:4] * 1000 * 10**3.5).tolist()
    )


def test_voices_are_levelled_by_their_own_gain_alone(work: Encoder) -> None:
    loud, quiet = pulses(2.0, level=0.2), pulses(2.0, level=0.05)
    spans = (
        SegmentSpan("Loud.", 0, len(loud), voice="a"),
        SegmentSpan("Quiet.", len(loud), len(loud) + len(quiet), voice="b"),
    )
    cast = spoken("Cast", np.concatenate((loud, quiet)), spans)
    levelled = dataclasses.replace(
        book(1), chapters=(cast,), voice_gains_db={"b": 20 * np.log10(4.0)}
    )
    one = work.chapter(levelled, 0, Encoding("flac"))
    audio = np.concatenate(list(read_blocks(one.path, "flac", RATE)))
    first, second = (audio[span.start : span.end] for span in one.spans)
    assert np.sqrt(np.mean(first**2)) == pytest.approx(np.sqrt(np.mean(second**2)), rel=0.01)


def test_a_chapter_has_one_gain_whatever_its_sentences(work: Encoder) -> None:
    parts = [pulses(2.0, level=level) for level in (0.2, 0.05)]
    one = dataclasses.replace(book(1), chapters=(spoken("Two", np.concatenate(parts)),))
    made = work.chapter(one, 0, Encoding("flac"))
    audio = np.concatenate(list(read_blocks(made.path, "flac", RATE)))
    head = round(0.75 * RATE)
    first, second = audio[head : head + 2 * RATE], audio[head + 2 * RATE : head + 4 * RATE]
    assert np.sqrt(np.mean(first**2) / np.mean(second**2)) == pytest.approx(4, rel=0.02)


def test_floor_is_the_quietest_half_second() -> None:
    audio = np.full(5 * RATE, 0.1, np.float32)
    audio[2 * RATE : 2 * RATE + RATE // 2] = 0.001
    assert measure_levels([audio], RATE).floor_dbfs == pytest.approx(-60, abs=0.1)


def test_plot_has_bars_for_each_chapter_and_marks_what_failed(work: Encoder) -> None:
    from lxml import etree

    silent = spoken("<Silent> & more", np.zeros(RATE, np.float32), index=1)
    one = dataclasses.replace(book(1), chapters=(chapter("Fine"), silent))
    report = book_report(list(work.chapters(one, Encoding("aac"))), STANDARD)
    root = etree.fromstring(report_plot(report).encode())
    groups = root.findall("{*}g")
    assert [len(group.findall("{*}rect")) for group in groups] == [3, 2]
    assert [group.find("{*}text").text for group in groups] == ["1", "2!"]
    assert "failed" in groups[1].find("{*}title").text
