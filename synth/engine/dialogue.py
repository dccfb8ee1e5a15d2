"""Split tagged text into speaker turns and group turns into batches of one generation each."""

from __future__ import annotations

from collections.abc import Sequence

from synth.engine.tokenizer import SPEAKER_TAG

MAX_TURNS_PER_BATCH = 5
DEFAULT_CHUNK_BYTES = 512


def split_text_by_speaker(text: str, *, drop_leading_text: bool = False) -> list[str]:
    """Return one turn per speaker tag: the tag with the text up to the next, outer space stripped.

    Text before the first tag is a turn of its own, unless `drop_leading_text`. A text without any
    tag gives an empty list.
    """
    starts = [match.start() for match in SPEAKER_TAG.finditer(text)]
    if not starts:
        return []
    turns = [
        text[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]
    leading = text[: starts[0]].strip()
    return turns if drop_leading_text or not leading else [leading, *turns]


def group_turns_into_batches(
    turns: Sequence[str], *, max_turns: int = MAX_TURNS_PER_BATCH, max_bytes: int
) -> list[str]:
    """Join turns with line ends, greedily, up to `max_turns` turns and `max_bytes` UTF-8 bytes.

    The joining line ends are not counted, and a single turn above the limit goes alone, uncut.
    """
    batches: list[list[str]] = []
    num_bytes = 0
    for turn in turns:
        size = len(turn.encode())
        if not batches or len(batches[-1]) >= max_turns or num_bytes + size > max_bytes:
            batches.append([])
            num_bytes = 0
        batches[-1].append(turn)
        num_bytes += size
    return ["\n".join(batch) for batch in batches]


def split_into_batches(
    text: str, *, chunk_bytes: int = DEFAULT_CHUNK_BYTES, drop_leading_text: bool = False
) -> list[str]:
    """Return the batches of a request's text; untagged text is one batch, however long."""
    turns = split_text_by_speaker(text, drop_leading_text=drop_leading_text)
    if not turns:
        return [text]
    return group_turns_into_batches(turns, max_bytes=chunk_bytes)
