"""Do one fault after the other to an installation that works, and say what each of them cost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import httpx
import soundfile
from django.contrib.auth import get_user_model
from django.db import DatabaseError, InterfaceError, connection

from lab.torture.checks import KINDS, LOST, TWICE, UNANSWERED, Check, Findings
from lab.torture.defects import plant
from lab.torture.faults import WHY_NOT, Fault, Scene
from lab.torture.installation import Installation
from lab.torture.load import Load
from lab.torture.stand_in import RENDERED
from synth.accounts.access import create_key
from synth.models import Batch, Export, RenderJob, WorkerStatus
from ttsweb.commands.base import StepError
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip, create_voice
from workers.local.demo import DEMO_CLIP

FAULT_SHARE = 0.55  # of a window; the rest of it shows how the installation recovers
RECOVERY_SECONDS = 60.0  # before the next fault begins in any case
DRAIN_SECONDS = 120.0
START_SECONDS = 300.0  # of a machine that does other things meanwhile

LOOK_SECONDS = 0.2

Say = Callable[[str], None]


@dataclass
class Window:
    """The time of one fault: when it began and ended, and when the next one began."""

    fault: str
    begin: float
    fault_end: float = 0.0
    end: float = 0.0
    why_not: str = ""
    recovery_seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """All that a run found; `finished` has when each job was seen to have ended."""

    windows: Sequence[Window]
    rows: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any]
    finished: Sequence[float]

    @property
    def is_good(self) -> bool:
        return not any(self.facts[kind] for kind in KINDS)


@contextmanager
def working(made: Installation, say: Say) -> Iterator[Load]:
    """Wait until an installation renders, and give the load that it will have.

    Raises:
        StepError: torture_failed, when it does not within five minutes.
    """
    say("starting web and workers")
    user = get_user_model().objects.create_user("tortured", is_superuser=True)
    key = create_key(user, "torture", scopes=["read", "jobs", "voices", "admin"])[1]
    content = DEMO_CLIP.path.read_bytes()
    clip = NewClip(transcript=DEMO_CLIP.transcript, content=content)
    voice = create_voice(
        name="Ada", consent_statement=DEMO_CLIP.consent, by="torture", clips=[clip]
    )
    wait_ready(made, voice)
    yield Load(made.url, key, "Ada", soundfile.read(DEMO_CLIP.path), lambda: 0)


def wait_ready(made: Installation, voice: Voice) -> None:
    until = time.monotonic() + START_SECONDS
    ready = VoiceVersion.objects.filter(voice=voice, status=VoiceVersion.Status.READY)
    workers = WorkerStatus.objects.filter(state=WorkerStatus.State.READY)
    while not (ready.exists() and workers.count() == len(made.workers) and _answers(made.url)):
        if time.monotonic() > until:
            logs = ", ".join(str(path) for path in sorted(made.folder.glob("*.log")))
            last = "\n".join(path.read_text()[-1500:] for path in sorted(made.folder.glob("*.log")))
            raise StepError("torture_failed", f"The installation does not start: {logs}\n{last}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


class Watcher(threading.Thread):
    """Note each job that has ended: when it was first seen so, its status and its file's digest.

    All times are of the monotonic clock, which no fault moves.
    """

    def __init__(self) -> None:
        super().__init__(name="watcher", daemon=True)
        self.seen_at: dict[Any, float] = {}
        self.first_seen: dict[Any, tuple[str, str]] = {}
        self.unfinished = 0
        self._over = threading.Event()
        self.looked = threading.Condition()

    def run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except (DatabaseError, InterfaceError):
                connection.close()  # away for now
            with self.looked:
                self.looked.notify_all()
        connection.close()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def finished_after(self, moment: float) -> float | None:
        """Return when the first job was seen that succeeded after a moment; None before that."""
        later = (at for pk, at in list(self.seen_at.items()) if at > moment and self._is_good(pk))
        return min(later, default=None)

    def finished(self, begin: float, end: float) -> list[float]:
        """Return when jobs were seen to have succeeded in a time, in order."""
        found = [at for pk, at in list(self.seen_at.items()) if begin < at <= end]
        return sorted(found)

    def _is_good(self, pk: Any) -> bool:
        return self.first_seen[pk][0] == RenderJob.Status.SUCCEEDED

    def _look(self) -> None:
        ended = dict(
            RenderJob.objects.filter(status__in=RenderJob.FINAL).values_list("pk", "status")
        )
        new = ended.keys() - self.first_seen.keys()
        if new:
            done = Export.objects.filter(job__in=new, status=Export.Status.DONE)
            files = dict(done.values_list("job", "sha256"))
            now = time.monotonic()
            for pk in new:
                self.first_seen[pk] = (ended[pk], files.get(pk, ""))
                self.seen_at[pk] = now
        self.unfinished = RenderJob.objects.exclude(status__in=RenderJob.FINAL).count()


def count_open() -> int:
    """Return how many jobs, batches and voices have not ended."""
    open_jobs = RenderJob.objects.exclude(status__in=RenderJob.FINAL).count()
    open_batches = Batch.objects.filter(ended_at__isnull=True).count()
    final = (VoiceVersion.Status.READY, VoiceVersion.Status.FAILED)
    return open_jobs + open_batches + VoiceVersion.objects.exclude(status__in=final).count()


class Torture:
    """Hold what a run uses; `run` does all of it."""

    def __init__(self, made: Installation, load: Load, say: Say, *, defects: Sequence[str]) -> None:
        self._made, self._load, self._say, self._defects = made, load, say, defects
        self._watcher = Watcher()
        self._windows: list[Window] = []
        load.count_unfinished = lambda: self._watcher.unfinished

    def run(self, faults: Sequence[Fault], seconds: float) -> Outcome:
        """Do the faults that this installation can have, so that all of them take `seconds`."""
        has = self._parts()
        able = [fault for fault in faults if fault.needs <= has]
        each = seconds / max(len(able), 1)
        began = time.monotonic()
        scene = Scene(self._made, self._load, has_ended=lambda pk: pk in self._watcher.seen_at)
        self._watcher.start()
        self._load.start()
        try:
            for fault in faults:
                self._load.window = len(self._windows)
                if fault in able:
                    self._windows.append(self._do(fault, scene, each))
                else:
                    [why] = [WHY_NOT[part] for part in fault.needs - has]
                    self._windows.append(Window(fault.name, 0.0, why_not=why))
            self._say("waiting for what was accepted")
            self._load.stop()
            self._drain()
        finally:
            self._watcher.stop()
        plant(self._defects, self._load.accepted)
        return self._outcome(began)

    def _parts(self) -> frozenset[str]:
        made = self._made
        there = {
            "redis": made.redis,
            "postgres": made.postgres,
            "network": made.proxies,
            "s3": made.s3,
            "disk": made.has_own_disk,
        }
        return frozenset(part for part, found in there.items() if found)

    def _do(self, fault: Fault, scene: Scene, seconds: float) -> Window:
        self._say(f"{fault.name}: {len(self._load.accepted)} accepted so far")
        window = Window(fault.name, time.monotonic())
        fault.run(scene, FAULT_SHARE * seconds)
        window.fault_end = time.monotonic()
        until = window.begin + seconds
        patience = window.fault_end + RECOVERY_SECONDS
        while True:
            first = self._watcher.finished_after(window.fault_end)
            now = time.monotonic()
            if (first is not None and now >= until) or now >= patience:
                break
            with self._watcher.looked:
                self._watcher.looked.wait(1.0)
        window.end = now
        window.recovery_seconds = None if first is None else first - window.fault_end
        return window

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < until:
            try:
                if not count_open():
                    return
            except (DatabaseError, InterfaceError):
                connection.close()
            with self._watcher.looked:
                self._watcher.looked.wait(1.0)

    def _outcome(self, began: float) -> Outcome:
        self._say("looking at every job and every file")
        with self._load.client() as client:
            check = Check(client, self._watcher.first_seen)
            findings = check.look_at(self._load.accepted)
        for window, text in self._load.problems:
            findings.add(window, TWICE if "twice" in text else LOST, text)
        renders = self._renders()
        rows = [self._row(number, findings, renders) for number in range(len(self._windows))]
        totals = findings.totals()
        all_renders = sum((count for count, _ in renders.values()), 0)
        wasted = sum((again for _, again in renders.values()), 0)
        facts = {
            "accepted": len(self._load.accepted),
            "finished_jobs": len(self._watcher.seen_at),
            **totals,
            "checked_files": check.files,
            "renders": all_renders,
            "wasted_percent": percent(wasted, all_renders),
            "seconds": round(time.monotonic() - began, 1),
            "problems": [self._named(problem) for problem in findings.problems],
        }
        finished = [at - began for at in sorted(self._watcher.seen_at.values())]
        windows = [_since(window, began) for window in self._windows]
        return Outcome(windows, rows, facts, finished)

    def _row(
        self, number: int, findings: Findings, renders: Mapping[int, tuple[int, int]]
    ) -> dict[str, Any]:
        window = self._windows[number]
        row: dict[str, Any] = {"fault": window.fault, "not_run": window.why_not or None}
        if window.why_not:
            return row
        count, again = renders.get(number, (0, 0))
        accepted = [one for one in self._load.accepted if one.window == number]
        return row | {
            "seconds": round(window.fault_end - window.begin, 1),
            "accepted": len(accepted),
            "finished": len(self._watcher.finished(window.begin, window.end)),
            **{kind: findings.counts[number, kind] for kind in KINDS},
            "renders": count,
            "wasted_percent": percent(again, count),
            "longest_stall_seconds": round(self._longest_stall(window), 1),
            "recovery_seconds": _rounded(window.recovery_seconds),
        }

    def _longest_stall(self, window: Window) -> float:
        """Return the longest time in which no job ended, of those that ended up in the window."""
        moments = [window.begin, *self._watcher.finished(window.begin, window.end), window.end]
        return max(later - sooner for sooner, later in pairwise(moments))

    def _renders(self) -> dict[int, tuple[int, int]]:
        """Return for each window the renderings that began in it, and those beyond the first."""
        known: set[str] = set()
        found: Counter[tuple[int, bool]] = Counter()
        lines = (self._made.folder / RENDERED).read_text(encoding="ascii").splitlines()
        for at, name in sorted((float(at), name) for at, name in map(str.split, lines)):
            number = self._window_at(at)
            found[number, name in known] += 1
            known.add(name)
        numbers = {number for number, _ in found}
        return {n: (found[n, False] + found[n, True], found[n, True]) for n in numbers}

    def _window_at(self, moment: float) -> int:
        """Return the number of the fault that a moment belongs to: the last that had begun."""
        began = [n for n, one in enumerate(self._windows) if one.begin and one.begin <= moment]
        return began[-1] if began else -1

    def _named(self, problem: Mapping[str, Any]) -> dict[str, Any]:
        number = problem["window"]
        fault = "unanswered" if number == UNANSWERED else self._windows[number].fault
        return {"fault": fault, "kind": problem["kind"], "problem": problem["problem"]}


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _since(window: Window, began: float) -> Window:
    if window.why_not:
        return window
    return replace(
        window,
        begin=window.begin - began,
        fault_end=window.fault_end - began,
        end=window.end - began,
    )
