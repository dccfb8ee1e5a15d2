"""Run a benchmark's work in a child process that has a data folder, and so a service, of its own.

The child has its own database, broker, storage and secret key under a temporary folder. All other
settings, such as device and number formats, are those of this process.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.bench.report import Progress
from ttsweb.commands.base import StepError
from ttsweb.configuration.env import read_dotenv
from workers.local.children import last_line

GRACE_SECONDS = 30.0  # for the child to stop its worker once this process is gone
NOT_INHERITED = (
    "TTS_DATA_DIR",
    "TTS_STORAGE",
    "TTS_DATABASE_URL",
    "TTS_REDIS_URL",
    "TTS_SECRET_KEY",
    "TTS_ALLOWED_HOSTS",
    "TTS_BEHIND_HTTPS_PROXY",
    "TTS_WORKER_NAME",
)


@dataclass(frozen=True)
class OwnService:
    """A temporary folder and the environment of processes that keep everything in it."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, module: str, plan: Mapping[str, Any], progress: Progress) -> Any:
        """Return what `module.work(plan)` answers in a child process that ends with this one.

        Raises:
            StepError: the work's own error, or bench_failed with the last line of its log.
        """
        plan_path, log_path = self.folder / "plan.json", self.folder / "bench.log"
        plan_path.write_text(json.dumps(plan), encoding="utf-8")
        watched = [
            sys.executable,
            "-m",
            "workers.local.parent_watch",
            str(os.getpid()),
            str(GRACE_SECONDS),
        ]
        with log_path.open("wb") as log:
            child = subprocess.Popen(
                [*watched, "lab.bench.service.child", module, str(plan_path)],
                cwd=settings.BASE_DIR,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            try:
                said = _listen(child, progress)
            finally:
                child.terminate()
                child.wait(GRACE_SECONDS)
        if "error" in said:
            raise StepError(said["error"]["code"], said["error"]["message"])
        if "answer" not in said:
            raise StepError("bench_failed", f"The benchmark ended early: {last_line(log_path)}")
        return said["answer"]


@contextmanager
def own_service(**overrides: str) -> Iterator[OwnService]:
    """Make a temporary data folder for the length of a `with` block.

    Args:
        overrides: settings of its processes by name, such as `TTS_ENGINE_SLOTS`; an empty text
            leaves the setting at its default.
    """
    env_file = os.environ.get("TTS_ENV_FILE", "").strip() or settings.BASE_DIR / ".env"
    inherited = read_dotenv(settings.BASE_DIR / env_file) | dict(os.environ)
    kept = {name: text for name, text in inherited.items() if name not in NOT_INHERITED}
    with tempfile.TemporaryDirectory(prefix="ttsweb-bench-") as folder:
        environment = kept | {
            "DJANGO_SETTINGS_MODULE": "ttsweb.settings",
            "TTS_ENV_FILE": os.devnull,
            "TTS_DATA_DIR": str(Path(folder) / "data"),
            "TTS_SECRET_KEY": secrets.token_urlsafe(50),
        }
        yield OwnService(
            Path(folder), environment | {name: text for name, text in overrides.items() if text}
        )


def _listen(child: subprocess.Popen[str], progress: Progress) -> dict[str, Any]:
    """Show the child's progress; return the last thing that it said, empty where that is none."""
    for line in child.stdout or ():
        said: dict[str, Any] = json.loads(line)
        if "progress" not in said:
            return said
        progress(said["progress"])
    return {}
