"""A job is heard while it is rendered, through real processes on both pairs of services."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from synth.models import LiveChunk, RenderJob, Segment
from synth.transitions.jobs import cancel_job
from tests.workers.pairs import (
    Pair,
    assert_whole,
    submit,
    wait_ended,
    wait_for,
)
from tests.workers.rendering.takes_support import joined
from tests.workers.web import served

HEAD_BYTES = 44
MANY = 80  # sentences: the engine must still have some to do when the first is heard


def samples_of(body: bytes) -> np.ndarray:
    """Return the samples of a live WAV file, int32 [N], once its head is known to be one."""
    assert body[:4] + body[8:16] == b"RIFFWAVEfmt "
    assert (body[4:8], body[40:44]) == (b"\xff" * 4, b"\xff" * 4)
    return np.frombuffer(body[HEAD_BYTES:], dtype="<i2").astype(np.int32)


def assert_same(heard: np.ndarray, job: RenderJob) -> None:
    """Assert that all takes of the job were heard, with the pauses between them."""
    expected = joined(job)
    assert len(heard) == len(expected)
    assert np.abs(heard - expected).max() <= 1


def path_of(job: RenderJob, query: str = "live=1") -> str:
    return f"/api/v1/jobs/{job.pk}/audio?{query}"


def read_on(parts: Iterator[bytes], least: int) -> bytes:
    """Return the next bytes, `least` of them or a few more."""
    found = b""
    while len(found) < least:
        found += next(parts)
    return found


def test_first_audio_comes_while_the_job_runs_and_all_of_it_in_order(pair: Pair) -> None:
    _, voice = pair.start_with_voice()
    with served(pair) as client:
        job = submit(voice, sentences=MANY)
        with client.stream("GET", path_of(job)) as answer:
            parts = answer.iter_raw()
            first = read_on(parts, HEAD_BYTES + 2000)
            status = RenderJob.objects.get(pk=job.pk).status
            done_by_then = Segment.objects.filter(job=job, status="done").count()
            rest = b"".join(parts)
    wait_ended(job)

    assert answer.status_code == 200 and status in ("queued", "running")
    assert done_by_then < MANY
    names = ("content-type", "cache-control", "tts-sample-rate", "content-length")
    sent_headers = ["audio/wav", "private, no-store", "44100", None]
    assert [answer.headers.get(name) for name in names] == sent_headers
    assert_whole(job)
    assert_same(samples_of(first + rest), job)


@pytest.mark.thorough
def test_killed_worker_is_heard_to_the_end_through_another(pair: Pair) -> None:
    patient: dict[str, Any] = {"TTS_LEASE_SECONDS": 4, "MAX_ATTEMPTS": 10}
    first_worker, voice = pair.start_with_voice("w1", **patient)
    with served(pair) as client:
        job = submit(voice, sentences=MANY)
        with client.stream("GET", path_of(job)) as answer:
            parts = answer.iter_raw()
            heard = read_on(parts, 8000)
            first_worker.kill()
            claimed = Segment.objects.filter(job=job, status="claimed")
            lost = set(claimed.values_list("pk", flat=True))
            begun = set(LiveChunk.objects.values_list("segment", flat=True))
            pair.start_worker("w2", **patient)
            heard += b"".join(parts)
    wait_ended(job)

    assert lost & begun, "nothing that was heard in part was lost"
    assert_whole(job)
    assert_same(samples_of(heard), job)


@pytest.mark.thorough
def test_listener_who_comes_late_hears_the_beginning_also_of_old_takes(pair: Pair) -> None:
    _, voice = pair.start_with_voice()
    earlier = submit(voice, sentences=3)
    wait_ended(earlier)
    job = submit(voice, sentences=12)
    wait_for(Segment.objects.filter(job=job, status="done").exists, what="a segment", poll=0.01)
    pair.lose_messages()
    query = "live=true&format=wav"
    with served(pair) as client, client.stream("GET", path_of(job, query)) as answer:
        body = b"".join(answer.iter_raw())
    wait_ended(job)
    reused = Segment.objects.filter(job=job, take__segments__job=earlier).count()
    assert reused == 3
    assert_same(samples_of(body), job)


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_many_listen_and_leave_and_nothing_is_left_behind(pair: Pair, settings: Any) -> None:
    _, voice = pair.start_with_voice(LIVE_KEEP_SECONDS=5)
    with served(pair, MAX_LIVE_STREAMS=50, LIVE_KEEP_SECONDS=5) as client:
        job = submit(voice, sentences=8)

        def listen(number: int) -> bytes | None:
            with client.stream("GET", path_of(job)) as answer:
                assert answer.status_code == 200
                if number % 5 == 0:  # leaves in the middle
                    next(answer.iter_raw())
                    return None
                return b"".join(answer.iter_raw())

        with ThreadPoolExecutor(50) as pool:
            bodies = list(pool.map(listen, range(50)))
        wait_ended(job)
        expected = joined(job)
        for body in bodies:
            assert body is None or np.abs(samples_of(body) - expected).max() <= 1
        headers = client.get(path_of(job)).headers
        assert headers["content-type"] == "audio/wav" and "content-length" in headers
        folder = pair.data_dir / "storage" / "live"
        wait_for(lambda: not LiveChunk.objects.exists(), what="rows are gone", seconds=60)
        wait_for(lambda: not [p for p in folder.rglob("*.pcm")], what="objects are gone")


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_cancelled_job_breaks_the_connection_off_behind_what_there_was(pair: Pair) -> None:
    _, voice = pair.start_with_voice()
    with served(pair) as client:
        job = submit(voice, sentences=MANY)
        with client.stream("GET", path_of(job)) as answer:
            parts = answer.iter_raw()
            heard = read_on(parts, HEAD_BYTES + 2000)
            cancel_job(job.pk)
            with pytest.raises(httpx.RemoteProtocolError):
                heard += b"".join(parts)
        again = client.get(path_of(job))
    assert len(samples_of(heard)) >= 1000
    assert (again.status_code, again.json()["code"]) == (404, "job_without_audio")
