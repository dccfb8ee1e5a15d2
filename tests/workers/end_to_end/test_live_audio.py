"""A job is heard while it is rendered, through real processes on both pairs of services."""

from __future__ import annotations

import contextlib
import socket
import time
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
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
    wait_for,
)
from tests.workers.rendering.heard import joined
from tests.workers.web import served
from voices.models import Voice

HEAD_BYTES = 44
MANY = 80  # sentences: the engine must still have some to do when the first is heard


def spoken_voice() -> Voice:
    """Return a voice that is encoded; a worker runs."""
    voice = new_voice()
    wait_encoded(voice)
    return voice


def voice_without_worker(pair: Pair) -> Voice:
    """Return a voice that is encoded, with no worker left that would speak."""
    worker = pair.start_worker().wait_ready()
    voice = spoken_voice()
    worker.kill()
    return voice


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


def is_running(job: RenderJob) -> bool:
    return RenderJob.objects.get(pk=job.pk).status in ("queued", "running")


def read_on(parts: Iterator[bytes], least: int) -> bytes:
    """Return the next bytes, `least` of them or a few more."""
    found = b""
    while len(found) < least:
        found += next(parts)
    return found


def test_first_audio_comes_while_the_job_runs_and_all_of_it_in_order(pair: Pair) -> None:
    pair.start_worker().wait_ready()
    voice = spoken_voice()
    with served(pair) as client:
        job = submit(voice, sentences=MANY)
        with client.stream("GET", path_of(job)) as answer:
            parts = answer.iter_raw()
            first = read_on(parts, HEAD_BYTES + 2000)
            was_running = is_running(job)
            done_by_then = Segment.objects.filter(job=job, status="done").count()
            rest = b"".join(parts)
    wait_ended(job)

    assert (answer.status_code, was_running) == (200, True)
    assert done_by_then < MANY
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["tts-sample-rate"] == "44100"
    assert "content-length" not in answer.headers
    assert_whole(job)
    assert_same(samples_of(first + rest), job)


@pytest.mark.thorough
def test_killed_worker_is_heard_to_the_end_through_another(pair: Pair) -> None:
    patient: dict[str, Any] = {"TTS_LEASE_SECONDS": 4, "MAX_ATTEMPTS": 10}
    first_worker = pair.start_worker("w1", **patient).wait_ready()
    voice = spoken_voice()
    with served(pair) as client:
        job = submit(voice, sentences=MANY)
        with client.stream("GET", path_of(job, "live=1&format=pcm")) as answer:
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
    assert answer.headers["content-type"] == "audio/pcm"
    assert_whole(job)
    assert_same(np.frombuffer(heard, dtype="<i2").astype(np.int32), job)


@pytest.mark.thorough
def test_listener_who_comes_late_hears_the_beginning_also_of_takes_that_were_there(
    pair: Pair,
) -> None:
    pair.start_worker().wait_ready()
    voice = spoken_voice()
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
    pair.start_worker(LIVE_KEEP_SECONDS=5).wait_ready()
    voice = spoken_voice()
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
        assert client.get(path_of(job)).headers["content-type"] == "audio/wav"
        assert "content-length" in client.get(path_of(job)).headers
        folder = pair.data_dir / "storage" / "live"
        wait_for(lambda: not LiveChunk.objects.exists(), what="rows are gone", seconds=60)
        wait_for(lambda: not [p for p in folder.rglob("*.pcm")], what="objects are gone")


def ask_beside_one_who_waits(client: httpx.Client, path: str) -> httpx.Response:
    """Return the answer to a listener beside one who waits for audio, and leaves afterwards."""
    url = client.base_url
    head = f"GET {path} HTTP/1.1\r\nHost: {url.host}\r\n"
    head += f"Authorization: {client.headers['authorization']}\r\n\r\n"
    while True:
        with socket.create_connection((url.host, url.port or 80)) as waiting:
            waiting.sendall(head.encode())
            # Where ours came in before the other one's, that one was refused instead.
            with contextlib.suppress(httpx.ReadTimeout):
                return client.get(path, timeout=10)


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_one_listener_too_many_is_told_to_come_again_and_the_place_of_one_who_left_is_free(
    pair: Pair,
) -> None:
    job = submit(voice_without_worker(pair), sentences=2)
    pair_env: dict[str, Any] = {"MAX_LIVE_STREAMS": 1, "LIVE_START_SECONDS": 600}
    with served(pair, **pair_env) as client:
        refused = ask_beside_one_who_waits(client, path_of(job))
        pair.start_worker()
        heard = client.get(path_of(job))
        while heard.status_code == 503:  # until the server has seen that the other one left
            time.sleep(0.1)
            heard = client.get(path_of(job))

    assert (refused.status_code, refused.json()["code"]) == (503, "too_many_live_streams")
    assert refused.headers["retry-after"] == "5"
    assert "tts-live" not in refused.headers
    assert heard.status_code == 200


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_job_without_audio_says_why_and_a_late_one_to_come_again(pair: Pair) -> None:
    job = submit(voice_without_worker(pair), sentences=2)
    with served(pair, LIVE_START_SECONDS=1.5) as client, ThreadPoolExecutor(1) as pool:
        late = client.get(path_of(job))
        waiting = pool.submit(client.get, path_of(job))
        cancel_job(job.pk)
        ended = waiting.result()
        if ended.status_code == 503:  # the job was cancelled when that one had already given up
            ended = client.get(path_of(job))

    assert (late.status_code, late.json()["code"]) == (503, "live_not_started")
    assert (ended.status_code, ended.json()["code"]) == (404, "job_without_audio")


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_cancelled_job_breaks_the_connection_off_behind_what_there_was(pair: Pair) -> None:
    pair.start_worker().wait_ready()
    voice = spoken_voice()
    with served(pair) as client:
        job = submit(voice, sentences=MANY)
        heard = b""
        with client.stream("GET", path_of(job)) as answer:
            parts = answer.iter_raw()
            heard = read_on(parts, HEAD_BYTES + 2000)
            cancel_job(job.pk)
            with pytest.raises(httpx.RemoteProtocolError):
                heard += b"".join(parts)
        again = client.get(path_of(job))

    assert len(samples_of(heard)) >= 1000
    assert (again.status_code, again.json()["code"]) == (404, "job_without_audio")
