"""Send very many small jobs over real HTTP, and see how long those wait for whom somebody waits.

A batch of one-sentence jobs keeps the worker busy. Beside it single jobs are posted one after the
other, and now and then an interactive job is asked for and waited for, as it was before the batch.
The sentences are few, so that the figures are those of requests, queue and files, not the engine's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

import httpx
from django.db.models import Count, Max

from lab.bench.service.child import say
from lab.bench.service.e2e_rounds import cpu_seconds_of
from lab.bench.service.served_site import serve_site
from synth.models import Batch, Export, RenderJob
from ttsweb.commands.base import StepError

WAIT_SECONDS = 30
PATIENCE_SECONDS = 3600.0
PAUSE_SECONDS = 1.0
IDLE_REQUESTS = 10
_PLACES = ("room", "garden", "river", "lamp", "road", "tower", "field", "window", "bridge", "door")
_WORDS = ("old", "cold", "dark", "long", "small")
SENTENCES = [f"I saw the {word} {place}." for word in _WORDS for place in _PLACES]


def work(plan: dict[str, Any]) -> dict[str, Any]:
    """Send `jobs` jobs in a batch and `posts` by themselves; return what all of it took.

    Raises:
        StepError: database_in_use, worker_failed, web_failed, request_failed.
    """
    with serve_site() as site:
        jobs = _Jobs(site.url, site.headers, site.make_demo_voice())
        child = site.worker.child.pid if site.worker.child is not None else None
        return jobs.measure(plan["jobs"], plan["posts"], child)


class _Jobs:
    """Hold where jobs are sent to and whose voice they have."""

    def __init__(self, url: str, headers: dict[str, str], voice: str) -> None:
        self._url, self._headers, self._voice = url, headers, voice
        self._seed = 0

    def measure(self, jobs: int, posts: int, worker_pid: int | None) -> dict[str, Any]:
        """Return the figures: without other work first, then beside the batch."""
        with self._client() as client:
            self._interactive(client)  # the first one of all is another thing
            idle = [self._interactive(client) for _ in range(IDLE_REQUESTS)]
            used = cpu_seconds_of(worker_pid)
            started = time.perf_counter()
            self._send_batch(client, jobs)
            beside: list[float] = []
            over = threading.Event()
            thread = threading.Thread(target=self._ask_now_and_then, args=(beside, over))
            thread.start()
            try:
                posted = [self._post_bulk(client, number) for number in range(posts)]
                seconds = self._wait(started)
            finally:
                over.set()
                thread.join()
        after = cpu_seconds_of(worker_pid)
        done = Export.objects.filter(status=Export.Status.DONE)
        files = done.filter(job__isnull=False).count() - IDLE_REQUESTS - 1
        return {
            "jobs": jobs,
            "posts": posts,
            "files": files,
            "seconds": seconds,
            "files_per_second": files / seconds,
            "worker_cpu_seconds": None if used is None or after is None else after - used,
            "post_seconds_p50": median(posted),
            "post_seconds_p95": p95(posted),
            "interactive_idle_seconds": median(idle),
            "interactive_beside_seconds": median(beside),
            "interactive_beside_seconds_p95": p95(beside),
            "interactive_beside_requests": len(beside),
            "interactive_ratio": median(beside) / median(idle),
        }

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, headers=self._headers, timeout=WAIT_SECONDS + 60)

    def _send_batch(self, client: httpx.Client, jobs: int) -> None:
        items = [
            {"custom_id": str(number), "text": SENTENCES[number % len(SENTENCES)]}
            for number in range(jobs)
        ]
        body = {"items": items, "defaults": {"voice": self._voice}, "priority": "bulk"}
        _content(client.post("/api/v1/batches", json=body), 202)

    def _post_bulk(self, client: httpx.Client, number: int) -> float:
        """Return the seconds that one POST took."""
        say(progress=f"post {number + 1}")
        text = SENTENCES[number % len(SENTENCES)]
        started = time.perf_counter()
        body = {"text": text, "voice": self._voice, "priority": "bulk"}
        _content(client.post("/api/v1/jobs", json=body), 202)
        return time.perf_counter() - started

    def _ask_now_and_then(self, beside: list[float], over: threading.Event) -> None:
        with self._client() as client:
            while True:
                beside.append(self._interactive(client))
                if over.wait(PAUSE_SECONDS):
                    return

    def _interactive(self, client: httpx.Client) -> float:
        """Return the seconds from a request to the last byte of its file."""
        self._seed += 1  # it is rendered: no other job has its takes
        body = {
            "text": SENTENCES[0],
            "voice": self._voice,
            "priority": "interactive",
            "seed": self._seed,
        }
        started = time.perf_counter()
        job = _content(client.post("/api/v1/jobs", json=body), 202)
        address = f"/api/v1/jobs/{job['id']}"
        while job["status"] in ("queued", "running"):
            job = _content(client.get(address, params={"wait": WAIT_SECONDS}), 200)
        audio = client.get(f"{address}/audio")
        if audio.status_code != 200:
            raise StepError("request_failed", f"A job ended as {job['status']}: {audio.text}")
        return time.perf_counter() - started

    def _wait(self, started: float) -> float:
        """Return the seconds until all bulk jobs had their files, and the batch its zip."""
        bulk = RenderJob.objects.filter(priority=RenderJob.Priority.BULK)
        while time.perf_counter() - started < PATIENCE_SECONDS:
            left = bulk.exclude(status__in=RenderJob.FINAL).count()
            if not left and not Batch.objects.filter(ended_at__isnull=True).exists():
                return time.perf_counter() - started
            say(progress=f"{left} jobs left")
            time.sleep(0.5)
        counts = bulk.values_list("status").annotate(Count("pk"), Max("error_message"))
        raise StepError("request_failed", f"Jobs have not ended in an hour: {list(counts)}")


def p95(values: Sequence[float]) -> float:
    """Return what 19 of 20 values are below; of a single value, that one."""
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def _content(answer: httpx.Response, status: int) -> dict[str, Any]:
    if answer.status_code != status:
        raise StepError("request_failed", f"HTTP {answer.status_code}: {answer.text}")
    content: dict[str, Any] = answer.json()
    return content
