"""Make a read-along EPUB 3, whose sentences light up while their audio plays.

Its text is a plain one, made of what is spoken, or the book's own; what it takes to be heard is
added to both in the same way.
"""

from __future__ import annotations

import posixpath
import re
import uuid
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from synth.books.book import Cover
from workers.book_files.book_audio import (
    BookAudio,
    BookFacts,
    BookFileError,
    SegmentSpan,
    letters_of,
)
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.cover import book_cover, cover_name
from workers.book_files.m4b import write_mp4

ACTIVE_CLASS = "read-along-active"
STYLE = f".{ACTIVE_CLASS} {{ background-color: #ffe58a; color: #000000; }}\n"
_OPF, _DC = "{http://www.idpf.org/2007/opf}", "{http://purl.org/dc/elements/1.1/}"
FOLDER = "read-along"  # of what is added, beside the package document
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_XHTML_TYPE = "application/xhtml+xml"
_CONTAINER = """<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
  <rootfiles>
    <rootfile full-path="OEBPS/package.opf" media-type="application/oebps-package+xml"/>
  </rootfiles>
</container>
"""
_PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"
    lang={language} xml:lang={language}>
  <head>
    <title>{title}</title>
    <link rel="stylesheet" type="text/css" href="{style}"/>
  </head>
  <body>
{body}  </body>
</html>
"""
_SMIL = """<?xml version="1.0" encoding="UTF-8"?>
<smil xmlns="http://www.w3.org/ns/SMIL" xmlns:epub="http://www.idpf.org/2007/ops" version="3.0">
  <body>
    <seq id="s1" epub:textref={text}>
{rows}    </seq>
  </body>
</smil>
"""
_CLIP = """      <par id="p{number}">
        <text src={text}/>
        <audio src="{clip.audio}" clipBegin="{begin}s" clipEnd="{end}s"/>
      </par>
