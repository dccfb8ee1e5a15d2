"""Render the same segments through the whole service and by the engine alone, in turns.

The worker is a real `manage.py worker` process. The engine alone lives in this process and is fed
all segments at once; it has the worker's settings, one torch thread included.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Sum

from lab.bench.service.child import say
from synth.contract import RenderSpec
from synth.engine import Engine
from synth.jobs.submit import Order, Sender, submit_job
from synth.models import RenderJob, Take
from ttsweb.commands.base import StepError
from ttsweb.commands.terminal import Progress
from voices.models import Voice
from voices.submit import NewClip, create_voice
from workers.local.demo import DEMO_CLIP
from workers.local.local_worker import LocalWorker, wait_encoded
from workers.process.engine_host import load_engine
from workers.rendering.codes import CodesLookup
from workers.rendering.render import RenderRequest, build_requests

POLL_SECONDS = 0.2
WARM_UP_SEED = 1_000_000


def work(plan: dict[str, Any]) -> dict[str, Any]:
    """Do `repeat` rounds with `text`, after one with `warm_up`; return each round's figures.

    Raises:
        StepError: database_in_use, worker_failed, bench_job_failed.
    """
    refuse_used_database()
    worker = LocalWorker(log_path=settings.DATA_DIR / "logs" / "worker.log")
    try:
        say(progress="starting a worker")
        worker.wait_ready(Progress(sys.stderr))
        clip = NewClip(transcript=DEMO_CLIP.transcript, content=DEMO_CLIP.path.read_bytes())
        rounds = _Rounds(worker, make_voice("bench", clip, worker), load_engine())
        try:
            rounds.warm_up(plan["warm_up"])
            figures = [rounds.one(plan["text"], number) for number in range(plan["repeat"])]
            return {"rounds": figures, "engine": rounds.engine.describe()}
        finally:
            rounds.engine.close()
    finally:
        worker.stop()


def refuse_used_database() -> None:
    """Raise StepError database_in_use where the database holds anything of a service."""
    if RenderJob.objects.exists() or Voice.objects.exists():
        raise StepError(
            "database_in_use",
            "The database has voices or jobs already; give an empty one that was made for "
            "this benchmark.",
        )


def make_voice(name: str, clip: NewClip, worker: LocalWorker) -> Voice:
    """Return a voice of this clip once it is encoded."""
    voice = create_voice(name=name, consent_statement=DEMO_CLIP.consent, by="bench", clips=[clip])
    version = voice.versions.get()
    wait_encoded(version.pk, worker, Progress(sys.stderr))
    return voice


class _Rounds:
    """Hold what all rounds use."""

    def __init__(self, worker: LocalWorker, voice: Voice, engine: Engine) -> None:
        self._worker, self._voice, self.engine = worker, voice, engine

    def warm_up(self, text: str) -> None:
        """Render the first sentences both ways, so that nothing of a round is a first time."""
        self.engine.warm_up()
        job = self._submit(text, WARM_UP_SEED)
        self._wait(job, "warming up")
        self._engine_alone(job)

    def one(self, text: str, number: int) -> dict[str, Any]:
        """Render the text with a seed of its own, through the queue and by the engine alone."""
        before = self._worker_cpu_seconds()
        job = self._submit(text, number)
        after = self._wait(job, f"round {number + 1}, through the queue")
        say(progress=f"round {number + 1}, the engine alone")
        queue = _figures(job.pk)
        queue["cpu_seconds"] = None if before is None or after is None else after - before
        return {"queue": queue, "engine": self._engine_alone(job)}

    def _submit(self, text: str, seed: int) -> RenderJob:
        order = Order(text=text, voice=self._voice, seed=seed, priority=RenderJob.Priority.BULK)
        return submit_job(order, Sender(None))[0]

    def _wait(self, job: RenderJob, doing: str) -> float | None:
        """Return, when the job has ended, the worker's CPU seconds up to its last take."""
        used: float | None = None
        while True:
            job.refresh_from_db(fields=["status", "segments_done", "error_message"])
            if used is None and job.segments_done == job.segments_total:
                used = self._worker_cpu_seconds()
            if job.status in RenderJob.FINAL:
                break
            say(progress=f"{doing}: {job.segments_done}/{job.segments_total} segments")
            time.sleep(POLL_SECONDS)
            self._worker.keep()
        if job.status != RenderJob.Status.SUCCEEDED:
            raise StepError("bench_job_failed", f"A job ended as {job.status}: {job.error_message}")
        return used

    def _worker_cpu_seconds(self) -> float | None:
        child = self._worker.child
        return cpu_seconds_of(child.pid if child else None)

    def _engine_alone(self, job: RenderJob) -> dict[str, Any]:
        """Return what the engine takes for a job's segments when nothing else is to be done."""
        specs = _specs(job, self.engine)
        started, cpu_started = time.perf_counter(), time.process_time()
        futures = [self.engine.submit(spec, priority=job.priority) for spec in specs]
        takes = [future.result() for future in futures]
        seconds = time.perf_counter() - started
        return {
            "segments": len(takes),
            "retakes": 0,
            "retake_frames": 0,
            "frames": sum(take.codes.shape[1] for take in takes),
            "audio_seconds": sum(len(take.audio) / take.sample_rate for take in takes),
            "seconds": seconds,
            "wall_seconds": seconds,
            "cpu_seconds": time.process_time() - cpu_started,
        }


def cpu_seconds_of(pid: int | None) -> float | None:
    """Return the processor time of a process so far; None where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid or 0}/stat").read_text(encoding="ascii")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _specs(job: RenderJob, engine: Engine) -> list[RenderSpec]:
    """Return what the worker asks its engine for, in the order of the text."""
    codes = CodesLookup()
    ids = list(job.segments.order_by("index").values_list("pk", flat=True))
    requests = build_requests(ids, codes, engine)
    return [one.spec for pk in ids if isinstance(one := requests[pk], RenderRequest)]


def _figures(job_id: Any) -> dict[str, Any]:
    """Return what a job took from its first claim to its last take, by the database's clock."""
    job = RenderJob.objects.get(pk=job_id)
    ended = job.segments.aggregate(
        at=Max("finished_at"), frames=Sum("take__frames"), audio=Sum("take__audio_seconds")
    )
    # Takes that the screening did not keep are work that the engine has done as well.
    others = Take.objects.filter(candidate_of__job=job).exclude(segments__job=job).distinct()
    again = others.aggregate(number=Count("pk"), frames=Sum("frames"))
    assert job.started_at is not None and job.finished_at is not None
    return {
        "segments": job.segments_done,
        "retakes": again["number"],
        "retake_frames": again["frames"] or 0,
        "frames": ended["frames"] + (again["frames"] or 0),
        "audio_seconds": ended["audio"],
        "seconds": (ended["at"] - job.started_at).total_seconds(),
        "wall_seconds": (job.finished_at - job.created_at).total_seconds(),
    }
