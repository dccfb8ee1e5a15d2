"""Ids of events: what they hold comes back, and what is none is refused cheaply."""

from __future__ import annotations

import pytest

from synth.jobs.events import MAX_ID_CHARS, BadEventIdError, Seen


def test_id_gives_back_what_was_seen() -> None:
    closed = {(0, index): "done" for index in (0, 1, 2, 4, 6, 7)} | {(0, 5): "failed"}
    closed |= {(1, 0): "done", (3, 9): "cancelled"}
    seen = Seen("running", (7, 1, 1), closed)

    text = seen.event_id()

    assert text == "running!7.1.1!0:0-2,4,6-7;1:0!0:5!3:9"
    assert Seen.from_event_id(text, max_segments=9) == seen
    assert Seen.from_event_id(Seen().event_id(), max_segments=0) == Seen()


def test_id_of_many_gaps_stays_short_and_names_nothing_that_was_not_seen() -> None:
    closed = {(chapter, index): "done" for chapter in range(9) for index in range(0, 2000, 2)}
    closed |= {(0, index): "failed" for index in range(1, 2000, 2)}
    seen = Seen("running", (1, 1, 0), closed)

    text = seen.event_id()
    read = Seen.from_event_id(text, max_segments=20_000)

    assert len(text) < MAX_ID_CHARS + 50
    assert 500 < len(read.closed) < len(closed)
    assert read.closed.items() <= closed.items()
    assert Seen.from_event_id(seen.event_id(10**9), max_segments=20_000) == seen


@pytest.mark.parametrize("max_chars", range(12))
def test_id_can_be_cut_at_any_length(max_chars: int) -> None:
    seen = Seen("", (), {(10, 1): "done", (10, 3): "done", (11, 1): "done"})

    read = Seen.from_event_id(seen.event_id(max_chars), max_segments=3)

    assert read.closed.items() <= seen.closed.items()


@pytest.mark.parametrize(
    "text",
    [
        "x", "5", "!", "a!b!c!d!e", "running!1!0:0", "running!1.0.0!0:0!!!", "RUNNING!!!!",
        "running!1.x.0!!!", "running!1.-1.0!!!", "running!!0!!", "running!!0:!!",
        "running!!0:5-3!!",
        "running!!:1!!", "running!!x:1!!", "running!!0:1,!!", "running!!0:\uff11!!",
        "running!!0:0-9999999!!", "running!!0:0-9!0:0!", "running!!0:0-5;1:0-5!!",
        "running!!0:12345678!!", "running!!0:0-0-0!!",
    ],
)  # fmt: skip
def test_text_that_is_no_id_of_a_job_of_ten_segments_is_refused(text: str) -> None:
    with pytest.raises(BadEventIdError):
        Seen.from_event_id(text, max_segments=10)
