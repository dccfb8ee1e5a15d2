"""Subtitles say all of a text, in lines that fit, at times that do not overlap, with no markup."""

from __future__ import annotations

import html
import itertools
import re
from typing import NamedTuple

import pytest

from synth.jobs.timestamps import Spoken, to_srt, to_vtt

RATE = 1000  # a sample is a millisecond
NASTY = "A --> B\n\n\n4\n00:00:01,000 --> 00:00:02,000\r\n<i>x</i> & {\\an8} <3 &amp;\x00\x85\ud800"
LONG = " ".join(f"word{number}" for number in range(60))


class Shown(NamedTuple):
    number: str
    start: int
    end: int
    text: str


def spoken(
    *texts: str, seconds: float = 2.0, voices: tuple[str | None, ...] = ("Ada",)
) -> list[Spoken]:
    """Return segments of equal length with half a second between them."""
    length = round(seconds * RATE)
    return [
        Spoken(0, index, index * (length + 500), index * (length + 500) + length, text,
               index % len(voices), voices[index % len(voices)])
        for index, text in enumerate(texts)
    ]  # fmt: skip


def parse(content: str, *, mark: str) -> list[Shown]:
    """Read subtitles as players do: blocks between blank lines, times in the second line."""
    found = []
    for block in re.split(r"\n\n+", content.strip("\n")):
        number, times, *lines = block.split("\n")
        match = re.fullmatch(
            rf"(\d\d+):(\d\d):(\d\d){mark}(\d\d\d) --> (\d\d+):(\d\d):(\d\d){mark}(\d\d\d)", times
        )
        assert match, times
        h, m, s, ms, h2, m2, s2, ms2 = map(int, match.groups())
        assert 1 <= len(lines) <= 2, lines
        start, end = ((h * 60 + m) * 60 + s) * 1000 + ms, ((h2 * 60 + m2) * 60 + s2) * 1000 + ms2
        found.append(Shown(number, start, end, "\n".join(lines)))
    return found


def srt(segments: list[Spoken]) -> list[Shown]:
    return parse(to_srt(segments, RATE), mark=",")


def vtt(segments: list[Spoken]) -> list[Shown]:
    content = to_vtt(segments, RATE)
    assert content.startswith("WEBVTT\n\n")
    return parse(content.removeprefix("WEBVTT\n\n"), mark=r"\.")


def test_short_segments_are_cues_at_their_own_times() -> None:
    segments = spoken("One.", "Two.")

    assert srt(segments) == [Shown("1", 0, 2000, "One."), Shown("2", 2500, 4500, "Two.")]
    assert vtt(segments) == srt(segments)


def test_times_are_rounded_to_the_nearest_millisecond_and_hours_are_counted() -> None:
    start = (3 * 3600 + 25 * 60 + 45) * 44_100 + 44_100 // 2 + 21
    segment = Spoken(0, 0, start, start + 44_100, "Late.", 0, "Ada")

    assert "03:25:45,500 --> 03:25:46,500" in to_srt([segment], 44_100)
    assert "03:25:45.500 --> 03:25:46.500" in to_vtt([segment], 44_100)


@pytest.mark.parametrize("read", [srt, vtt])
def test_long_segment_is_shown_in_parts_that_share_its_time(read: object) -> None:
    shown = read(spoken(LONG, seconds=20.0))  # type: ignore[operator]  # one of two functions

    said = " ".join(one.text.replace("\n", " ") for one in shown)
    assert said == LONG
    assert len(shown) > 3
    assert (shown[0].start, shown[-1].end) == (0, 20_000)
    assert all(len(line) <= 42 for one in shown for line in one.text.split("\n"))
    for one, following in itertools.pairwise(shown):
        assert one.end == following.start
    for one in shown:
        share = len(one.text.replace("\n", "")) / len(LONG)
        assert (one.end - one.start) / 20_000 == pytest.approx(share, abs=0.02)


SAID = "A --> B 4 00:00:01,000 --> 00:00:02,000 <i>x</i> & {\\an8} <3 &amp;"


def without_spaces(text: str) -> str:
    return text.replace("\u200b", "")  # of no width


def test_nothing_of_a_text_is_markup() -> None:
    for content, shown, read, markup in (
        (to_vtt(spoken(NASTY), RATE), vtt(spoken(NASTY)), html.unescape, "<"),
        (to_srt(spoken(NASTY), RATE), srt(spoken(NASTY)), without_spaces, r"</?[a-zA-Z]|\{\\"),
    ):
        said = " ".join(read(one.text).replace("\n", " ") for one in shown)
        assert not re.search(markup, content), content
        assert len(re.findall("-->", content)) == len(shown), content
        assert said == SAID, content


def test_words_longer_than_a_line_are_cut_between_characters_as_seen() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    shown = srt(spoken("x" * 100 + " " + family * 30, seconds=9))

    lines = [line.replace(" ", "") for one in shown for line in one.text.split("\n")]
    assert "".join(lines) == "x" * 100 + family * 30
    for rest in (line.strip("x") for line in lines):
        assert rest.count("\U0001f468") * len(family) == len(rest)


def test_wide_characters_take_two_columns() -> None:
    shown = srt(spoken("汉" * 50, seconds=9))
    assert [len(line) for one in shown for line in one.text.split("\n")] == [21, 21, 8]


def test_voices_are_named_in_vtt_where_there_are_several() -> None:
    content = to_vtt(spoken("One.", "Two.", voices=("Ada", "Bo <b> & co")), RATE)

    assert "<v Ada>One.</v>" in content
    assert "<v Bo &lt;b&gt; &amp; co>Two.</v>" in content
    assert "<v" not in to_vtt(spoken("One.", "Two."), RATE)


def test_cues_of_segments_without_length_do_not_overlap() -> None:
    segments = [Spoken(0, index, 5, 5, f"Part {index}.", 0, None) for index in range(3)]

    shown = srt(segments)
    assert [(one.start, one.end) for one in shown] == [(5, 6), (6, 7), (7, 8)]


def test_text_that_shows_nothing_has_no_cue() -> None:
    assert srt(spoken("\x00\n ", "Two."))[0].text == "Two."
    assert to_srt([], RATE) == ""
    assert to_vtt([], RATE) == "WEBVTT\n"


def test_tags_that_choose_a_speaker_are_not_shown() -> None:
    segments = spoken("<|speaker:1|>And hello to you.", "<|speaker:0|> Good evening.")

    assert [line.text for line in srt(segments)] == ["And hello to you.", "Good evening."]
    assert "speaker" not in to_vtt(segments, RATE)
