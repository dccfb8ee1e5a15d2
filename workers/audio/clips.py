"""Decode an upload in a bounded child process; measure it there: level, silence, clipping.

The child imports this module too, so it imports nothing but numpy.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.bounded_child import Ends, Limits, run_child

_HIGHEST_RATE = 384_000
_BYTES_PER_SAMPLE = 4
_ENDS = Ends(
    memory=(
        "clip_decode_memory",
        "Decoding the clip needs more memory than is allowed; "
        "convert it to a plain WAV or FLAC file.",
    ),
    timeout=(
        "clip_decode_timeout",
        "Decoding the clip takes longer than is allowed; convert it to a plain WAV or FLAC file.",
    ),
    unreadable=(
        "clip_undecodable",
        "The clip cannot be decoded: it is damaged, or its name has a wrong extension. Export "
        "it again as WAV.",
    ),
)


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


def decode_clip(
    content: bytes, *, container: str, limits: ClipLimits, scratch: Path | None = None
) -> DecodedClip:
    """Decode the first audio stream of `content`; all channels are mixed to their mean.

    Args:
        container: what the upload's signature says: wav, flac, mp3, ogg, m4a or webm.
        scratch: folder for two temporary files; None is the system's.

    Raises:
        ClipError: the clip cannot be used.
        StarvedError: the child hardly had the processor; try again later.
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
    }
    output_bytes = int((limits.max_seconds + 1) * _HIGHEST_RATE * _BYTES_PER_SAMPLE)
    bounds = Limits(limits.wall_seconds, limits.megabytes, output_bytes)
    return run_child("workers.audio.clip_child", request, bounds, _ENDS, ClipError)


FloatArray = npt.NDArray[np.float32]

FLOOR_DBFS = -120.0  # stands for digital silence: JSON knows no minus infinity
FLOOR_QUANTILE = 0.1  # what is left between words: a tenth of a clip's windows are no louder
QUIET_DBFS = -50.0  # a window below this level counts as silence
SILENT_PEAK_DBFS = -60.0  # a clip that never gets louder has nothing to imitate
WINDOW_SECONDS = 0.02
FULL_SCALE = 0.999  # converters that ran out of range give this or more
LONGEST_WISE_SECONDS = 30.0
SHORTEST_WISE_SECONDS = 3.0
LOWEST_WISE_RATE = 16_000
MOSTLY_SILENT_SHARE = 0.5
CLIPPED_SHARE = 0.001


def dbfs(level: float) -> float:
    return max(FLOOR_DBFS, 20 * math.log10(level)) if level > 0 else FLOOR_DBFS


def measure(waveform: FloatArray, sample_rate: int) -> dict[str, float]:
    """Return length, peak, level, silence and noise floor of a mono waveform [N], N > 0."""
    window = max(1, round(WINDOW_SECONDS * sample_rate))
    whole = waveform[: len(waveform) // window * window]
    windows = whole.reshape(-1, window) if len(whole) else waveform[None, :]
    # einsum: a minute at 192 kHz would otherwise be copied to float64
    power = np.einsum("ij,ij->i", windows, windows, dtype=np.float64) / windows.shape[1]
    total = float(np.einsum("i,i->", waveform, waveform, dtype=np.float64))
    quiet = np.count_nonzero(power < 10 ** (QUIET_DBFS / 10))
    return {
        "duration_seconds": round(len(waveform) / sample_rate, 4),
        "peak_dbfs": round(dbfs(max(float(waveform.max()), -float(waveform.min()))), 2),
        "rms_dbfs": round(dbfs(math.sqrt(total / len(waveform))), 2),
        "silence_share": round(quiet / len(windows), 4),
        "noise_floor_dbfs": round(dbfs(math.sqrt(float(np.quantile(power, FLOOR_QUANTILE)))), 2),
    }


def warnings_for(measures: dict[str, float]) -> list[dict[str, str]]:
    """Return a code and a sentence for everything about a usable clip that will cost quality."""
    found = []
    seconds = measures["duration_seconds"]
    if seconds < SHORTEST_WISE_SECONDS:
        sentence = f"with {SHORTEST_WISE_SECONDS:.0f} s or more the voice is imitated better."
        found.append(("clip_short", f"The clip has {seconds:.1f} s; {sentence}"))
    if seconds > LONGEST_WISE_SECONDS:
        sentence = f"more than {LONGEST_WISE_SECONDS:.0f} s makes every segment slower"
        found.append(
            ("clip_long", f"The clip has {seconds:.1f} s; {sentence} and is seldom better.")
        )
    if measures["silence_share"] > MOSTLY_SILENT_SHARE:
        sentence = f"{100 * measures['silence_share']:.0f} % of the clip is silence; cut it away."
        found.append(("clip_mostly_silent", sentence))
    if measures["clipped_share"] > CLIPPED_SHARE:
        sentence = "The clip was recorded too loud and is distorted: the voice will sound harsh."
        found.append(("clip_clipped", f"{sentence} Record it again with less gain."))
    if measures["sample_rate"] < LOWEST_WISE_RATE:
        sentence = f"below {LOWEST_WISE_RATE} Hz the voice sounds dull."
        rate = measures["sample_rate"]
        found.append(("clip_low_rate", f"The clip has a sample rate of {rate:.0f} Hz; {sentence}"))
    if measures.get("damaged_packets", 0):
        number = measures["damaged_packets"]
        found.append(("clip_damaged", f"{number:.0f} damaged parts of the file were skipped."))
    return [{"code": code, "message": message} for code, message in found]
