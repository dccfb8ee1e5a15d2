"""Hold what was accepted against what came of it: nothing lost or twice, each file as it says.

Rows are read from the database, files are fetched over HTTP as a client does, decoded, and compared
with the takes that the rows name and with what the texts sound like.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import soundfile
from django.core.files.storage import default_storage

from lab.torture.load import CANCELLED, PARTIAL, SUCCEEDED, Accepted
from lab.torture.stand_in import POISON, expected_audio
from synth.contract import AudioArray
from synth.models import Batch, Export, RenderJob, Segment, Take
from voices.models import VoiceVersion
from workers.audio.mastering import JoinedTakes

LOSSLESS = ("flac", "wav")
CLOSE = 2.5 / 32768  # 16-bit samples that were rounded twice
CLOSE_SECONDS = 0.1  # of formats that pad: the first and last packet
KINDS = LOST, TWICE, CORRUPT = "lost", "twice", "corrupt"
FIRST_PROBLEMS = 20
UNANSWERED = -1  # in place of the number of a fault


@dataclass
class Findings:
    """What was found wrong: how often by fault and kind, and the first of it in words."""

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    problems: list[dict[str, Any]] = field(default_factory=list)

    def add(self, window: int, kind: str, text: str) -> None:
        self.counts[window, kind] += 1
        if len(self.problems) < FIRST_PROBLEMS:
            self.problems.append({"window": window, "kind": kind, "problem": text})

    def totals(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (_, kind), count in self.counts.items():
            found[kind] += count
        return {kind: found[kind] for kind in KINDS}


class Check:
    """Look at everything once; `findings` has what is wrong."""

    def __init__(self, client: httpx.Client, first_seen: dict[Any, tuple[str, str]]) -> None:
        """Take a client of the installation, and how jobs were when they first had ended."""
        self._client, self._first_seen = client, first_seen
        self.findings = Findings()
        self.files = 0

    def look_at(self, accepted: Iterable[Accepted]) -> Findings:
        jobs = dict(RenderJob.objects.in_bulk())
        known: dict[Any, int] = {}
        for one in accepted:
            if one.kind == "job":
                known[one.pk] = one.window
                self._job(one, jobs.get(one.pk))
            elif one.kind == "batch":
                self._batch(one, known)
            else:
                self._voice(one)
        self._once(accepted)
        for pk, job in jobs.items():  # what was not answered, and yet is there, has to end as well
            if pk not in known and job.status not in RenderJob.FINAL:
                self.findings.add(UNANSWERED, LOST, f"job {pk} is {job.status} and does not end")
        return self.findings

    def _job(self, one: Accepted, job: RenderJob | None) -> None:
        if job is None:
            self.findings.add(one.window, LOST, f"job {one.pk} has no row any more")
            return
        why = _why_lost(one, job)
        if why:
            self.findings.add(one.window, LOST, f"job {one.pk} {why}")
            return
        export = job.exports.filter(status=Export.Status.DONE).first()
        now = (job.status, export.sha256 if export else "")
        if self._first_seen.get(job.pk, now) != now:
            text = f"job {job.pk} was {self._first_seen[job.pk]} when it ended and is now {now}"
            self.findings.add(one.window, TWICE, text)
        why = self._why_miscounted(job)
        if why:
            self.findings.add(one.window, TWICE, f"job {job.pk} {why}")
        if job.status in (SUCCEEDED, PARTIAL):
            why = self._why_corrupt(one, job, export)
            if why:
                self.findings.add(one.window, CORRUPT, f"job {job.pk}: {why}")

    def _batch(self, one: Accepted, known: dict[Any, int]) -> None:
        batch = Batch.objects.filter(pk=one.pk).first()
        if batch is None or batch.ended_at is None or batch.status not in one.ends:
            state = "has no row any more" if batch is None else f"is {batch.status}"
            self.findings.add(one.window, LOST, f"batch {one.pk} {state}")
            return
        items = list(batch.items.all())
        if len(items) != batch.items_total:
            text = f"batch {one.pk} has {len(items)} jobs of {batch.items_total}"
            self.findings.add(one.window, LOST, text)
        for job in items:
            known[job.pk] = one.window
            self._job(Accepted("job", job.pk, "", one.window), job)
        content = self._fetch(f"/api/v1/batches/{one.pk}/results")
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                damaged = archive.testzip()
                members = [archive.read(name) for name in archive.namelist()]
        except zipfile.BadZipFile as error:
            self.findings.add(one.window, CORRUPT, f"batch {one.pk}: {error}")
            return
        wanted = Export.objects.filter(job__in=items).values_list("sha256", flat=True)
        found = {hashlib.sha256(member).hexdigest() for member in members}
        if damaged is not None or not set(wanted) <= found:
            self.findings.add(one.window, CORRUPT, f"batch {one.pk}: its zip lacks files of items")

    def _voice(self, one: Accepted) -> None:
        version = VoiceVersion.objects.filter(voice=one.pk).first()
        if version is None or version.status not in one.ends:
            state = "has no row any more" if version is None else f"is {version.status}"
            self.findings.add(one.window, LOST, f"voice {one.pk} {state}")

    def _once(self, accepted: Iterable[Accepted]) -> None:
        """Look that each key made one row."""
        windows = {one.key: one.window for one in accepted if one.key}
        for model in (RenderJob, Batch):
            keys = model.objects.exclude(idempotency_key="")
            counts = Counter(keys.values_list("idempotency_key", flat=True))
            for key, count in counts.items():
                if count > 1 and key in windows:
                    text = f"{count} rows were made for one Idempotency-Key"
                    self.findings.add(windows[key], TWICE, text)

    def _why_miscounted(self, job: RenderJob) -> str:
        """Return what differs between a job's counters and its segments: one counted twice."""
        states = Counter(job.segments.values_list("status", flat=True))
        counted = (job.segments_done, job.segments_failed)
        found = (states[Segment.Status.DONE], states[Segment.Status.FAILED])
        if counted != found:
            return f"counts {counted} segments done and failed, and has {found}"
        if job.exports.count() > 1:
            return "has more than one file"
        return ""

    def _why_corrupt(self, one: Accepted, job: RenderJob, export: Export | None) -> str:
        if export is None:
            return "it has no file"
        self.files += 1
        content = self._fetch(f"/api/v1/jobs/{job.pk}/audio")
        if (
            hashlib.sha256(content).hexdigest() != export.sha256
            or len(content) != export.size_bytes
        ):
            return f"its file's {len(content)} bytes are not those that the row names"
        try:
            samples, rate = soundfile.read(io.BytesIO(content), dtype="float32")
        except soundfile.LibsndfileError as error:
            return f"its file cannot be decoded: {error}"
        is_exact = export.format in LOSSLESS
        tolerance = 0.5 / rate if is_exact else CLOSE_SECONDS
        if abs(len(samples) / rate - export.duration_seconds) > tolerance:
            return f"its file lasts {len(samples) / rate:.3f} s, not {export.duration_seconds:.3f}"
        done = job.segments.filter(status=Segment.Status.DONE).select_related("take")
        rows = list(done.order_by("chapter__index", "index"))
        for segment in rows:
            if why := _why_wrong_take(segment):
                return why
        if is_exact:
            wanted = np.concatenate(list(JoinedTakes(rows, speed=job.speed).blocks()))
            if not _is_close(samples, wanted):
                return "its file is not the join of its takes"
            return _why_heard_otherwise(one, samples)
        return ""

    def _fetch(self, path: str) -> bytes:
        for _ in range(3):
            try:
                answer = self._client.get(path)
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                return answer.content
        return b""


