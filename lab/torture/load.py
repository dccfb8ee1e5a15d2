"""Send the work that an installation has while it is tortured, and remember what it accepted.

Everything that was accepted, by an answer that came, is to be found again at the end. Answers that
do not come are asked for again with the same `Idempotency-Key`, as clients do.
"""

from __future__ import annotations

import io
import random
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import soundfile

from lab.torture.stand_in import POISON

PAUSE_SECONDS = 0.2  # between tries of what was not answered
GIVE_UP_SECONDS = 60.0
ANSWER_SECONDS = 15.0
BULK_SEGMENTS = 16
MOST_UNFINISHED = 50  # jobs: more than this would only make the end longer
TWICE_ONE_IN = 4  # requests that are sent once more though they were answered
SUCCEEDED, CANCELLED, PARTIAL = "succeeded", "cancelled", "partial"


@dataclass
class Accepted:
    """One job, batch or voice that was answered with 202; `ends` are how it may end."""

    kind: str  # job, batch, voice
    pk: uuid.UUID
    key: str
    window: int  # the number of the fault that it came with
    ends: tuple[str, ...] = (SUCCEEDED,)
    heard: bytes = b""  # of a live job: its samples as they came
    was_heard_whole: bool = False


@dataclass
class Load:
    """Threads that send jobs; `accepted` holds what they were promised."""

    url: str
    key: str
    voice: str
    clip: tuple[Any, int]  # samples and rate of a voice's recording
    count_unfinished: Callable[[], int]
    window: int = 0
    accepted: list[Accepted] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    refused: int = 0
    _number: int = 0

    def __post_init__(self) -> None:
        self._over, self._lock = threading.Event(), threading.Lock()
        loops = (self._bulk, 0.5), (self._interactive, 0.8), (self._sundry, 1.0), (self._live, 3.0)
        self._threads = [
            threading.Thread(target=self._repeat, args=loop, name=loop[0].__name__, daemon=True)
            for loop in loops
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing new; what was sent gets its answer first."""
        self._over.set()
        until = time.monotonic() + GIVE_UP_SECONDS + ANSWER_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=httpx.Timeout(ANSWER_SECONDS, connect=2)
        )

    def text(self, sentences: int, word: str = "ox") -> str:
        """Return a text of so many segments that no other text has."""
        with self._lock:
            first = self._number
            self._number += sentences
        return "\n\n".join(f"An {word} has {first + place} horns." for place in range(sentences))

    def post_job(
        self, client: httpx.Client, ends: tuple[str, ...] = (SUCCEEDED,), **body: Any
    ) -> Accepted | None:
        """Submit a job until it is answered; None where it was not, which promises nothing."""
        job = {"voice": self.voice, "format": "flac", "max_retakes": 0} | body
        return self._post(client, "job", "/api/v1/jobs", job, ends)

    def _repeat(self, step: Callable[[httpx.Client], None], seconds: float) -> None:
        with self.client() as client:
            while not self._over.wait(seconds):
                if self.count_unfinished() < MOST_UNFINISHED:
                    with suppress(httpx.TransportError):  # the next one may pass
                        step(client)

    def _bulk(self, client: httpx.Client) -> None:
        self.post_job(client, text=self.text(BULK_SEGMENTS), priority="bulk")

    def _interactive(self, client: httpx.Client) -> None:
        form = random.choice(["flac", "wav", "mp3", "opus"])
        job = self.post_job(client, text=self.text(1), priority="interactive", format=form)
        if job is not None:
            client.get(f"/api/v1/jobs/{job.pk}", params={"wait": 2})

    def _sundry(self, client: httpx.Client) -> None:
        """Send, in turns, a batch, a job that is cancelled, a voice with its first job."""
        self._batch(client)
        if self._over.wait(1.0):
            return
        both = (CANCELLED, SUCCEEDED)
        job = self.post_job(client, both, text=self.text(12), priority="bulk")
        if job is not None:
            client.post(f"/api/v1/jobs/{job.pk}/cancel")
        if self._over.wait(1.0):
            return
        self._voice(client)

    def _batch(self, client: httpx.Client) -> None:
        items = [{"text": self.text(1), "custom_id": str(place)} for place in range(6)]
        defaults = {"voice": self.voice, "format": "flac", "max_retakes": 0}
        body = {"items": items, "defaults": defaults, "priority": "bulk"}
        self._post(client, "batch", "/api/v1/batches", body, (SUCCEEDED,))

    def _voice(self, client: httpx.Client) -> None:
        samples, rate = self.clip
        buffer, level = io.BytesIO(), random.uniform(0.5, 1.0)  # another clip is encoded anew
        soundfile.write(buffer, samples * level, rate, format="WAV", subtype="PCM_16")
        name = f"Ada {uuid.uuid4().hex[:8]}"
        answer = client.post(
            "/api/v1/voices",
            data={"name": name, "transcript": "Said in it.", "consent_statement": "She agreed."},
            files={"audio": ("clip.wav", buffer.getvalue(), "audio/wav")},
        )
        if answer.status_code == 202:
            pk = uuid.UUID(answer.json()["id"])
            self.accepted.append(Accepted("voice", pk, "", self.window, ("ready",)))
            self.post_job(client, text=self.text(1), voice=name, priority="interactive")
        elif answer.status_code < 500:
            self._refuse(answer, "/api/v1/voices")

    def _live(self, client: httpx.Client) -> None:
        """Listen to a job; a connection that breaks is kept as far as it came."""
        job = self.post_job(client, text=self.text(3), live=True, priority="interactive")
        if job is None:
            return
        where = {"live": "1", "format": "pcm"}
        with client.stream("GET", f"/api/v1/jobs/{job.pk}/audio", params=where) as answer:
            if answer.status_code != 200:
                return
            for chunk in answer.iter_bytes():
                job.heard += chunk
            job.was_heard_whole = True

    def _post(
        self, client: httpx.Client, kind: str, path: str, body: dict[str, Any], ends: Any
    ) -> Accepted | None:
        key, window = uuid.uuid4().hex, self.window
        answer = self.post_until_answered(client, path, body, key)
        if answer is None:
            return None
        pk = uuid.UUID(answer["id"])
        found = Accepted(kind, pk, key, window, ends)
        self.accepted.append(found)
        if random.randrange(TWICE_ONE_IN) == 0:  # as if the answer had been lost
            again = self.post_until_answered(client, path, body, key)
            if again is not None and again["id"] != answer["id"]:
                self.problems.append((window, f"{kind} {pk} was made twice for one key"))
        return found

    def post_until_answered(
        self, client: httpx.Client, path: str, body: dict[str, Any], key: str
    ) -> dict[str, Any] | None:
        """Send a request until it is answered, as clients do; None where it was not, or refused."""
        until = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < until:
            try:
                answer = client.post(path, json=body, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                pass
            else:
                if answer.status_code in (200, 202):
                    content: dict[str, Any] = answer.json()
                    return content
                if answer.status_code < 500 and answer.status_code not in (409, 429):
                    self._refuse(answer, path)
                    return None
            time.sleep(PAUSE_SECONDS)
        return None

    def _refuse(self, answer: httpx.Response, path: str) -> None:
        """Note a request that was refused though nothing is wrong with it."""
        self.refused += 1
        text = f"{path} was refused with {answer.status_code}: {answer.text[:200]}"
        self.problems.append((self.window, text))


def poisoned(text: str) -> str:
    return f"{text}\n\nIt is {POISON}."
