"""Send requests that bring their voice's clip, and the same to a stored voice, over real HTTP.

The site and the worker are the real processes. What an engine alone needs to its first audio is
measured in this process.
"""

from __future__ import annotations

import base64
import io
import json
import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import httpx
import numpy as np
import soundfile

from lab.bench.service.child import say
from lab.bench.service.e2e_rounds import make_voice
from lab.bench.service.served_site import serve_site
from synth.contract import Reference, RenderSpec, Sampling
from synth.engine import Engine
from ttsweb.commands.base import StepError
from voices.models import CodesCounter
from voices.submit import NewClip
from workers.local.demo import DEMO_CLIP
from workers.local.local_worker import LocalWorker
from workers.process.engine_host import load_engine

TEXT = "I saw the pale light of the lamp."
WAIT_SECONDS = 30
PATIENCE_SECONDS = 600.0
Send = Callable[[int], dict[str, Any]]


def work(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Send `requests` requests for each of `seconds`, one after the other; return their figures.

    Raises:
        StepError: database_in_use, worker_failed, web_failed, request_failed.
    """
    engine = load_engine()
    try:
        with serve_site() as site:
            engine.warm_up()
            with httpx.Client(
                base_url=site.url, headers=site.headers, timeout=WAIT_SECONDS + 10
            ) as client:
                requests = _Requests(client, site.worker, engine, plan["requests"])
                return [row for seconds in plan["seconds"] for row in requests.both(seconds)]
    finally:
        engine.close()


def clip_of(seconds: float) -> tuple[bytes, str]:
    """Return the demo's clip, said again and again for so long, as WAV, and what is said in it."""
    wave, rate = soundfile.read(DEMO_CLIP.path, dtype="float32")
    times = math.ceil(seconds * rate / len(wave))
    buffer = io.BytesIO()
    soundfile.write(buffer, np.tile(wave, times)[: round(seconds * rate)], rate, format="WAV")
    return buffer.getvalue(), " ".join([DEMO_CLIP.transcript] * times)


class _Requests:
    """Hold what all requests use."""

    def __init__(
        self, client: httpx.Client, worker: LocalWorker, engine: Engine, count: int
    ) -> None:
        self._client, self._worker, self._engine, self._count = client, worker, engine, count

    def both(self, seconds: float) -> list[dict[str, Any]]:
        """Return the figures of both ways for a clip of so many seconds."""
        content, transcript = clip_of(seconds)
        data_url = f"data:audio/wav;base64,{base64.b64encode(content).decode()}"
        inline = {"reference": {"audio": data_url, "text": transcript}}
        rows = [self._row("inline", seconds, lambda: inline)]
        clip = NewClip(transcript=transcript, content=content)
        rows.append(
            self._row("stored", seconds, lambda: {"voice": str(self._voice(seconds, clip))})
        )
        for row, is_stored in zip(rows, (False, True), strict=True):
            row["engine_first_audio_seconds"] = self._first_audio(content, transcript, is_stored)
        return rows

    def _row(self, way: str, seconds: float, voice: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Send the requests of one way; encoder runs include the one that made a stored voice."""
        runs_before = _encoder_runs()
        speaker = voice()
        sent, audio_seconds = 0, []
        for number in range(self._count):
            say(progress=f"{seconds:g} s, {way}: request {number + 1}/{self._count}")
            body = {"text": TEXT, "seed": number, "priority": "interactive", **speaker}
            content = json.dumps(body).encode()
            sent += len(content)
            audio_seconds.append(self._request(content))
        return {
            "way": way,
            "clip_seconds": seconds,
            "requests": self._count,
            "encoder_runs": _encoder_runs() - runs_before,
            "request_bytes": sent // self._count,
            "audio_seconds": median(audio_seconds),
            "audio_seconds_low": min(audio_seconds),
            "audio_seconds_high": max(audio_seconds),
        }

    def _voice(self, seconds: float, clip: NewClip) -> Any:
        return make_voice(f"bench {seconds:g}", clip, self._worker).pk

    def _request(self, content: bytes) -> float:
        """Return the seconds from a request to the last byte of its file."""
        started = time.perf_counter()
        answer = self._client.post(
            "/api/v1/jobs", content=content, headers={"Content-Type": "application/json"}
        )
        job = _content(answer, 202)
        address = f"/api/v1/jobs/{job['id']}"
        while job["status"] in ("queued", "running"):
            job = _content(self._client.get(address, params={"wait": WAIT_SECONDS}), 200)
            if time.perf_counter() - started > PATIENCE_SECONDS:
                raise StepError("request_failed", "A request was not answered in ten minutes.")
        audio = self._client.get(f"{address}/audio")
        if audio.status_code != 200:
            raise StepError("request_failed", f"A job ended as {job['status']}: {audio.text}")
        return time.perf_counter() - started

    def _first_audio(self, content: bytes, transcript: str, is_stored: bool) -> float:
        """Return the median seconds from having a clip, or its codes, to the first audio."""
        wave, rate = soundfile.read(io.BytesIO(content), dtype="float32")
        codes = self._engine.encode_reference(wave, rate)
        seconds = []
        for number in range(self._count):
            started = time.perf_counter()
            if not is_stored:
                codes = self._engine.encode_reference(wave, rate)
            sampling = Sampling(seed=number, max_frames=64)
            chunks = self._engine.stream(RenderSpec(TEXT, Reference(transcript, codes), sampling))
            next(iter(chunks))
            seconds.append(time.perf_counter() - started)
            for _ in chunks:  # to its end, so that the next request finds the engine idle
                pass
        return median(seconds)


def _content(answer: httpx.Response, status: int) -> dict[str, Any]:
    if answer.status_code != status:
        raise StepError("request_failed", f"HTTP {answer.status_code}: {answer.text}")
    content: dict[str, Any] = answer.json()
    return content


def _encoder_runs() -> int:
    row = CodesCounter.objects.filter(pk="encoder_run").first()
    return row.value if row else 0
