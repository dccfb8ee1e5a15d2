"""Turn an upload into a mono waveform and its measures, in a bounded child process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workers.audio.clip_measures import FloatArray, warnings_for
from workers.bounded_child import read_answer

PROJECT_DIR = Path(__file__).resolve().parents[2]
_HIGHEST_RATE = 384_000
_BYTES_PER_SAMPLE = 4
# One thread: every OpenBLAS thread would reserve address space, which is what we limit.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_SENTENCES = {
    "clip_decode_memory": (
        "Decoding the clip needs more memory than is allowed; "
        "convert it to a plain WAV or FLAC file."
    ),
    "clip_decode_timeout": (
        "Decoding the clip takes longer than is allowed; convert it to a plain WAV or FLAC file."
    ),
    "clip_undecodable": (
        "The clip cannot be decoded: it is damaged, or its name has a wrong extension. Export "
        "it again as WAV."
    ),
}


class ClipError(Exception):
    """A clip cannot be used; `code` is stable, `message` is for the person who sent it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class ClipLimits:
    """Bound one decoding: seconds of the clip, of wall time, and MiB of memory."""

    min_seconds: float
    max_seconds: float
    wall_seconds: float
    megabytes: int


@dataclass(frozen=True, slots=True, eq=False)
class DecodedClip:
    """Hold a mono waveform float32 [N] at its own rate in Hz, and what was measured on the way.

    `measures` has duration_seconds, sample_rate, channels, codec, container, peak_dbfs, rms_dbfs,
    silence_share, clipped_share, damaged_packets, `peaks`, at most 400 of 0 to 255 for a waveform,
    and `warnings`, a list of code and message.
    """

    waveform: FloatArray
    sample_rate: int
    measures: dict[str, Any]

    @property
    def warnings(self) -> list[dict[str, str]]:
        """Return what will cost quality, each with a code and a sentence."""
        found: list[dict[str, str]] = self.measures["warnings"]
        return found


def decode_clip(
    content: bytes, *, container: str, limits: ClipLimits, scratch: Path | None = None
) -> DecodedClip:
    """Decode the first audio stream of `content`; all channels are mixed to their mean.

    Args:
        container: what the upload's signature says: wav, flac, mp3, ogg, m4a or webm.
        scratch: folder for two temporary files; None is the system's.

    Raises:
        ClipError: the clip cannot be used.
        OSError: no temporary file could be written or no process started; try again later.
    """
    with tempfile.TemporaryDirectory(prefix="clip-", suffix=".part", dir=scratch) as folder:
        source, target = Path(folder) / f"clip.{container}", Path(folder) / "mono.f32"
        source.write_bytes(content)
        measures = _run_child(source, target, container, limits)
        waveform = np.fromfile(target, dtype=np.float32)
    if measures["duration_seconds"] < limits.min_seconds:
        raise ClipError(
            "clip_too_short",
            f"The clip has {measures['duration_seconds']:.2f} seconds; at least "
            f"{limits.min_seconds:g} are needed. Use a longer clip.",
        )
    measures["warnings"] = warnings_for(measures)
    return DecodedClip(waveform, measures["sample_rate"], measures)


def _run_child(source: Path, target: Path, container: str, limits: ClipLimits) -> dict[str, Any]:
    """Run the decoder; return its measures or raise ClipError with its code."""
    request = {
        "input": str(source),
        "output": str(target),
        "container": container,
        "max_seconds": limits.max_seconds,
        "memory_bytes": limits.megabytes << 20,
        "cpu_seconds": math.ceil(limits.wall_seconds),
        "output_bytes": int((limits.max_seconds + 1) * _HIGHEST_RATE * _BYTES_PER_SAMPLE),
    }
    try:
        ended = subprocess.run(
            [sys.executable, "-E", "-s", "-B", "-m", "workers.audio.clip_child"],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=limits.wall_seconds,
            cwd=PROJECT_DIR,
            env=_ENVIRONMENT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _error("clip_decode_timeout") from error
    return read_answer(
        ended,
        _error,
        memory="clip_decode_memory",
        timeout="clip_decode_timeout",
        unreadable="clip_undecodable",
    )


def _error(code: str, message: str = "") -> ClipError:
    return ClipError(code, message or _SENTENCES[code])
