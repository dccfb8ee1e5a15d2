"""Make a read-along EPUB 3: a text whose sentences light up while their audio plays."""

from __future__ import annotations

import re
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from ttsweb.storage import TEMPORARY_SUFFIX
from workers.book_files.book_audio import BookAudio, BookFacts, BookFileError, SegmentSpan
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.cover import CoverImage, book_cover
from workers.book_files.m4b import write_mp4
from workers.book_files.publishing import publish_file

ACTIVE_CLASS = "read-along-active"
STYLE = f".{ACTIVE_CLASS} {{ background-color: #ffe58a; color: #000000; }}\n"
CONTAINER = """<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
  <rootfiles>
    <rootfile full-path="OEBPS/package.opf" media-type="application/oebps-package+xml"/>
  </rootfiles>
</container>
"""
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Clip(NamedTuple):
    """Say what is heard while a fragment is shown: microseconds of an audio file."""

    fragment: str
    audio: str
    begin: int
    end: int


@dataclass(slots=True)
class Overlay:
    """Hold the clips of one text document, in order; `path` and `text` are in the package."""

    path: str
    text: str
    clips: list[Clip] = field(default_factory=list)

    @property
    def duration(self) -> int:
        """Return the microseconds of all its clips."""
        return sum(clip.end - clip.begin for clip in self.clips)


def clean(text: str) -> str:
    """Return a text without characters that XML cannot hold."""
    return _FORBIDDEN.sub("", text)


def xml_text(text: str) -> str:
    """Return a text as XML content."""
    return escape(clean(text))


def xml_attribute(text: str) -> str:
    """Return a text as a quoted XML attribute."""
    return quoteattr(clean(text))


def microseconds(sample: int, sample_rate: int) -> int:
    """Return the nearest microsecond, which is finer than a sample."""
    return (2 * 1_000_000 * sample + sample_rate) // (2 * sample_rate)


def clock(duration: int) -> str:
    """Return microseconds as the clock value of SMIL: `h:mm:ss.ffffff`."""
    seconds, rest = divmod(duration, 1_000_000)
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


def smil(overlay: Overlay, *, text_href: str, audio_hrefs: dict[str, str]) -> str:
    """Return an overlay as SMIL; hrefs are relative to it."""
    rows = []
    for number, clip in enumerate(overlay.clips, start=1):
        source = xml_attribute(f"{text_href}#{clip.fragment}")
        audio = xml_attribute(audio_hrefs[clip.audio])
        rows.append(
            f'      <par id="p{number}">\n        <text src={source}/>\n'
            f'        <audio src={audio} clipBegin="{_seconds(clip.begin)}" '
            f'clipEnd="{_seconds(clip.end)}"/>\n      </par>\n'
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<smil xmlns="http://www.w3.org/ns/SMIL" xmlns:epub="http://www.idpf.org/2007/ops" '
        'version="3.0">\n  <body>\n'
        f'    <seq id="s1" epub:textref={xml_attribute(text_href)}>\n'
        f"{''.join(rows)}    </seq>\n  </body>\n</smil>\n"
    )


def page(title: str, language: str, paragraphs: Iterable[Sequence[tuple[str, str]]]) -> str:
    """Return a chapter as XHTML; a paragraph is a row of (id, text).

    The first paragraph is the heading; an id is empty where nothing is heard of it.
    """
    rows = []
    for number, paragraph in enumerate(paragraphs):
        tag = "p" if number else "h1"
        spans = " ".join(_span(name, text) for name, text in paragraph)
        rows.append(f"    <{tag}>{spans}</{tag}>\n")
    tag = xml_attribute(language)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html>\n'
        f'<html xmlns="http://www.w3.org/1999/xhtml" lang={tag} xml:lang={tag}>\n'
        f"  <head>\n    <title>{xml_text(title) or 'Chapter'}</title>\n"
        '    <link rel="stylesheet" type="text/css" href="../style.css"/>\n  </head>\n'
        f"  <body>\n{''.join(rows)}  </body>\n</html>\n"
    )


