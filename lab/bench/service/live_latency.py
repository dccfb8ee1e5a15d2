"""Measure how soon a running service is heard: milliseconds from the request to the first audio.

    export TTS_URL=http://127.0.0.1:8000 TTS_API_KEY=tts_…
    python -m lab.bench.service.live_latency --voice Ada

Each round renders a text that was never spoken before, one job at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

import httpx

HEAD_BYTES = 44
TEXT = (
    "Round {} of this measurement began at {}. The lamp was lit long before the rain came down, "
    "and nobody in the house had heard the door. So they waited for the morning."
)


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default=os.environ.get("TTS_URL", "http://127.0.0.1:8000"))
    parser.add_argument("--key", default=os.environ.get("TTS_API_KEY", ""))
    parser.add_argument("--voice", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    headers = {"Authorization": f"Bearer {arguments.key}"}
    with httpx.Client(base_url=arguments.url, headers=headers, timeout=120) as client:
        waits = [measure(client, arguments.voice, number) for number in range(arguments.rounds)]
    first, whole = zip(*waits, strict=True)
    figures = {
        "rounds": len(waits),
        "first_audio_ms": [round(1000 * seconds) for seconds in first],
        "first_audio_ms_median": round(1000 * statistics.median(first)),
        "whole_ms_median": round(1000 * statistics.median(whole)),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def measure(client: httpx.Client, voice: str, number: int) -> tuple[float, float]:
    """Return the seconds from a job's submission to its first audio and to its last."""
    text = TEXT.format(number, time.time_ns())
    started = time.monotonic()
    made = client.post("/api/v1/jobs", json={"text": text, "voice": voice, "live": True})
    made.raise_for_status()
    path = f"/api/v1/jobs/{made.json()['id']}/audio?live=1&format=wav"
    first, size = 0.0, 0
    with client.stream("GET", path) as answer:
        if answer.status_code != 200:
            raise SystemExit(answer.read().decode())
        for part in answer.iter_raw():
            size += len(part)
            if not first and size > HEAD_BYTES:
                first = time.monotonic() - started
    return first, time.monotonic() - started


if __name__ == "__main__":
    main()
