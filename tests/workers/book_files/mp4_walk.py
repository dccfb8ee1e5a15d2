"""Read the boxes of MP4 files by the letter of ISO/IEC 14496-12, without any library."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"udta", b"edts", b"tref", b"ilst"}


def boxes(
    content: bytes, at: int = 0, end: int | None = None, path: str = ""
) -> Iterator[tuple[str, int, bytes]]:
    """Yield (path, offset, payload) of every box, parents before children."""
    end = len(content) if end is None else end
    while at < end:
        size, kind = struct.unpack_from(">I4s", content, at)
        head = 8
        if size == 1:
            size, head = struct.unpack_from(">Q", content, at + 8)[0], 16
        assert head <= size <= end - at, (path, kind, size)
        name = f"{path}/{kind.decode('latin-1')}"
        payload = content[at + head : at + size] if kind != b"mdat" else b""
        yield name, at, payload
        if kind in _CONTAINERS:
            yield from boxes(content, at + head, at + size, name)
        elif kind == b"meta":
            yield from boxes(content, at + head + 4, at + size, name)
        elif path == "/moov/udta/meta/ilst":
            yield from boxes(content, at + head, at + size, name)
        at += size
    assert at == end, path


def nero_chapters(content: bytes) -> list[tuple[float, str]]:
    """Return (seconds, title) of the old list of chapters."""
    payload = next(one for path, _, one in boxes(content) if path == "/moov/udta/chpl")
    count, at, found = payload[8], 9, []
    for _ in range(count):
        start, size = struct.unpack_from(">QB", payload, at)
        found.append((start / 10_000_000, payload[at + 9 : at + 9 + size].decode()))
        at += 9 + size
    return found