def navigation(entries: Iterable[tuple[str, str]], language: str) -> str:
    """Return the navigation document of (href, title)."""
    rows = "".join(
        f"        <li><a href={xml_attribute(href)}>{xml_text(title) or 'Chapter'}</a></li>\n"
        for href, title in entries
    )
    tag = xml_attribute(language)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html>\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" '
        f"lang={tag} xml:lang={tag}>\n  <head>\n    <title>Contents</title>\n  </head>\n"
        '  <body>\n    <nav epub:type="toc" id="toc">\n      <ol>\n'
        f"{rows}      </ol>\n    </nav>\n  </body>\n</html>\n"
    )


def _span(name: str, text: str) -> str:
    identity = f" id={xml_attribute(name)}" if name else ""
    return f"<span{identity}>{xml_text(text)}</span>"


def _seconds(value: int) -> str:
    return f"{value // 1_000_000}.{value % 1_000_000:06d}s"


MIMETYPE = "application/epub+zip"


def make_read_along(
    path: Path,
    book: BookAudio,
    encoder: Encoder,
    encoding: Encoding | None = None,
    *,
    modified: datetime | None = None,
) -> list[Overlay]:
    """Write an EPUB 3 with Media Overlays whose text is what is spoken, and return its overlays.

    A clip lasts until the next begins, so that pauses between sentences are heard.

    Args:
        encoding: of AAC; encodes of an M4B with the same one are used again.
        modified: what the package says of itself; None is now.

    Raises:
        OSError: the disk is full; what was at `path` before is still there.
        BookFileError: the cover cannot be used, or there is no chapter.
    """
    if not book.chapters:
        raise BookFileError("no_chapters", "The book has no chapter to make a file from.")
    cover = book_cover(book.cover, book.facts)
    chapters = list(encoder.chapters(book, encoding or Encoding("aac")))
    overlays = [_overlay(index, chapter) for index, chapter in enumerate(chapters)]
    language = book.facts.language or "und"
    with publish_file(path) as temporary, zipfile.ZipFile(temporary, "w") as package:
        package.writestr(zipfile.ZipInfo("mimetype"), MIMETYPE)  # first, and not compressed
        write_text(package, "META-INF/container.xml", CONTAINER)
        document = _package(book.facts, chapters, overlays, cover, modified or datetime.now(UTC))
        write_text(package, "OEBPS/package.opf", document)
        titles = [chapter.title for chapter in chapters]
        entries = list(zip((overlay.text for overlay in overlays), titles, strict=True))
        write_text(package, "OEBPS/nav.xhtml", navigation(entries, language))
        write_text(package, "OEBPS/style.css", STYLE)
        package.writestr(f"OEBPS/cover{cover.suffix}", cover.content)
        for index, (chapter, overlay) in enumerate(zip(chapters, overlays, strict=True)):
            text = page(chapter.title, language, _paragraphs(chapter))
            write_text(package, f"OEBPS/{overlay.text}", text)
            if overlay.clips:
                audio = {audio_name(index): f"../audio/{audio_name(index)}"}
                spoken = smil(overlay, text_href=f"../{overlay.text}", audio_hrefs=audio)
                write_text(package, f"OEBPS/{overlay.path}", spoken)
            write_audio(package, f"OEBPS/audio/{audio_name(index)}", chapter, temporary.parent)
    return overlays


def write_text(package: zipfile.ZipFile, name: str, text: str) -> None:
    """Add a compressed text file to a package."""
    package.writestr(name, text.encode(errors="replace"), zipfile.ZIP_DEFLATED)


def write_audio(package: zipfile.ZipFile, name: str, chapter: ChapterFile, scratch: Path) -> None:
    """Add a chapter as a file of its own, without encoding it; it passes through `scratch`."""
    temporary = scratch / f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
    try:
        write_mp4(temporary, [chapter], BookFacts(chapter.title), None, brand=b"M4A ")
        package.write(temporary, name)
    finally:
        temporary.unlink(missing_ok=True)


def audio_name(index: int) -> str:
    """Return the name of a chapter's audio file."""
    return f"chapter-{index + 1:04d}.m4a"


def clip_ends(chapter: ChapterFile) -> list[int]:
    """Return where the clip of each span ends: where the next begins; the last with its file."""
    starts = [span.start for span in chapter.spans[1:]]
    return [*starts, chapter.num_samples] if chapter.spans else []


def clip_times(chapter: ChapterFile) -> list[tuple[SegmentSpan, int, int]]:
    """Return each span with the microseconds between which its clip lies."""
    rate = chapter.sample_rate
    return [
        (span, microseconds(span.start, rate), microseconds(end, rate))
        for span, end in zip(chapter.spans, clip_ends(chapter), strict=True)
    ]


