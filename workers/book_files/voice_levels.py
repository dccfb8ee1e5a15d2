"""Bring the voices of a book to the narrator's level: one gain for each, never one per sentence.

What a voice says in a chapter is measured once and kept by its content, so that a changed chapter
is the only one that is read again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from workers.audio.loudness import LoudnessMeter
from workers.book_files.book_audio import ChapterAudio
from workers.book_files.chapter_encodes import EncodeCache, EncodeUnwantedError
from workers.book_files.publishing import publish_file

MOST_GAIN_DB = 9.0
# Half a decibel is not heard; finer steps would encode a whole book anew for one more sentence.
STEP_DB = 0.5
_VERSION = 1


class Heard(NamedTuple):
    """What was measured of a voice: its loudness, None of silence, over so many seconds."""

    lufs: float | None
    seconds: float


class VoiceLevels(NamedTuple):
    """Hold the gains in dB by voice, and what is reported of them."""

    gains_db: Mapping[str, float]
    report: list[dict[str, Any]]


def level_voices(
    chapters: Sequence[ChapterAudio],
    sample_rate: int,
    speakers: Mapping[str, Sequence[int]],
    cache: EncodeCache,
    *,
    is_unwanted: Callable[[], bool],
) -> VoiceLevels:
    """Return one gain for each voice; a book of one voice has none.

    Args:
        chapters: of the whole book, with content keys and spans that name their voices.
        speakers: the job's speakers by voice; speaker 0 is the narrator.

    Raises:
        EncodeUnwantedError: nobody waits for it any more.
        TakeMissingError, OSError: as reading and writing raise them.
    """
    spoken = {span.voice for chapter in chapters for span in chapter.segments}
    narrator = next((voice for voice, numbers in speakers.items() if 0 in numbers), "")
    if len(spoken) < 2 or narrator not in spoken:
        return VoiceLevels({}, [])
    heard: dict[str, list[Heard]] = {voice: [] for voice in sorted(spoken)}
    for chapter in chapters:
        for voice, found in _chapter(chapter, sample_rate, cache, is_unwanted).items():
            heard[voice].append(found)
    levels = {voice: _joined(parts) for voice, parts in heard.items()}
    rows = [_row(voice, levels, narrator, speakers.get(voice, ())) for voice in levels]
    return VoiceLevels({row["voice"]: row["gain_db"] for row in rows if row["gain_db"]}, rows)


def _row(
    voice: str, levels: Mapping[str, float | None], narrator: str, speakers: Sequence[int]
) -> dict[str, Any]:
    target, found = levels[narrator], levels[voice]
    missing = 0.0 if target is None or found is None else target - found
    gain = max(-MOST_GAIN_DB, min(MOST_GAIN_DB, round(missing / STEP_DB) * STEP_DB))
    return {
        "voice": voice,
        "speakers": sorted(speakers),
        "loudness_lufs": found,
        "gain_db": gain + 0.0,
        "is_bounded": abs(missing) > MOST_GAIN_DB,
    }


def _joined(parts: Sequence[Heard]) -> float | None:
    """Return the loudness of parts together: the mean of their powers, by their lengths."""
    measured = [(part.lufs, part.seconds) for part in parts if part.lufs is not None]
    seconds = sum(length for _, length in measured)
    if not seconds:
        return None
    power = sum(10 ** (lufs / 10) * length for lufs, length in measured) / seconds
    return round(10 * math.log10(power), 2)


def _chapter(
    chapter: ChapterAudio, rate: int, cache: EncodeCache, is_unwanted: Callable[[], bool]
) -> dict[str, Heard]:
    """Return what was measured of each voice of a chapter; it is read if that is not known."""
    keys = {voice: _key(chapter, voice, rate) for voice in {s.voice for s in chapter.segments}}
    known = {voice: cache.facts(key) for voice, key in keys.items()}
    if all(facts is not None for facts in known.values()):
        return {
            voice: Heard(facts["lufs"], facts["seconds"])
            for voice, facts in known.items()
            if facts is not None
        }
    found = _measured(chapter, rate, is_unwanted)
    for voice, heard in found.items():
        with publish_file(cache.path(keys[voice])) as temporary:
            temporary.write_bytes(b"")
        cache.finish(keys[voice], heard._asdict())
    return found


def _key(chapter: ChapterAudio, voice: str, rate: int) -> str:
    places = [(span.start, span.end) for span in chapter.segments if span.voice == voice]
    parts = ("voice level", _VERSION, chapter.content_key, rate, places)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _measured(
    chapter: ChapterAudio, rate: int, is_unwanted: Callable[[], bool]
) -> dict[str, Heard]:
    """Read a chapter once and measure what each of its voices says, without pauses."""
    meters = {span.voice: LoudnessMeter(rate) for span in chapter.segments}
    lengths = dict.fromkeys(meters, 0)
    position, index, spans = 0, 0, chapter.segments
    for block in chapter.blocks():
        if is_unwanted():
            raise EncodeUnwantedError
        end = position + len(block)
        while index < len(spans) and spans[index].start < end:
            span = spans[index]
            spoken_block = block[max(0, span.start - position) : max(0, span.end - position)]
            meters[span.voice].push(spoken_block)
            lengths[span.voice] += len(spoken_block)
            if span.end > end:
                break
            index += 1
        position = end
    return {
        voice: Heard(meter.close().integrated_lufs, lengths[voice] / rate)
        for voice, meter in meters.items()
    }