def _why_lost(one: Accepted, job: RenderJob) -> str:
    if job.status not in RenderJob.FINAL:
        return f"is {job.status} and does not end"
    if job.status not in one.ends:
        codes = set(job.segments.exclude(error_code="").values_list("error_code", flat=True))
        return f"ended as {job.status} ({job.error_code or ', '.join(sorted(codes))})"
    if job.status == CANCELLED:
        return ""
    states = Counter(job.segments.values_list("status", flat=True))
    if job.status == SUCCEEDED and states[Segment.Status.DONE] != job.segments_total:
        return f"succeeded with {states[Segment.Status.DONE]} of {job.segments_total} segments"
    if job.status == PARTIAL:
        failed = job.segments.filter(status=Segment.Status.FAILED)
        if any(POISON not in text for text in failed.values_list("text", flat=True)):
            return "has failed segments that nothing was wrong with"
    return ""


def _why_wrong_take(segment: Segment) -> str:
    if segment.take is None:
        return f"segment {segment.index} is done and has no take"
    wanted = expected_audio(segment.spoken_text)
    try:
        audio = _read_take(segment.take)
    except (OSError, soundfile.LibsndfileError) as error:
        return f"segment {segment.index}: its take cannot be read: {error}"
    if not _is_close(audio, wanted):
        return f"segment {segment.index}: its take is not what its text sounds like"
    return ""


def _read_take(take: Take) -> AudioArray:
    with default_storage.open(take.audio_key) as file:
        samples: AudioArray = soundfile.read(file, dtype="float32")[0]
    return samples


def _is_close(found: AudioArray, wanted: AudioArray) -> bool:
    return len(found) == len(wanted) and bool(np.max(np.abs(found - wanted), initial=0) <= CLOSE)


def _why_heard_otherwise(one: Accepted, samples: AudioArray) -> str:
    """Hold what a listener was sent while the job was rendered against its file."""
    heard = np.frombuffer(one.heard[: len(one.heard) // 2 * 2], "<i2").astype(np.float32)
    heard /= np.float32(32768)
    if len(heard) > len(samples) or not _is_close(heard, samples[: len(heard)]):
        return "a listener heard something else while it was rendered"
    if one.was_heard_whole and len(heard) < len(samples):
        return f"a listener was told the end after {len(heard)} of {len(samples)} samples"
    return ""
