"""Run our commands as a person does: in a process of their own, with folders of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

PROJECT = Path(__file__).resolve().parents[2]
DEMO = PROJECT / "synth" / "demo"  # the checkpoint that is built in
CLIP = DEMO / "clips" / "clara.wav"
TRANSCRIPT = "The morning was bright, and the whole street smelled of bread."
PATIENCE_SECONDS = 180  # generous: a machine that runs everything at once starts torch slowly

MAKE_KEY = """
import django; django.setup()
from django.conf import settings
from django.contrib.auth import get_user_model
from synth.accounts.access import create_key
from ttsweb.migration import migrate_once
migrate_once(settings.DATA_DIR)
user, _ = get_user_model().objects.get_or_create(username="tester")
print(create_key(user, "test")[1])
"""


def environment_for(folder: Path) -> dict[str, str]:
    """Return what `clean_env` is, for a fixture that lives longer than one test."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {
        "DJANGO_SETTINGS_MODULE": "ttsweb.settings",
        "PYTHONPATH": str(PROJECT),
        "OMP_NUM_THREADS": "1",
        "TTS_DATA_DIR": str(folder / "data"),
        "TTS_ENV_FILE": os.devnull,
    }


def start(environment: dict[str, str], *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start `manage.py` with these arguments; its output is read by `communicate`."""
    return subprocess.Popen(
        [sys.executable, str(PROJECT / "manage.py"), *arguments],
        env=environment,
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run(environment: dict[str, str], *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run `manage.py` to its end, which no child of it outlives."""
    process = start(environment, *map(str, arguments))
    try:
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert children_of(process.pid) == []
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


@contextmanager
def serving(
    environment: dict[str, str], *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run `serve` until the block ends; yield it with what it says once it is ready."""
    command = ("serve", "--port", str(free_port()), "--json", *arguments)
    with start(environment, *command) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


def demo_rate() -> int:
    """Return the sample rate of the built-in checkpoint's sound, in Hz."""
    path = DEMO / "codec_config.json"
    rate: int = json.loads(path.read_text())["sample_rate"] if path.is_file() else 44_100
    return rate


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def run_python(environment: dict[str, str], code: str) -> str:
    """Run code beside the project, and return what it prints."""
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=PROJECT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def one_object(text: str) -> dict[str, Any]:
    """Return the one JSON object that standard output holds; anything beside it is an error."""
    found: dict[str, Any] = json.loads(text)
    return found


def children_of(pid: int) -> list[str]:
    """Return the command lines of living processes that watch this one."""
    return [line for _, line in _processes() if f"workers.local.parent_watch {pid} " in line]


def child_pid(parent: int, words: str) -> int:
    """Return the process id of the child of `parent` whose command line holds `words`."""
    mark = f"workers.local.parent_watch {parent} "
    found = [pid for pid, line in _processes() if mark in line and words in line]
    assert len(found) == 1, found
    return found[0]


def _processes() -> list[tuple[int, str]]:
    """Return the id and the command line of every process."""
    command = ["ps", "-A", "-ww", "-o", "pid=", "-o", "args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=1) for line in listed.stdout.splitlines()]
    return [(int(row[0]), row[1]) for row in rows if len(row) == 2]


def check_is_speech(path: Path, *, seconds: tuple[float, float]) -> None:
    """Hold a file to what a tiny model's speech has: its length, a level, pauses between words."""
    audio, rate = soundfile.read(path)
    assert audio.ndim == 1
    assert seconds[0] < len(audio) / rate < seconds[1]
    assert 0.02 < np.sqrt(np.mean(np.square(audio))) < 0.5
    blocks = audio[: len(audio) // 1000 * 1000].reshape(-1, 1000)
    loudness = np.sqrt(np.mean(np.square(blocks), axis=1))
    assert np.max(loudness) > 10 * np.min(loudness)
