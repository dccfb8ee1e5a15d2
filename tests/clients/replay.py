"""Send requests as the code of a client does, and read answers as it does."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import av
import httpx
import numpy as np

from tests.workers.commands import PATIENCE_SECONDS

TEXT = "I saw the lamp."
KEY = "{key}"  # in a header: stands for the API key
Samples = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Sent:
    """One request. A body of bytes goes out as it is, any other as JSON."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)


def replay(url: str, key: str, sent: Sent) -> httpx.Response:
    """Return the answer to one request, whose body comes as fast as it is sent.

    The headers are those of the client alone, besides what belongs to the connection.
    """
    content = sent.body
    if content is not None and not isinstance(content, bytes):
        content = json.dumps(content, ensure_ascii=False).encode()
    headers = {name: value.replace(KEY, key) for name, value in sent.headers.items()}
    with httpx.Client(timeout=PATIENCE_SECONDS) as client:
        client.headers.clear()
        return client.request(
            sent.method, url + sent.path, params=sent.query, headers=headers, content=content
        )


def decoded(content: bytes) -> tuple[Samples, int, str]:
    """Return a file's samples, its rate and its codec's name."""
    with av.open(io.BytesIO(content), "r") as opened:
        stream = opened.streams.audio[0]
        to_float = av.AudioResampler(format="fltp", layout="mono")
        blocks = [
            part.to_ndarray()[0]
            for frame in opened.decode(stream)
            for part in to_float.resample(frame)
        ]
        return np.concatenate(blocks), stream.codec_context.sample_rate, stream.codec_context.name


def bare_samples(content: bytes) -> Samples:
    """Return the samples of audio that is s16le without a header."""
    return np.frombuffer(content, dtype="<i2").astype(np.float32) / np.float32(2**15)


def is_speech(samples: Samples, rate: int) -> bool:
    """Say whether this may be the text above: between silence and noise, about a second long."""
    level = float(np.sqrt(np.mean(np.square(samples))))
    return 0.02 < level < 0.5 and 0.3 < len(samples) / rate < 5


def check_file(answer: httpx.Response, content_type: str, codec: str) -> None:
    """Fail unless an answer is speech in a file of this type and codec."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == content_type
    samples, rate, name = decoded(answer.content)
    assert name == codec
    assert is_speech(samples, rate)


def ignored_in(answer: httpx.Response) -> set[str]:
    """Return the names that the answer says were ignored."""
    return set(filter(None, answer.headers.get("x-tts-ignored", "").split(", ")))
