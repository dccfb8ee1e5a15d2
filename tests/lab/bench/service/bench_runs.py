"""Run a benchmark of the service as a person does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[4]
PATIENCE_SECONDS = 400


def bench(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status of `manage.py bench ARGUMENTS --json` and what it printed."""
    ended = subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments, "--json"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)