def _overlay(index: int, chapter: ChapterFile) -> Overlay:
    name = f"chapter-{index + 1:04d}"
    clips = [
        Clip(f"s{number + 1}", audio_name(index), begin, end)
        for number, (_, begin, end) in enumerate(clip_times(chapter))
    ]
    return Overlay(f"overlays/{name}.smil", f"text/{name}.xhtml", clips)


def _paragraphs(chapter: ChapterFile) -> list[list[tuple[str, str]]]:
    """Return the heading, then the paragraphs, as rows of (id, text)."""
    rows: list[list[tuple[str, str]]] = []
    for number, span in enumerate(chapter.spans):
        row = (f"s{number + 1}", span.text)
        if number == 0 and _letters(span.text) != _letters(chapter.title):
            rows.append([("", chapter.title)])
        if not rows or span.starts_paragraph or len(rows) == 1:
            rows.append([row])
        else:
            rows[-1].append(row)
    return rows or [[("", chapter.title)]]


def _letters(text: str) -> str:
    return "".join(one for one in text.casefold() if one.isalnum())


def identifier(facts: BookFacts) -> str:
    """Return a name for the book that is the same whenever it is made."""
    if facts.isbn:
        return f"urn:isbn:{facts.isbn}"
    parts = "\x1f".join((facts.title, *facts.authors))
    return f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, parts.encode(errors='replace').hex())}"


def _package(
    facts: BookFacts,
    chapters: Sequence[ChapterFile],
    overlays: Sequence[Overlay],
    cover: CoverImage,
    modified: datetime,
) -> str:
    """Return the package document."""
    meta = [
        f'<dc:identifier id="book-id">{xml_text(identifier(facts))}</dc:identifier>',
        f"<dc:title>{xml_text(facts.title) or 'Untitled'}</dc:title>",
        f"<dc:language>{xml_text(facts.language) or 'und'}</dc:language>",
        *(f"<dc:creator>{xml_text(name)}</dc:creator>" for name in facts.authors),
        *_optional("publisher", facts.publisher),
        *_optional("date", facts.date),
        *_optional("description", facts.description),
        *_optional("rights", facts.rights),
        f'<meta property="dcterms:modified">{modified.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}</meta>',
        f'<meta property="media:duration">{clock(sum(one.duration for one in overlays))}</meta>',
        f'<meta property="media:active-class">{ACTIVE_CLASS}</meta>',
        *(f'<meta property="media:narrator">{xml_text(one)}</meta>' for one in facts.narrators),
    ]
    items = [
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>',
        '<item id="style" href="style.css" media-type="text/css"/>',
        f'<item id="cover" href="cover{cover.suffix}" media-type="{cover.media_type}" '
        'properties="cover-image"/>',
    ]
    spine = []
    for number, (overlay, _) in enumerate(zip(overlays, chapters, strict=True), start=1):
        heard = f' media-overlay="o{number}"' if overlay.clips else ""
        items.append(
            f'<item id="t{number}" href={xml_attribute(overlay.text)} '
            f'media-type="application/xhtml+xml"{heard}/>'
        )
        items.append(
            f'<item id="a{number}" href="audio/{audio_name(number - 1)}" media-type="audio/mp4"/>'
        )
        if overlay.clips:
            items.append(
                f'<item id="o{number}" href={xml_attribute(overlay.path)} '
                'media-type="application/smil+xml"/>'
            )
            meta.append(
                f'<meta property="media:duration" refines="#o{number}">'
                f"{clock(overlay.duration)}</meta>"
            )
        spine.append(f'<itemref idref="t{number}"/>')
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
        'unique-identifier="book-id">\n'
        '  <metadata xmlns:dc="http://purl.org/dc/elements/1.1/">\n    '
        + "\n    ".join(meta)
        + "\n  </metadata>\n  <manifest>\n    "
        + "\n    ".join(items)
        + "\n  </manifest>\n  <spine>\n    "
        + "\n    ".join(spine)
        + "\n  </spine>\n</package>\n"
    )


def _optional(name: str, text: str) -> list[str]:
    return [f"<dc:{name}>{xml_text(text)}</dc:{name}>"] if text else []
