"""Define what every reader makes of a book: documents in reading order, cut into blocks."""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class BlockKind(enum.StrEnum):
    """Say what a block is; how it is spoken, or why not, follows from it and from the rules."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    VERSE = "verse"  # a line of a poem
    LIST_ITEM = "list_item"
    SPEECH = "speech"  # of a play or an interview; `speaker` says who
    TABLE_ROW = "table_row"
    CAPTION = "caption"
    ALT_TEXT = "alt_text"  # what an image shows
    NOTE = "note"  # the body of a footnote or an endnote
    BREAK = "break"  # a scene's end: ornaments or a rule, nothing to speak
    FURNITURE = "furniture"  # page numbers, running heads, note marks


# Kinds of blocks that stand beside the text.
ASIDES = frozenset({BlockKind.FURNITURE, BlockKind.BREAK, BlockKind.ALT_TEXT})


@dataclass(frozen=True, slots=True)
class Block:
    """Hold one block of text in reading order.

    `text` has blanks collapsed and is in NFC. `source_chars` counts the non-blank characters of the
    document that the block stands for, so that the sum over all blocks of a document is that of the
    document. `anchors` are the ids that lead to it; `language` is a tag, or empty for the
    document's. `role` is the `epub:type` or ARIA role that applies, or empty.
    """

    kind: BlockKind
    text: str
    source_chars: int
    level: int = 0  # of a heading, 1 to 6
    speaker: str = ""
    language: str = ""
    role: str = ""
    anchors: tuple[str, ...] = ()
    # Notes that are referred to in it, in order: "path#anchor", or "anchor" in its own document.
    note_marks: tuple[str, ...] = ()
    is_stanza_start: bool = False  # of a line of verse: there is a gap before it


Place = tuple[int, int]  # numbers of a document and of a block in it


class Placed(NamedTuple):
    """Hold a block with the numbers of its document and of its place in that."""

    document: int
    place: int
    block: Block

    @property
    def key(self) -> Place:
        return self.document, self.place


@dataclass(frozen=True, slots=True)
class Document:
    """Hold one file of a book, in the order of reading."""

    path: str  # inside the book; a name for formats of one file
    blocks: tuple[Block, ...]
    source_chars: int  # non-blank characters of its body
    is_linear: bool = True
    role: str = ""  # such as bodymatter, titlepage, copyright-page
    language: str = ""


@dataclass(frozen=True, slots=True)
class TocEntry:
    """Hold one entry of the contents list; `fragment` is an anchor, or empty for a whole file."""

    title: str
    path: str
    fragment: str = ""
    level: int = 1


class Cover(NamedTuple):
    """Hold a cover's bytes; `media_type` is that of a raster image."""

    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Metadata:
    """Hold what a book says of itself; empty where it says nothing."""

    title: str = ""
    subtitle: str = ""
    authors: tuple[str, ...] = ()
    language: str = ""
    publisher: str = ""
    date: str = ""
    description: str = ""
    identifier: str = ""
    series: str = ""
    series_index: str = ""
    rights: str = ""
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loss:
    """Hold something of a book that could not be read: where it should be, and why it is not.

    `source_chars` and `text` are 0 and empty where nobody can know them.
    """

    path: str
    why: str
    source_chars: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """Hold a book that was read: metadata, documents, contents, cover, what was odd about it."""

    metadata: Metadata
    documents: tuple[Document, ...]
    toc: tuple[TocEntry, ...] = ()
    cover: Cover | None = None
    # Roles by place (path or path#anchor), from landmarks or the guide.
    landmarks: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def source_chars(self) -> int:
        return sum(document.source_chars for document in self.documents)

    def blocks(self) -> Iterator[Placed]:
        """Yield every block with its place, in reading order."""
        for number, document in enumerate(self.documents):
            for place, block in enumerate(document.blocks):
                yield Placed(number, place, block)


