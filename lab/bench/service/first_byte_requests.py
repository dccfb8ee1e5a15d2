"""Ask a real site for speech in every way that it is sent live, and note when its bytes come."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

import av
import httpx

from lab.bench.service.child import say
from lab.bench.service.served_site import serve_site
from synth.formats import FORMATS, Writer
from synth.live.pipeline import BYTES_PER_SAMPLE
from synth.live.streams import RATE_HEADER
from synth.models import RenderJob
from ttsweb.commands.base import StepError

PATIENCE_SECONDS = 600.0
SENTENCES = 10
SENTENCE = "House {} stood dark beside the cold and silent river."  # one segment of any model
FIRST_NUMBER = 1001  # as long as all that follow
# What is sent beside the text; formats as they are, then what is made of them.
WAYS: dict[str, dict[str, Any]] = {
    **{name: {"response_format": name} for name in FORMATS},
    "mp3 as events": {"response_format": "mp3", "stream_format": "sse"},
    "pcm as events": {"response_format": "pcm", "stream_format": "sse"},
    "mp3 at speed 1.5": {"response_format": "mp3", "speed": 1.5},
    "wav at speed 0.5": {"response_format": "wav", "speed": 0.5},
}


class _Answer(NamedTuple):
    first_seconds: float
    last_seconds: float
    audio: bytes
    sample_rate: int


def work(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask `rounds` times in each way, in turns; return the figures of each.

    Raises:
        StepError: database_in_use, worker_failed, web_failed, request_failed.
    """
    with serve_site() as site:
        voice = site.make_demo_voice()
        with httpx.Client(
            base_url=site.url, headers=site.headers, timeout=PATIENCE_SECONDS
        ) as client:
            return _Requests(client, voice).measure(plan["rounds"])


class _Requests:
    """Hold what all requests use."""

    def __init__(self, client: httpx.Client, voice: str) -> None:
        self._client, self._voice = client, voice
        self._number = FIRST_NUMBER

    def measure(self, rounds: int) -> list[dict[str, Any]]:
        self._ask(next(iter(WAYS.values())))  # the first one of all is another thing
        answers: dict[str, list[_Answer]] = {name: [] for name in WAYS}
        for number in range(rounds):
            for name, asked in WAYS.items():
                say(progress=f"round {number + 1}/{rounds}: {name}")
                answers[name].append(self._ask(asked))
        return [_row(name, WAYS[name], found) for name, found in answers.items()]

    def _ask(self, asked: Mapping[str, Any]) -> _Answer:
        """Return what came of a text of ten new sentences, and when.

        Raises:
            StepError: request_failed; also where takes that were there answered.
        """
        numbers = range(self._number, self._number + SENTENCES)
        self._number += SENTENCES
        text = " ".join(SENTENCE.format(number) for number in numbers)
        body = {"model": "tts-1", "voice": self._voice, "input": text, **asked}
        started, first, parts = time.perf_counter(), 0.0, []
        try:
            with self._client.stream("POST", "/v1/audio/speech", json=body) as answer:
                if answer.status_code != 200:
                    raise StepError("request_failed", answer.read().decode())
                for part in answer.iter_raw():
                    first = first or time.perf_counter() - started
                    parts.append(part)
        except httpx.HTTPError as error:
            raise StepError("request_failed", f"An answer broke off: {error}") from error
        last = time.perf_counter() - started
        job = RenderJob.objects.get(pk=answer.headers["TTS-Job-Id"])
        if job.takes_reused or job.segments_total != SENTENCES:
            raise StepError("request_failed", "Not every sentence was rendered as one segment.")
        content = b"".join(parts)
        audio = _sound_of(content) if "stream_format" in asked else content
        return _Answer(first, last, audio, int(answer.headers[RATE_HEADER]))


def _sound_of(events: bytes) -> bytes:
    """Return the audio of events.

    Raises:
        StepError: request_failed, where they end with an error.
    """
    blocks = [block for block in events.decode().split("\n\n") if block]
    found = [json.loads(block.splitlines()[-1].removeprefix("data: ")) for block in blocks]
    if found[-1]["type"] != "speech.audio.done":
        raise StepError("request_failed", f"The events ended with {found[-1]}.")
    return b"".join(base64.b64decode(one["audio"]) for one in found[:-1])


def _row(way: str, asked: Mapping[str, Any], answers: list[_Answer]) -> dict[str, Any]:
    ratios = [one.first_seconds / one.last_seconds for one in answers]
    heard = [_decode(one, asked["response_format"]) for one in answers]
    return {
        "way": way,
        "rounds": len(answers),
        "first_byte_seconds": median(one.first_seconds for one in answers),
        "last_byte_seconds": median(one.last_seconds for one in answers),
        "ratio": median(ratios),
        "ratio_high": max(ratios),
        "bytes": median(len(one.audio) for one in answers),
        "audio_seconds": median(seconds for seconds, _ in heard),
        "decode_warnings": sorted({one for _, warnings in heard for one in warnings}),
    }


def _decode(answer: _Answer, form: str) -> tuple[float, list[str]]:
    """Return the seconds of sound, and what the decoder complains about."""
    if FORMATS[form].writer == Writer.SAMPLES and not FORMATS[form].container:
        return len(answer.audio) / BYTES_PER_SAMPLE / answer.sample_rate, []
    before = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    try:
        line: Any = _Line(answer.audio)
        with av.logging.Capture(local=False) as logs, av.open(line, "r") as opened:
            stream = opened.streams.audio[0]
            num_samples = sum(frame.samples for frame in opened.decode(stream))
            return num_samples / stream.codec_context.sample_rate, [text for _, _, text in logs]
    finally:
        av.logging.set_level(before)


class _Line:
    """Bytes that can be read once, as they come over a line."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        return self._file.read(size)
