"""Speak texts of Wyoming clients, whole or still being written, by jobs over the REST API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

import httpx

from synth.text.segments import GrowingText, Passage
from ttsweb.client import ClientError, ServerUnreachableError
from ttsweb.client.http import error_of

ANSWER_SECONDS = 30.0
# A job may wait for its turn: the server then says itself that it is late, after 50 seconds.
SILENT_SECONDS = 90.0
PAGE_SIZE = 100
RATE_HEADER = "TTS-Sample-Rate"


@dataclass(frozen=True, slots=True)
class OfferedVoice:
    """A voice that can speak now; `language` is empty where its owner has named none."""

    id: str
    name: str
    language: str


@dataclass(frozen=True, slots=True)
class LivePart:
    """A part of a job's audio: samples, s16le, mono, of any length in bytes."""

    rate: int
    audio: bytes


class Service:
    """The service as one account sees it; tasks may share it.

    Every method raises `ClientError`, with the server's code and sentence.

    Args:
        url: where the site listens.
        host: the name that it answers to.
    """

    def __init__(self, url: str, host: str, api_key: str) -> None:
        headers = {"Authorization": f"Bearer {api_key}", "User-Agent": "ttsweb-wyoming"}
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={**headers, "Host": host},
            timeout=ANSWER_SECONDS,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,  # a proxy does not lead back to this machine
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def voices(self) -> list[OfferedVoice]:
        """Return the voices that can speak now, by name."""
        query: dict[str, Any] = {"status": "ready", "archived": "false", "limit": PAGE_SIZE}
        found: list[OfferedVoice] = []
        while True:
            page = await self._ask("GET", "/api/v1/voices", params=query)
            found += [
                OfferedVoice(one["id"], one["name"], one["language"])
                for one in page["results"]
                if one["consent_withdrawn_at"] is None
            ]
            cursor = parse_qs(urlsplit(page.get("next") or "").query).get("cursor")
            if not cursor:
                return sorted(found, key=lambda voice: (voice.name.casefold(), voice.id))
            query["cursor"] = cursor[0]

    async def submit(self, text: str, voice: str, language: str) -> str:
        """Make a job that is heard while it is rendered, and return its id."""
        order = {"text": text, "voice": voice, "live": True, "priority": "interactive"}
        if language:
            order["language"] = language
        made = await self._ask("POST", "/api/v1/jobs", json=order)
        return str(made["id"])

    async def listen(self, job_id: str) -> AsyncGenerator[LivePart]:
        """Yield a job's audio while it is rendered, to its end.

        Raises:
            ClientError: there is none, or not all of it: the job's own code and sentence.
        """
        path, query = f"/api/v1/jobs/{job_id}/audio", {"live": "1", "format": "pcm"}
        timeout = httpx.Timeout(ANSWER_SECONDS, read=SILENT_SECONDS)
        try:
            async with self._client.stream("GET", path, params=query, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise error_of(answer)
                rate = int(answer.headers[RATE_HEADER])
                async for audio in answer.aiter_raw():
                    yield LivePart(rate, audio)
        except httpx.RequestError as error:
            raise await self._why_incomplete(job_id, error) from error

    async def cancel(self, job_id: str) -> None:
        await self._ask("POST", f"/api/v1/jobs/{job_id}/cancel")

    async def _why_incomplete(self, job_id: str, error: httpx.RequestError) -> ClientError:
        """Return why a stream broke off: what the job says of itself, else what the stream did."""
        job = await self._ask("GET", f"/api/v1/jobs/{job_id}")
        if job["error_code"]:
            return ClientError(job["error_code"], job["error_message"])
        if job["status"] in ("failed", "partial", "cancelled"):
            return ClientError(f"job_{job['status']}", f"The job {job_id} is {job['status']}.")
        return _unreachable(error)

    async def _ask(self, method: str, path: str, **parts: Any) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, path, **parts)
        except httpx.RequestError as error:
            raise _unreachable(error) from error
        if not answer.is_success:
            raise error_of(answer)
        found: dict[str, Any] = answer.json()
        return found


