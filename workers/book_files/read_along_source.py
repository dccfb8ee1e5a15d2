"""Make a read-along EPUB of the book's own EPUB: its text and looks, with overlays added."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from html.entities import html5
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lxml import etree

from synth.books.book import BookRejectedError
from synth.books.epub.archive import open_book_archive
from workers.book_files.book_audio import BookAudio, BookFileError
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.publishing import publish_file
from workers.book_files.read_along import (
    ACTIVE_CLASS,
    MIMETYPE,
    STYLE,
    Clip,
    Overlay,
    audio_name,
    clip_times,
    clock,
    navigation,
    smil,
    write_audio,
    write_text,
)
from workers.book_files.sentence_marks import XHTML, mark_sentences

MAX_ENTRY_BYTES = 100 * 2**20
MAX_TOTAL_BYTES = 500 * 2**20
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
_XML_ENTITIES = {b"amp", b"lt", b"gt", b"quot", b"apos"}
_FOLDER = "read-along"  # of what is added, beside the package document


def make_read_along_of(
    path: Path,
    source: Path,
    book: BookAudio,
    encoder: Encoder,
    encoding: Encoding | None = None,
    *,
    modified: datetime | None = None,
) -> tuple[list[Overlay], int]:
    """Write the source EPUB with overlays, and return them and how many segments have no place.

    A segment's anchor names its document, as `path` or `path#id` inside the EPUB; its words are
    looked for there. One without a place, such as credits, is left out of the overlays.

    Raises:
        OSError: the disk is full; what was at `path` before is still there.
        BookFileError: `source_unreadable`, or what `Encoder.chapters` and covers raise.
    """
    chapters = list(encoder.chapters(book, encoding or Encoding("aac")))
    try:
        with source.open("rb") as file, open_book_archive(file, "EPUB", damaged="") as archive:
            return _rewrite(path, archive, book, chapters, modified or datetime.now(UTC))
    except (
        BookRejectedError, zipfile.BadZipFile, etree.XMLSyntaxError, KeyError, NotImplementedError,
    ) as error:  # fmt: skip
        raise BookFileError(
            "source_unreadable",
            "The book's own EPUB cannot be rewritten; make a read-along file with the "
            "`format` `made` instead.",
        ) from error


def _rewrite(
    path: Path,
    archive: zipfile.ZipFile,
    book: BookAudio,
    chapters: Sequence[ChapterFile],
    modified: datetime,
) -> tuple[list[Overlay], int]:
    limits = _Reader(archive)
    opf_name = _package_name(limits.read("META-INF/container.xml"))
    package = _parse(limits.read(opf_name))
    base = posixpath.dirname(opf_name)
    documents, missing = _marked_documents(limits, chapters, base)
    overlays = [overlay for overlay, _ in documents.values() if overlay.clips]
    if not overlays:
        raise BookFileError(
            "source_unreadable",
            "None of the spoken sentences was found in the book's own EPUB; make a "
            "read-along file with the `format` `made` instead.",
        )
    _extend_package(package, base, overlays, book, modified)
    changed = {name: _bytes(tree) for name, (_, tree) in documents.items()}
    changed[opf_name] = _bytes(package)
    with publish_file(path) as temporary, zipfile.ZipFile(temporary, "w") as made:
        made.writestr(zipfile.ZipInfo("mimetype"), MIMETYPE)
        written = {"mimetype", "META-INF/signatures.xml"}  # a signature would no longer hold
        for info in archive.infolist():
            if info.filename in written or info.is_dir():
                continue
            written.add(info.filename)
            content = changed.get(info.filename) or limits.read(info.filename)
            made.writestr(info.filename, content, zipfile.ZIP_DEFLATED)
        folder = posixpath.join(base, _FOLDER)
        write_text(made, f"{folder}/style.css", STYLE)
        if package.find(f".//{_OPF}item[@id='{_FOLDER}-nav']") is not None:
            entries = _entries(overlays, chapters, folder)
            write_text(made, f"{folder}/nav.xhtml", navigation(entries, _language(package)))
        for index, chapter in enumerate(chapters):
            if any(clip.audio == audio_name(index) for one in overlays for clip in one.clips):
                name = f"{folder}/{audio_name(index)}"
                write_audio(made, name, chapter, temporary.parent)
        for overlay in overlays:
            href = _relative(overlay.text, folder)
            audio = {clip.audio: clip.audio for clip in overlay.clips}
            write_text(made, overlay.path, smil(overlay, text_href=href, audio_hrefs=audio))
    return overlays, missing


class _Reader:
    """Read entries with limits on what they unpack to, whatever their headers say."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._left = MAX_TOTAL_BYTES

    def read(self, name: str) -> bytes:
        most = min(MAX_ENTRY_BYTES, self._left)
        with self._archive.open(name) as entry:
            content = entry.read(most + 1)
        self._left -= len(content)
        if len(content) > most:
            raise BookFileError(
                "source_unreadable",
                "The book's EPUB is too large when it is unpacked; use the `format` `made` "
                "instead.",
            )
        return content

    def has(self, name: str) -> bool:
        return name in self._archive.NameToInfo


