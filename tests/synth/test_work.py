"""A long job wakes the workers with a few messages, not with one for each handful of segments."""

from __future__ import annotations

from collections.abc import Callable

from synth.jobs.work import MOST_MESSAGES, SEGMENTS_PER_MESSAGE, send_segments


def test_messages_are_bounded_however_long_the_job_is(
    sent_tasks: Callable[[str], list[str]],
) -> None:
    assert send_segments(range(1, 10_001))

    named = [line.strip("[]").split(", ") for line in sent_tasks("render_segments")]
    assert len(named) == MOST_MESSAGES
    assert all(len(ids) == SEGMENTS_PER_MESSAGE for ids in named)
    assert sorted(int(one) for ids in named for one in ids)[0] == 1
