"""Write and read AAC as bare frames with their sizes beside them, which is what joins copy."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from synth.contract import AudioArray
from workers.book_files.chapter_mastering import FRAME_SAMPLES

PRIMING_FRAMES = 1  # the encoder's first frame holds what comes before the first sample


@dataclass(frozen=True, slots=True)
class AacFrames:
    """Say what a file of bare frames holds: their sizes in bytes, the codec's configuration.

    The first frame is the priming; the others hold `FRAME_SAMPLES` samples each.
    """

    config: bytes
    sizes: npt.NDArray[np.uint16]

    def to_json(self) -> dict[str, Any]:
        """Return this as values that JSON can hold."""
        sizes = base64.b64encode(self.sizes.astype("<u2").tobytes()).decode()
        return {"config": self.config.hex(), "sizes": sizes}

    @staticmethod
    def from_json(values: dict[str, Any]) -> AacFrames:
        """Return what `to_json` was made of."""
        sizes = np.frombuffer(base64.b64decode(values["sizes"]), dtype="<u2")
        return AacFrames(bytes.fromhex(values["config"]), sizes.astype(np.uint16))


def write_aac(
    path: Path, blocks: Iterable[AudioArray], sample_rate: int, *, bit_rate: int
) -> AacFrames:
    """Encode mono audio of whole frames into a new file.

    Args:
        bit_rate: bits per second.

    Raises:
        OSError: the disk is full.
    """
    encoder: Any = av.CodecContext.create("aac", "w")
    encoder.sample_rate, encoder.layout, encoder.format = sample_rate, "mono", "fltp"
    encoder.bit_rate = bit_rate
    # Without a global header every frame would stand alone as ADTS-less data without its setup.
    encoder.flags |= av.codec.context.Flags.global_header
    # Four times as fast as FFmpeg's usual search and, for one voice at 48 kbit/s or more, nearer
    # to what was said: by 6 dB at 64 kbit/s (docs/benchmarks.md).
    encoder.options = {"aac_coder": "fast"}
    encoder.open()
    sizes = array("H")  # a list would take thirty bytes for each
    with path.open("wb") as file:
        for frame in _frames(blocks, sample_rate):
            _append(file, sizes, encoder.encode(frame))
        _append(file, sizes, encoder.encode(None))
    return AacFrames(bytes(encoder.extradata), np.frombuffer(sizes, dtype=np.uint16))


def read_aac(path: Path, frames: AacFrames, sample_rate: int) -> Iterator[AudioArray]:
    """Yield the samples that players hear, float32 [n], about a second at a time."""
    decoder: Any = av.CodecContext.create("aac", "r")
    decoder.extradata = frames.config
    decoder.sample_rate, decoder.layout = sample_rate, "mono"
    decoder.open()
    held: list[AudioArray] = []
    skipped = PRIMING_FRAMES
    with path.open("rb") as file:
        for size in frames.sizes:
            for frame in decoder.decode(av.Packet(file.read(int(size)))):
                if skipped:
                    skipped -= 1
                    continue
                held.append(frame.to_ndarray()[0].astype(np.float32))
                if len(held) == 64:
                    yield np.concatenate(held)
                    held.clear()
    if held:
        yield np.concatenate(held)


def _append(file: Any, sizes: array[int], packets: Iterable[Any]) -> None:
    for packet in packets:
        sizes.append(packet.size)
        file.write(bytes(packet))


def _frames(blocks: Iterable[AudioArray], sample_rate: int) -> Iterator[av.AudioFrame]:
    """Yield frames of exactly `FRAME_SAMPLES`, cut to full scale."""
    rest: AudioArray = np.empty(0, np.float32)
    position = 0
    for block in blocks:
        held = np.clip(np.concatenate((rest, block)), -1.0, 1.0).astype(np.float32)
        count = len(held) // FRAME_SAMPLES
        for row in held[: count * FRAME_SAMPLES].reshape(count, 1, FRAME_SAMPLES):
            frame = av.AudioFrame.from_ndarray(row, "fltp", "mono")
            frame.sample_rate, frame.pts = sample_rate, position
            position += FRAME_SAMPLES
            yield frame
        rest = held[count * FRAME_SAMPLES :]
    assert not len(rest), "a chapter is whole frames"