def _marked_documents(
    limits: _Reader, chapters: Sequence[ChapterFile], base: str
) -> tuple[dict[str, tuple[Overlay, Any]], int]:
    """Return the spoken documents, with ids and a style and overlays, and the unplaced segments."""
    heard: dict[str, list[tuple[str, str, str, int, int]]] = defaultdict(list)
    missing = 0
    for index, chapter in enumerate(chapters):
        for span, begin, end in clip_times(chapter):
            name, _, fragment = span.anchor.partition("#")
            if not name or not limits.has(name):
                missing += 1
            else:
                heard[name].append((span.text, unquote(fragment), audio_name(index), begin, end))
    found = {}
    for number, (name, rows) in enumerate(heard.items(), start=1):
        tree = _parse(limits.read(name))
        body = tree.find(f"{XHTML}body")
        if body is None:
            missing += len(rows)
            continue
        marks = mark_sentences(body, [(text, fragment) for text, fragment, *_ in rows])
        overlay = Overlay(posixpath.join(base, _FOLDER, f"overlay-{number:04d}.smil"), name)
        missing += sum(mark is None for mark in marks)
        for mark, (_, _, audio, begin, end) in zip(marks, rows, strict=True):
            if mark is not None:
                _append(overlay.clips, Clip(mark, audio, begin, end))
        _link_style(tree, _relative(posixpath.join(base, _FOLDER, "style.css"),
                                    posixpath.dirname(name)))  # fmt: skip
        found[name] = (overlay, tree)
    return found, missing


def _append(clips: list[Clip], clip: Clip) -> None:
    """Add a clip; one of the same element that goes on where the last ended makes it longer."""
    if clips and clips[-1][:2] == clip[:2] and clips[-1].end == clip.begin:
        clips[-1] = clips[-1]._replace(end=clip.end)
    else:
        clips.append(clip)


