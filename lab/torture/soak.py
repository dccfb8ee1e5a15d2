"""Render very many segments with restarts between them, and look at what grows."""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from django.db import DatabaseError, InterfaceError, connection

from lab.torture.checks import Check
from lab.torture.installation import BUCKET, WORKERS, Installation
from lab.torture.load import Accepted, Load
from lab.torture.run import Say, percent, working
from lab.torture.stand_in import RENDERED
from synth.models import Export, Segment, Take
from ttsweb.commands.base import StepError

SENTENCES_PER_JOB = 20
MOST_OPEN = 1500  # segments: what is sent ahead
WARM_UP_SHARE, LAST_SHARE = 0.25, 0.85  # of the segments: growth is from the one to the other
LOOK_SECONDS = 1.0
SECONDS_PER_SEGMENT, PATIENCE_SECONDS = 1.0, 300.0
MOST_GROWTH_PERCENT = 5.0
RESTARTED = WORKERS[1]  # the others run from the beginning to the end


@dataclass
class Sample:
    """What one process held at a moment: resident bytes, open files, threads."""

    done: int  # segments by then
    memory: int
    files: int
    threads: int


@dataclass
class Grown:
    """The samples of one process that runs all the time."""

    name: str
    pid: int
    samples: list[Sample] = field(default_factory=list)

    def look(self, done: int) -> None:
        place = Path("/proc") / str(self.pid)
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        files = len(list((place / "fd").iterdir()))
        memory = int(status["VmRSS"].split()[0]) * 1024
        self.samples.append(Sample(done, memory, files, int(status["Threads"])))

    def row(self, segments: int) -> dict[str, Any]:
        """Return the medians of the time after the warm-up and of the last part, and the growth."""
        share = [(sample.done / segments, sample) for sample in self.samples]
        early = [one for at, one in share if WARM_UP_SHARE <= at < 2 * WARM_UP_SHARE]
        late = [one for at, one in share if at >= LAST_SHARE]
        if not early or not late:
            raise StepError("soak_too_short", "Too little was seen of it; give more segments.")
        memory = [median(one.memory for one in part) for part in (early, late)]
        files = [round(median(one.files for one in part)) for part in (early, late)]
        threads = [round(median(one.threads for one in part)) for part in (early, late)]
        return {
            "process": self.name,
            "memory_mib": round(memory[1] / 2**20, 1),
            "memory_growth_percent": round(100 * (memory[1] / memory[0] - 1), 1),
            "files": files[1],
            "files_growth": files[1] - files[0],
            "threads": threads[1],
            "threads_growth": threads[1] - threads[0],
            "memory_mib_by_tenths": self._memory_by_tenths(segments),
        }

    def _memory_by_tenths(self, segments: int) -> list[float | None]:
        """Return the medians of each tenth of the run: a leak grows in all, a warm-up ends."""
        tenths: list[list[int]] = [[] for _ in range(10)]
        for sample in self.samples:
            tenths[min(9, 10 * sample.done // segments)].append(sample.memory)
        return [round(median(one) / 2**20, 1) if one else None for one in tenths]


def soak(
    made: Installation, segments: int, restarts: int, say: Say
) -> tuple[dict[str, Any], list[dict[str, Any]], bool]:
    """Render so many segments while one of two workers is restarted now and then.

    Returns:
        Facts, a row for each process that ran all the time, and whether all is well.

    Raises:
        StepError: torture_failed, soak_too_short.
    """
    with working(made, say) as load, load.client() as client:
        kept = [
            Grown("web", made.web_pids()[0]),
            Grown(WORKERS[0], made.workers[WORKERS[0]].pid),
        ]
        began = time.monotonic()
        sent = _Sent(client, load, segments)
        at = sorted(random.Random(0).sample(range(segments // 20, segments), restarts))
        until = began + PATIENCE_SECONDS + segments * SECONDS_PER_SEGMENT
        done = killed = 0
        while done < segments and time.monotonic() < until:
            done = _count_done(done)
            sent.keep_ahead(done)
            for one in kept:
                one.look(done)
            if killed < len(at) and done >= at[killed]:
                killed += 1
                # In turns a crash and an order to stop.
                made.workers[RESTARTED].send(signal.SIGKILL if killed % 2 else signal.SIGTERM)
                say(f"{done} segments, restart {killed}")
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - began
        _wait_files(len(sent.accepted))
        say("looking at every job and every file")
        check = Check(client, {})
        findings = check.look_at(sent.accepted)
    rows = [one.row(segments) for one in kept]
    facts = {
        "segments": segments,
        "restarts": killed,
        "accepted": len(sent.accepted),
        **findings.totals(),
        "checked_files": check.files,
        "seconds": round(seconds, 1),
        "segments_per_second": round(segments / seconds, 1),
        "longest_answer_seconds": round(sent.longest_answer, 1),
        **_sizes(made, segments),
        "problems": [f"{one['kind']}: {one['problem']}" for one in findings.problems],
    }
    facts["problems"] += _grown_too_much(rows) + _left_over(facts)
    return facts, rows, not facts["problems"]


class _Sent:
    """Jobs of one text each, sent so that some always wait."""

    def __init__(self, client: httpx.Client, load: Load, segments: int) -> None:
        self._client, self._load, self._segments = client, load, segments
        self._sent = 0
        self.longest_answer = 0.0  # seconds, of any of them
        self.accepted: list[Accepted] = []

    def keep_ahead(self, done: int) -> None:
        while self._sent < min(self._segments, done + MOST_OPEN):
            last = min(self._sent + SENTENCES_PER_JOB, self._segments)
            text = "\n\n".join(f"An ox has {place} horns." for place in range(self._sent, last))
            key = uuid.uuid4().hex
            body = {"text": text, "voice": self._load.voice, "priority": "bulk", "max_retakes": 0}
            began = time.monotonic()
            answer = self._load.post_until_answered(
                self._client, "/api/v1/jobs", body | {"format": "flac"}, key
            )
            if answer is None:
                said = [problem for _, problem in self._load.problems]
                raise StepError("torture_failed", f"A job was not accepted: {said or 'no answer'}")
            self.longest_answer = max(self.longest_answer, time.monotonic() - began)
            self.accepted.append(Accepted("job", uuid.UUID(answer["id"]), key, 0))
            self._sent = last


def _count_done(before: int) -> int:
    try:
        return Segment.objects.filter(status=Segment.Status.DONE).count()
    except (DatabaseError, InterfaceError):
        connection.close()
        return before


def _wait_files(jobs: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    done = Export.objects.filter(status=Export.Status.DONE)
    while done.count() < jobs and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def _sizes(made: Installation, segments: int) -> dict[str, Any]:
    """Return what the installation takes on disk, and how many objects no row names."""
    objects = _objects(made)
    takes = sum(1 for name in objects if name.startswith("takes/"))
    renders = len((made.folder / RENDERED).read_text(encoding="ascii").splitlines())
    database = sum(path.stat().st_size for path in made.data.glob("db.sqlite3*"))
    if made.postgres is not None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            database = cursor.fetchone()[0]
    return {
        "renders": renders,
        "wasted_percent": percent(renders - segments, renders),
        "database_bytes_per_segment": round(database / segments),
        "storage_bytes_per_segment": round(sum(objects.values()) / segments),
        "take_objects_too_many": takes - 2 * Take.objects.count(),
        "temporary_files": sum(1 for path in made.data.rglob("*.part")),
    }


def _objects(made: Installation) -> dict[str, int]:
    """Return the sizes of all objects by their names."""
    if made.s3 is not None:
        pages = made.s3.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {one["Key"]: one["Size"] for page in pages for one in page.get("Contents", ())}
    storage = made.data / "storage"
    files = [path for path in storage.rglob("*") if path.is_file()]
    return {str(path.relative_to(storage)): path.stat().st_size for path in files}


def _grown_too_much(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{row['process']} grew: memory {row['memory_growth_percent']} %, "
        f"files {row['files_growth']}, threads {row['threads_growth']}"
        for row in rows
        if row["memory_growth_percent"] > MOST_GROWTH_PERCENT
        or row["files_growth"] > max(1.0, row["files"] * MOST_GROWTH_PERCENT / 100)
        or row["threads_growth"] > max(1.0, row["threads"] * MOST_GROWTH_PERCENT / 100)
    ]


def _left_over(facts: Mapping[str, Any]) -> list[str]:
    """Name objects beyond those of rows, of which each kill may leave the few it was writing."""
    found = []
    most = 2 * 16 * max(facts["restarts"], 1)
    if facts["take_objects_too_many"] > most:
        found.append(f"{facts['take_objects_too_many']} objects of takes have no row")
    return found
