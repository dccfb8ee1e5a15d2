"""Talk to a ttsweb server from Python: voices, jobs and their files.

    with Client("http://127.0.0.1:8000", api_key="tts_…") as tts:
        voice = tts.voices.create("Ada", [Clip("ada.wav", "What is said in it.")], consent="…")
        tts.voices.wait_ready(voice["id"])
        job = tts.jobs.create("Good morning.", voice="Ada", format="mp3")
        tts.jobs.wait(job["id"])
        tts.jobs.download(job["id"], "morning.mp3")

Needs httpx alone: neither Django nor Celery is imported. What the server answers is returned as the
dictionaries of `types`; what it refuses is raised as the exceptions of `errors`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from ttsweb.client.book_types import Book, BookBatch, BookBatchEntry, BookFile
from ttsweb.client.books import BookBatches, Books
from ttsweb.client.http import (
    ApiError,
    AuthenticationError,
    ClientError,
    ConflictError,
    DownloadError,
    Http,
    InvalidRequestError,
    NotFoundError,
    ServerError,
    ServerUnreachableError,
    TooManyRequestsError,
    VoiceFailedError,
    WaitTimeoutError,
)
from ttsweb.client.jobs import Batches, Jobs, Review, Voices
from ttsweb.client.types import (
    JOB_FINAL,
    JOB_WITH_AUDIO,
    Batch,
    Clip,
    Job,
    JobChanges,
    JobOptions,
    LexiconEntry,
    ReviewItem,
    Segment,
    Voice,
)

__all__ = [
    "JOB_FINAL",
    "JOB_WITH_AUDIO",
    "ApiError",
    "AuthenticationError",
    "Batch",
    "Book",
    "BookBatch",
    "BookBatchEntry",
    "BookFile",
    "Client",
    "ClientError",
    "Clip",
    "ConflictError",
    "DownloadError",
    "InvalidRequestError",
    "Job",
    "JobChanges",
    "JobOptions",
    "LexiconEntry",
    "NotFoundError",
    "ReviewItem",
    "Segment",
    "ServerError",
    "ServerUnreachableError",
    "TooManyRequestsError",
    "Voice",
    "VoiceFailedError",
    "WaitTimeoutError",
]


class Client:
    """A server and a key. Threads may share it; close it, or use it as a context manager."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout: float = 30.0,
        retries: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Check the address and the key; nothing is sent yet.

        Args:
            url: such as https://tts.example.org; a path is kept.
            timeout: seconds for a connection, and for the next bytes of an answer.
            retries: repetitions of what may pass next time: no connection, 429, and of requests
                that may arrive twice also 502, 503, 504 and a broken connection. `Retry-After` is
                honoured.

        Raises:
            ClientError: url_invalid or api_key_invalid.
        """
        self._http = Http(url, api_key, timeout, retries, sleep)
        self.url = self._http.url
        self.voices = Voices(self._http)
        self.jobs = Jobs(self._http)
        self.batches = Batches(self._http)
        self.books = Books(self._http)
        self.book_batches = BookBatches(self._http)
        self.review = Review(self._http)

    @property
    def retries(self) -> int:
        """Repetitions of one request; may be changed at any time."""
        return self._http.retries

    @retries.setter
    def retries(self, number: int) -> None:
        self._http.retries = number

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