class CodedError(Exception):
    """Something that cannot be done; `code` is stable, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class BookRejectedError(CodedError):
    """A file that cannot be read as a book."""


def count_chars(text: str) -> int:
    """Return the number of characters that are no blanks."""
    return sum(not character.isspace() for character in text)


VERSION = 1


class StoredBookError(Exception):
    """What is stored is no book of this version of the program."""


def book_to_json(book: Book) -> dict[str, Any]:
    """Return a book without its cover as what `json.dumps` takes."""
    documents = [
        {one.name: getattr(document, one.name) for one in dataclasses.fields(Document)}
        | {"blocks": list(map(_block_to_json, document.blocks))}
        for document in book.documents
    ]
    return {
        "version": VERSION,
        "metadata": dataclasses.asdict(book.metadata),
        "documents": documents,
        "toc": list(map(dataclasses.asdict, book.toc)),
        "landmarks": dict(book.landmarks),
        "warnings": list(book.warnings),
        "losses": list(map(dataclasses.asdict, book.losses)),
    }


def book_from_json(data: dict[str, Any]) -> Book:
    """Return the book that `book_to_json` made this of.

    Raises:
        StoredBookError: another version has written it, or it is damaged.
    """
    try:
        if data["version"] != VERSION:
            raise StoredBookError(f"the stored version is {data['version']!r}, not {VERSION}")
        metadata = data["metadata"]
        lists = {name: tuple(metadata[name]) for name in ("authors", "subjects")}
        return Book(
            metadata=Metadata(**{**metadata, **lists}),
            documents=tuple(
                Document(**{**one, "blocks": tuple(map(_block_of_json, one["blocks"]))})
                for one in data["documents"]
            ),
            toc=tuple(TocEntry(**one) for one in data["toc"]),
            landmarks=dict(data["landmarks"]),
            warnings=tuple(data["warnings"]),
            losses=tuple(Loss(**one) for one in data.get("losses", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoredBookError(f"the stored book is damaged: {error}") from error


def _block_to_json(block: Block) -> dict[str, Any]:
    """Return a block; a book has many, so what is as it mostly is stays out."""
    values = [(one, getattr(block, one.name)) for one in dataclasses.fields(Block)]
    return {
        one.name: list(value) if isinstance(value, tuple) else value
        for one, value in values
        if value != one.default
    }


def _block_of_json(data: dict[str, Any]) -> Block:
    lists: dict[str, Any] = {
        name: tuple(data[name]) for name in ("anchors", "note_marks") if name in data
    }
    return Block(**{**data, **lists, "kind": BlockKind(data["kind"])})


MAX_COVER_BYTES = 20 * 2**20
MAX_COVER_PIXELS = 25_000_000  # decoded it takes up to 100 MB
_JPEG_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_JPEG_ALONE = {0x01, *range(0xD0, 0xD9)}


class ImageSize(NamedTuple):
    """Say what an image is: `format` is jpeg, png or webp; width and height in pixels."""

    format: str
    width: int
    height: int


def image_size(content: bytes) -> ImageSize | None:
    """Return what the header says; None of what is no JPEG, PNG or WebP, or is cut short."""
    try:
        if content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR":
            return ImageSize("png", *struct.unpack_from(">II", content, 16))
        if content[:3] == b"\xff\xd8\xff":
            return _jpeg(content)
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return _webp(content)
    except (struct.error, IndexError):
        return None
    return None


def _jpeg(content: bytes) -> ImageSize | None:
    """Walk the markers up to the frame header, which has the size."""
    at = 2
    while at + 4 <= len(content):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_ALONE:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", content, at + 5)
            return ImageSize("jpeg", width, height)
        else:
            at += 2 + int(struct.unpack_from(">H", content, at + 2)[0])
    return None


def _webp(content: bytes) -> ImageSize | None:
    kind, width, height = content[12:16], 0, 0
    if kind == b"VP8X":
        width = int.from_bytes(content[24:27], "little") + 1
        height = int.from_bytes(content[27:30], "little") + 1
    elif kind == b"VP8L":
        bits = int(struct.unpack_from("<I", content, 21)[0])
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", content, 26))
    return ImageSize("webp", width, height) if kind in {b"VP8X", b"VP8L", b"VP8 "} else None
