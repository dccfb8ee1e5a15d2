"""Plant in the processes of an installation what cannot be done to them from outside.

The stand-in for the engine, messages that are sent three times, a clock that jumps. Each is on
while a file is in the folder that `LAB_TORTURE_FOLDER` names; the product knows none of it.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

FOLDER, WORKER, RENDER_SECONDS = "LAB_TORTURE_FOLDER", "LAB_TORTURE_WORKER", "LAB_TORTURE_RENDER"
THRICE, CLOCK = "thrice", "clock"  # files; `clock` has seconds, `clock-NAME` is one worker's


class PlantsConfig(AppConfig):
    name, label = "lab.torture", "torture"

    def ready(self) -> None:
        """Plant all that this process may need."""
        folder = Path(os.environ[FOLDER])
        name = os.environ.get(WORKER, "")
        plant_thrice(folder / THRICE)
        plant_clock([folder / CLOCK, folder / f"{CLOCK}-{name}"])
        if sys.argv[1:2] == ["worker"]:
            plant_engine(folder)


def plant_thrice(flag: Path) -> None:
    """Send every message three times while the flag is there."""
    send = import_module("ttsweb.work")._send

    def thrice(task: str, queue: str, *arguments: str) -> bool:
        return all([send(task, queue, *arguments) for _ in range(3 if flag.exists() else 1)])

    _replace("ttsweb.work", "_send", thrice)


def plant_clock(flags: list[Path]) -> None:
    """Move this process's clock by the seconds that the flags name."""
    real_time = time.time

    def shift() -> float:
        for flag in flags:
            try:
                return float(flag.read_text())
            except (FileNotFoundError, ValueError):
                pass
        return 0.0

    class Moved(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return dt.datetime.now(tz) + dt.timedelta(seconds=shift())

    _replace("django.utils.timezone", "datetime", Moved)
    _replace("time", "time", lambda: real_time() + shift())


def plant_engine(folder: Path) -> None:
    """Have this worker load the stand-in in place of a checkpoint."""
    from django.conf import settings

    from lab.torture.stand_in import StandInEngine

    def load() -> Any:
        seconds = float(os.environ[RENDER_SECONDS])
        return StandInEngine(settings.ENGINE_SLOTS or 4, folder, render_seconds=seconds)

    _replace("workers.process.engine_host", "load_engine", load)


def _replace(module: str, name: str, value: Any) -> None:
    """Put another thing in the place of one that has to be there, or nothing would be planted."""
    place = vars(import_module(module))
    if name not in place:
        raise ImproperlyConfigured(f"{module} has no {name} any more: mend lab/torture/plants.py")
    place[name] = value