"""


class Clip(NamedTuple):
    """Say what is heard while a fragment is shown: microseconds of an audio file."""

    fragment: str
    audio: str
    begin: int
    end: int


Overlays = dict[str, list[Clip]]  # by the document whose fragments are shown, in their order


def make_read_along(
    path: Path, book: BookAudio, encoder: Encoder, encoding: Encoding
) -> list[ChapterFile]:
    """Write an EPUB whose text is what is spoken, and return its chapters.

    Args:
        encoding: of AAC; encodes of an M4B with the same one are used again.

    Raises:
        OSError: the disk is full.
        BookFileError: the cover cannot be used, or there is no chapter.
    """
    if not book.chapters:
        raise BookFileError("no_chapters", "The book has no chapter to make a file from.")
    cover = book_cover(book.cover, book.facts)
    chapters = list(encoder.chapters(book, encoding))
    contents = {
        "META-INF/container.xml": _CONTAINER.encode(),
        f"OEBPS/{cover_name(cover)}": cover.content,
    }
    overlays: Overlays = {}
    for index, chapter in enumerate(chapters):
        name = f"OEBPS/text/chapter-{index + 1:04d}.xhtml"
        contents[name] = _page_of(chapter, book.facts.language).encode(errors="replace")
        overlays[name] = [
            Clip(f"s{number}", audio_name(index), begin, end)
            for number, (_, begin, end) in enumerate(clip_times(chapter), start=1)
        ]
    package = _new_package(book.facts, cover, list(overlays))
    write_package(
        path, ("OEBPS/package.opf", package), contents.items(), overlays, chapters, book.facts
    )
    return chapters


def write_package(
    path: Path,
    package: tuple[str, Any],
    contents: Iterable[tuple[str, bytes]],
    overlays: Overlays,
    chapters: Sequence[ChapterFile],
    facts: BookFacts,
) -> None:
    """Write an EPUB of its package document, its other contents, and what makes it heard."""
    package_name, tree = package
    folder = posixpath.join(posixpath.dirname(package_name), FOLDER)
    navigation = _extend_package(tree, posixpath.dirname(package_name), overlays, facts)
    heard = {clip.audio for clips in overlays.values() for clip in clips}
    with zipfile.ZipFile(path, "w") as made:

        def write(name: str, content: bytes) -> None:
            made.writestr(name, content, zipfile.ZIP_DEFLATED)

        made.writestr(zipfile.ZipInfo("mimetype"), "application/epub+zip")  # first, uncompressed
        write(package_name, xml_bytes(tree))
        for name, content in contents:
            write(name, content)
        write(f"{folder}/style.css", STYLE.encode())
        if navigation:
            found = tree.find(f".//{_DC}language")
            language = (found.text or "").strip() if found is not None else ""
            page = _navigation(overlays, chapters, folder, language)
            write(f"{folder}/nav.xhtml", page.encode(errors="replace"))
        for number, (name, clips) in enumerate(overlays.items(), start=1):
            rows = _smil(relative_href(name, folder), clips)
            write(f"{folder}/overlay-{number:04d}.smil", rows.encode(errors="replace"))
        for index, chapter in enumerate(chapters):
            if audio_name(index) in heard:
                with made.open(f"{folder}/{audio_name(index)}", "w") as file:
                    write_mp4(file, [chapter], BookFacts(chapter.title), None, brand=b"M4A ")


def _extend_package(package: Any, base: str, overlays: Overlays, facts: BookFacts) -> bool:
    """Add what overlays need to a package document, which becomes one of EPUB 3.

    Returns:
        Whether a navigation document is to be written, as there was none.
    """
    manifest, metadata = package.find(f"{_OPF}manifest"), package.find(f"{_OPF}metadata")
    if manifest is None or metadata is None:
        raise KeyError("manifest or metadata")
    for meta in list(metadata.iter(f"{_OPF}meta")):
        if str(meta.get("property", "")).startswith("media:"):
            meta.getparent().remove(meta)
    for meta in metadata.findall(f"{_OPF}meta[@property='dcterms:modified']"):
        metadata.remove(meta)
    items = {
        posixpath.normpath(posixpath.join(base, unquote(item.get("href", "")))): item
        for item in manifest.iter(f"{_OPF}item")
    }

    def add_meta(name: str, value: str, **attributes: str) -> None:
        meta = etree.SubElement(metadata, f"{_OPF}meta", {"property": name, **attributes})
        meta.text = _clean(value)

    for item in items.values():
        item.attrib.pop("media-overlay", None)
    needs_nav = not any("nav" in item.get("properties", "").split() for item in items.values())
    if needs_nav:
        _add_item(manifest, f"{FOLDER}-nav", f"{FOLDER}/nav.xhtml", _XHTML_TYPE).set(
            "properties", "nav"
        )
    package.set("version", "3.0")
    _add_item(manifest, f"{FOLDER}-style", f"{FOLDER}/style.css", "text/css")
    durations = [sum(clip.end - clip.begin for clip in clips) for clips in overlays.values()]
    for number, (name, duration) in enumerate(zip(overlays, durations, strict=True), start=1):
        identity = f"{FOLDER}-{number}"
        href = f"{FOLDER}/overlay-{number:04d}.smil"
        _add_item(manifest, identity, href, "application/smil+xml")
        items[name].set("media-overlay", identity)
        add_meta("media:duration", _clock(duration), refines=f"#{identity}")
    for name in sorted({clip.audio for clips in overlays.values() for clip in clips}):
        _add_item(manifest, f"{FOLDER}-{name[:-4]}", f"{FOLDER}/{name}", "audio/mp4")
    add_meta("media:duration", _clock(sum(durations)))
    add_meta("media:active-class", ACTIVE_CLASS)
    for narrator in facts.narrators:
        add_meta("media:narrator", narrator)
    add_meta("dcterms:modified", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    return needs_nav


def _new_package(facts: BookFacts, cover: Cover, documents: Sequence[str]) -> Any:
    """Return the package document of a plain EPUB, but for what overlays need."""
    # The same whenever the book is made.
    parts = "\x1f".join((facts.title, *facts.authors)).encode(errors="replace")
    identifier = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, parts.hex())}"
    namespaces: Mapping[Any, str] = {None: _OPF[1:-1], "dc": _DC[1:-1]}
    attributes = {"version": "3.0", "unique-identifier": "book-id"}
    package = etree.Element(f"{_OPF}package", attributes, nsmap=namespaces)
    metadata, manifest, spine = (
        etree.SubElement(package, f"{_OPF}{name}") for name in ("metadata", "manifest", "spine")
    )
    for name, values in (
        ("identifier", [identifier]),
        ("title", [_clean(facts.title) or "Untitled"]),
        ("language", [_clean(facts.language) or "und"]),
        ("creator", facts.authors),
        ("publisher", [facts.publisher]),
        ("date", [facts.date]),
        ("description", [facts.description]),
        ("rights", [facts.rights]),
    ):
        for value in values:
            if value:
                etree.SubElement(metadata, f"{_DC}{name}").text = _clean(value)
    metadata[0].set("id", "book-id")
    item = _add_item(manifest, "cover", cover_name(cover), cover.media_type)
    item.set("properties", "cover-image")
    for number, name in enumerate(documents, start=1):
        href = name.removeprefix("OEBPS/")
        _add_item(manifest, f"t{number}", href, _XHTML_TYPE)
        etree.SubElement(spine, f"{_OPF}itemref", {"idref": f"t{number}"})
    return package


def _add_item(manifest: Any, identity: str, href: str, media_type: str) -> Any:
    attributes = {"id": identity, "href": href, "media-type": media_type}
    return etree.SubElement(manifest, f"{_OPF}item", attributes)


def _page_of(chapter: ChapterFile, language: str) -> str:
    """Return a chapter as XHTML: its heading, then its paragraphs, with an id for each segment."""
    rows: list[list[str]] = []
    for number, span in enumerate(chapter.spans):
        sentence = f'<span id="s{number + 1}">{_escaped(span.text)}</span>'
        if number == 0 and letters_of(span.text) != letters_of(chapter.title):
            rows.append([f"<span>{_escaped(chapter.title)}</span>"])
        if not rows or span.starts_paragraph or len(rows) == 1:
            rows.append([sentence])
        else:
            rows[-1].append(sentence)
    tags = ["h1", *["p"] * len(rows)]
    body = "".join(
        f"    <{tag}>{' '.join(row)}</{tag}>\n" for tag, row in zip(tags, rows, strict=False)
    )
    return _html(chapter.title or "Chapter", language, body, f"../{FOLDER}/style.css")


def _navigation(
    overlays: Overlays, chapters: Sequence[ChapterFile], folder: str, language: str
) -> str:
    """Return the contents, which lead to where each chapter's first sentence is."""
    places: dict[str, str] = {}
    for name, clips in overlays.items():
        for clip in clips:
            places.setdefault(clip.audio, f"{relative_href(name, folder)}#{clip.fragment}")
    entries = [
        f"        <li><a href={quoteattr(places[audio_name(index)])}>"
        f"{_escaped(chapter.title) or 'Chapter'}</a></li>\n"
        for index, chapter in enumerate(chapters)
        if audio_name(index) in places
    ]
    lists = f"      <ol>\n{''.join(entries)}      </ol>\n"
    body = f'    <nav epub:type="toc" id="toc">\n{lists}    </nav>\n'
    return _html("Contents", language, body, "style.css")


