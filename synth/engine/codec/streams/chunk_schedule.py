"""Say in chunks of how many frames a stream is decoded: small ones first, so that sound starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synth.engine.errors import InvalidSpecError

MAX_FIRST = 4  # frames, 0.19 s: the first sound waits for all of them
MAX_LARGEST = 256  # frames, 12 s; larger ones gain nothing and wait long


@dataclass(frozen=True, slots=True)
class ChunkSchedule:
    """Hold the first chunk's frames and the largest's; each chunk is twice the one before.

    Raises:
        InvalidSpecError: `first` is not 1 to 4, or `largest` is below `first` or above 256.
    """

    first: int = 4
    largest: int = 32

    def __post_init__(self) -> None:
        """Refuse what makes no sense as a schedule."""
        if not 1 <= self.first <= MAX_FIRST:
            raise InvalidSpecError(
                f"The first chunk must have 1 to {MAX_FIRST} frames, not {self.first}."
            )
        if not self.first <= self.largest <= MAX_LARGEST:
            raise InvalidSpecError(
                f"The largest chunk must have {self.first} (as many as the first chunk) to "
                f"{MAX_LARGEST} frames, not {self.largest}."
            )

    def sizes(self) -> Iterator[int]:
        """Yield the frames of one chunk after the other, without end."""
        size = self.first
        while True:
            yield size
            size = min(2 * size, self.largest)

    def distinct_sizes(self) -> tuple[int, ...]:
        """Return every size that a chunk can have, but for the last of a stream."""
        found: list[int] = []
        for size in self.sizes():
            if size in found:
                break
            found.append(size)
        return tuple(found)

    def split(self, num_frames: int) -> Iterator[int]:
        """Yield the frames of the chunks that `num_frames` frames are cut into; the last may be
        shorter."""
        for size in self.sizes():
            if num_frames <= 0:
                return
            yield min(size, num_frames)
            num_frames -= size