def _extend_package(
    package: Any, base: str, overlays: Sequence[Overlay], book: BookAudio, modified: datetime
) -> None:
    """Add what overlays need to a package document, which becomes one of EPUB 3."""
    manifest, metadata = package.find(f"{_OPF}manifest"), package.find(f"{_OPF}metadata")
    if manifest is None or metadata is None:
        raise KeyError("manifest or metadata")
    for meta in list(metadata.iter(f"{_OPF}meta")):
        if str(meta.get("property", "")).startswith("media:"):
            meta.getparent().remove(meta)
    items = {
        posixpath.normpath(posixpath.join(base, unquote(item.get("href", "")))): item
        for item in manifest.iter(f"{_OPF}item")
    }
    for item in items.values():
        item.attrib.pop("media-overlay", None)
    if not any("nav" in item.get("properties", "").split() for item in items.values()):
        _add_item(manifest, f"{_FOLDER}-nav", f"{_FOLDER}/nav.xhtml", "application/xhtml+xml")
        manifest[-1].set("properties", "nav")
    package.set("version", "3.0")
    _add_item(manifest, f"{_FOLDER}-style", f"{_FOLDER}/style.css", "text/css")
    for number, overlay in enumerate(overlays, start=1):
        identity = f"{_FOLDER}-{number}"
        href = f"{_FOLDER}/{posixpath.basename(overlay.path)}"
        _add_item(manifest, identity, href, "application/smil+xml")
        items[overlay.text].set("media-overlay", identity)
        _add_meta(metadata, "media:duration", clock(overlay.duration), refines=f"#{identity}")
    for name in sorted({clip.audio for one in overlays for clip in one.clips}):
        _add_item(manifest, f"{_FOLDER}-{name[:-4]}", f"{_FOLDER}/{name}", "audio/mp4")
    _add_meta(metadata, "media:duration", clock(sum(one.duration for one in overlays)))
    _add_meta(metadata, "media:active-class", ACTIVE_CLASS)
    for narrator in book.facts.narrators:
        _add_meta(metadata, "media:narrator", narrator)
    for meta in metadata.findall(f"{_OPF}meta[@property='dcterms:modified']"):
        metadata.remove(meta)
    _add_meta(metadata, "dcterms:modified", f"{modified.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")


def _add_item(manifest: Any, identity: str, href: str, media_type: str) -> None:
    etree.SubElement(
        manifest, f"{_OPF}item", {"id": identity, "href": href, "media-type": media_type}
    )


def _add_meta(metadata: Any, name: str, value: str, *, refines: str = "") -> None:
    attributes = {"property": name} | ({"refines": refines} if refines else {})
    etree.SubElement(metadata, f"{_OPF}meta", attributes).text = value


def _package_name(container: bytes) -> str:
    root = _parse(container).find(".//{*}rootfile")
    if root is None:
        raise KeyError("rootfile")
    return str(root.attrib["full-path"])


def _entries(
    overlays: Sequence[Overlay], chapters: Sequence[ChapterFile], folder: str
) -> list[tuple[str, str]]:
    """Return (href, title) of each chapter, where its first sentence is."""
    places: dict[str, str] = {}
    for overlay in overlays:
        for clip in overlay.clips:
            places.setdefault(clip.audio, f"{_relative(overlay.text, folder)}#{clip.fragment}")
    return [
        (places[audio_name(index)], chapter.title)
        for index, chapter in enumerate(chapters)
        if audio_name(index) in places
    ]


def _language(package: Any) -> str:
    found = package.find(f".//{_DC}language")
    return (found.text or "").strip() or "und" if found is not None else "und"


def _link_style(tree: Any, href: str) -> None:
    head = tree.find(f"{XHTML}head")
    if head is not None:
        etree.SubElement(
            head, f"{XHTML}link", {"rel": "stylesheet", "type": "text/css", "href": href}
        )


def _relative(name: str, folder: str) -> str:
    return quote(posixpath.relpath(name, folder or "."))


def _parse(content: bytes) -> Any:
    """Parse XML without entities, network or huge trees; named characters are resolved before."""
    plain = _ENTITY.sub(_numeric, content)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    return etree.fromstring(plain, parser)


def _numeric(found: re.Match[bytes]) -> bytes:
    name = found.group(1)
    text = html5.get(f"{name.decode()};") if name not in _XML_ENTITIES else None
    return "".join(f"&#{ord(one)};" for one in text).encode() if text else found.group()


def _bytes(tree: Any) -> bytes:
    doc = tree.getroottree()
    content: bytes = etree.tostring(doc, xml_declaration=True, encoding="utf-8")
    return content
