"""Write the answer of a live stream: its headers, the head of its file, its errors."""

from __future__ import annotations

import json
import struct
import uuid

from synth.formats import FORMATS
from ttsweb.http.asgi_ask import Send
from ttsweb.http.csp import HEADER as CSP_HEADER
from ttsweb.http.csp import STRICT_POLICY

RATE_HEADER = "TTS-Sample-Rate"
BYTES_PER_SAMPLE = 2
RETRY_SECONDS = 5
_UNKNOWN = 0xFFFFFFFF  # as a length: players take it for "until the end"


def wav_head(sample_rate: int) -> bytes:
    """Return the head of a mono 16-bit WAV file whose length nobody knows yet."""
    rate = sample_rate * BYTES_PER_SAMPLE
    form = struct.pack("<IHHIIHH", 16, 1, 1, sample_rate, rate, BYTES_PER_SAMPLE, 16)
    riff = b"RIFF" + struct.pack("<I", _UNKNOWN) + b"WAVE"
    return riff + b"fmt " + form + b"data" + struct.pack("<I", _UNKNOWN)


def live_headers(form: str, job_id: uuid.UUID) -> dict[str, str]:
    """Return the headers that do not depend on the audio."""
    return {
        "Content-Type": FORMATS[form].content_type,
        "Content-Disposition": f'inline; filename="speech-{str(job_id)[:8]}.{form}"',
        "Cache-Control": "private, no-store",
        "Accept-Ranges": "none",
        "X-Accel-Buffering": "no",  # nginx would keep audio back
        "X-Content-Type-Options": "nosniff",
        CSP_HEADER: "default-src 'none'; sandbox",
        "TTS-Job-Id": str(job_id),
    }


async def send_start(send: Send, form: str, job_id: uuid.UUID, sample_rate: int) -> None:
    """Begin the answer; what follows are samples, s16le, mono, at `sample_rate`."""
    headers = live_headers(form, job_id) | {RATE_HEADER: str(sample_rate)}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": pairs})
    if form == "wav":
        await send_bytes(send, wav_head(sample_rate))


async def send_bytes(send: Send, body: bytes, *, more: bool = True) -> None:
    """Send a part of the answer; waits while the client does not keep up."""
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def send_not_started(send: Send, job_id: uuid.UUID, seconds: float) -> None:
    """Answer that there is no audio yet, and that it may be asked for again."""
    sentence = (
        f"The job {job_id} had no audio within {seconds:g} s: other jobs are before it, or "
        "no worker is running. The job continues; try again later."
    )
    await _send_problem(send, "live_not_started", sentence)


async def send_no_room(send: Send, max_streams: int) -> None:
    """Answer that there are too many listeners."""
    sentence = (
        f"This server has {max_streams} live listeners, which is its limit "
        "(TTS_MAX_LIVE_STREAMS). Try again later, or fetch the file when the job has ended."
    )
    await _send_problem(send, "too_many_live_streams", sentence)


async def _send_problem(send: Send, code: str, detail: str) -> None:
    problem = {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": detail,
        "code": code,
        "errors": [],
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(RETRY_SECONDS).encode()),
        (b"cache-control", b"private, no-store"),
        (CSP_HEADER.lower().encode(), STRICT_POLICY.encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send_bytes(send, body, more=False)