def _html(title: str, language: str, body: str, style: str) -> str:
    tag = quoteattr(_clean(language) or "und")
    return _PAGE.format(language=tag, title=_escaped(title), style=style, body=body)


def _smil(text_href: str, clips: Sequence[Clip]) -> str:
    """Return an overlay; audio lies beside it."""
    rows = [
        _CLIP.format(
            number=number, text=quoteattr(f"{text_href}#{clip.fragment}"), clip=clip,
            begin=f"{clip.begin // 1_000_000}.{clip.begin % 1_000_000:06d}",
            end=f"{clip.end // 1_000_000}.{clip.end % 1_000_000:06d}",
        )
        for number, clip in enumerate(clips, start=1)
    ]  # fmt: skip
    return _SMIL.format(text=quoteattr(text_href), rows="".join(rows))


def audio_name(index: int) -> str:
    """Return the name of a chapter's audio file."""
    return f"chapter-{index + 1:04d}.m4a"


def clip_times(chapter: ChapterFile) -> list[tuple[SegmentSpan, int, int]]:
    """Return each span with the microseconds of its clip, which are finer than samples.

    It lasts until the next begins, so that pauses are heard, and the last as long as its file.
    """
    rate = chapter.sample_rate
    edges = [*(span.start for span in chapter.spans), chapter.num_samples]
    times = [(2 * 1_000_000 * edge + rate) // (2 * rate) for edge in edges]
    return list(zip(chapter.spans, times[:-1], times[1:], strict=True))


def _clock(duration: int) -> str:
    """Return microseconds as the clock value of SMIL: `h:mm:ss.ffffff`."""
    seconds, rest = divmod(duration, 1_000_000)
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


def relative_href(name: str, folder: str) -> str:
    """Return how a document in a folder names another one."""
    return quote(posixpath.relpath(name, folder or "."))


def _clean(text: str) -> str:
    """Return a text without characters that XML cannot hold."""
    return _FORBIDDEN.sub("", text)


def _escaped(text: str) -> str:
    return escape(_clean(text))


def xml_bytes(tree: Any) -> bytes:
    """Return the whole document of an element."""
    content: bytes = etree.tostring(tree.getroottree(), xml_declaration=True, encoding="utf-8")
    return content