def _unreachable(error: httpx.RequestError) -> ServerUnreachableError:
    reason = str(error).strip() or type(error).__name__
    return ServerUnreachableError("server_unreachable", f"The service does not answer ({reason}).")


# One job is heard, and one is rendered meanwhile. What is written during that becomes one job, so
# that the first sentence is heard soon, the later ones come without a gap and as few jobs, and a
# client who writes a book has no more than two of them in the queue.
JOBS_AT_ONCE = 2
# After so long without more text, what ends like a sentence is taken for one.
WRITING_PAUSE_SECONDS = 0.5
SILENT_RATE = 24_000  # of the silence that stands for a text without words
WORDLESS_SECONDS = 0.1
BYTES_PER_SAMPLE = 2


class _Made(NamedTuple):
    """A job that is being made, and the pause that is heard after it."""

    job: asyncio.Task[str]
    pause_after_ms: int


class GrowingSpeech:
    """A text that is to be spoken by one voice.

    The text is added as it comes; `parts` yields its audio. `close` lets go of what was not heard.

    Args:
        voice: its name or id.
        language: of the text; empty where nobody says.
    """

    def __init__(self, service: Service, voice: str, language: str) -> None:
        self._service, self._voice, self._language = service, voice, language
        self._text = GrowingText(language)
        self._changed = asyncio.Event()
        self.is_written = False  # no more text will come
        self.num_chars = 0
        self._unheard: list[asyncio.Task[str]] = []

    def add(self, text: str) -> None:
        self._text.add(text)
        self.num_chars += len(text)
        self._changed.set()

    def end(self) -> None:
        """Say that the text is whole."""
        self._text.end()
        self.is_written = True
        self._changed.set()

    async def parts(self) -> AsyncGenerator[LivePart]:
        """Yield the audio of the text, without an end before the text has one.

        Raises:
            ClientError: what the service answered; audio is missing from there on.
        """
        rate, pause_ms, is_heard = SILENT_RATE, 0, False
        room = asyncio.Semaphore(JOBS_AT_ONCE)
        jobs: asyncio.Queue[_Made | None] = asyncio.Queue()
        ordering = asyncio.create_task(self._order(jobs, room))
        try:
            while (made := await jobs.get()) is not None:
                async with aclosing(self._service.listen(await made.job)) as heard:
                    async for part in heard:
                        rate, is_heard = part.rate, True
                        if pause_ms:
                            yield LivePart(rate, silence(rate, pause_ms / 1000))
                            pause_ms = 0
                        yield part
                self._unheard.remove(made.job)
                pause_ms = made.pause_after_ms
                room.release()
            await ordering
        finally:
            ordering.cancel()
        if not is_heard:
            yield LivePart(rate, silence(rate, WORDLESS_SECONDS))

    async def close(self) -> None:
        """Cancel the jobs that were not heard to their ends."""
        made = await asyncio.gather(*self._unheard, return_exceptions=True)
        self._unheard.clear()
        for job_id in made:
            if isinstance(job_id, str):  # else it was refused, and there is none
                with suppress(ClientError):  # it has ended, or the service is away
                    await self._service.cancel(job_id)

    async def _order(self, jobs: asyncio.Queue[_Made | None], room: asyncio.Semaphore) -> None:
        """Make jobs of what is written, two at once; None says that there are no more."""
        try:
            while True:
                await room.acquire()
                passage = await self._next_passage()
                if passage is None:
                    return
                # A task of its own: a request that is on its way makes a job, whoever has left.
                asked = self._service.submit(passage.text, self._voice, self._language)
                made = _Made(asyncio.create_task(asked), passage.pause_after_ms)
                self._unheard.append(made.job)
                await jobs.put(made)
        finally:
            jobs.put_nowait(None)

    async def _next_passage(self) -> Passage | None:
        """Return what is whole by now, as soon as anything is; None at the text's end."""
        while True:
            self._changed.clear()
            passage = self._text.take()
            if passage is not None or self.is_written:
                return passage
            try:
                async with asyncio.timeout(WRITING_PAUSE_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                self._text.end_sentence()


def silence(rate: int, seconds: float) -> bytes:
    return bytes(round(rate * seconds) * BYTES_PER_SAMPLE)
