"""Find a book's cover; only pictures made of points, whatever their name says."""

from __future__ import annotations

from synth.books.book import Cover
from synth.books.documents import markup
from synth.books.documents.parsing import parse_document
from synth.books.epub.archive import Archive, EntryError
from synth.books.epub.package import Package
from synth.bookshelf.image_size import image_size

MAX_PIXELS = 25_000_000  # decoded it takes up to 100 MB
_SIGNATURES = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
)


def read_cover(archive: Archive, package: Package, landmarks: dict[str, str]) -> Cover | None:
    """Return the cover that the package names, or the picture on its cover page; else None."""
    for path in _candidates(archive, package, landmarks):
        try:
            content = archive.read(path)
        except EntryError as error:
            package.warnings.append(f"The cover {path!r} cannot be read: {error}.")
            continue
        if (media_type := _media_type(content)) and _is_usable(path, content, package.warnings):
            return Cover(media_type, content)
        if not media_type and not _is_drawing(content):
            package.warnings.append(f"The cover {path!r} is not in a known picture format.")
    return None


def _is_usable(path: str, content: bytes, warnings: list[str]) -> bool:
    """Say whether players could show a picture, by the size in its first bytes."""
    size = image_size(content)
    if size is None or size.width * size.height <= MAX_PIXELS:
        return True
    warnings.append(
        f"The cover {path!r} has {size.width} x {size.height} pixels, more than "
        f"{MAX_PIXELS}, so it is not used."
    )
    return False


def _is_drawing(content: bytes) -> bool:
    return b"<svg" in content[:4096] or content.lstrip()[:5].lower() == b"<?xml"


def _media_type(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((name for start, name in _SIGNATURES if content.startswith(start)), "")


def _candidates(archive: Archive, package: Package, landmarks: dict[str, str]) -> list[str]:
    paths = [item.path for item in package.items.values() if "cover-image" in item.properties]
    for meta in package.root.iter("{*}meta"):
        if meta.get("name") == "cover" and (item := package.items.get(meta.get("content") or "")):
            paths.append(item.path)
    package.warnings += [
        f"The cover {path!r} is not in the book."
        for path in dict.fromkeys(paths)
        if archive.find(path) is None
    ]
    pages = [place.partition("#")[0] for place, role in landmarks.items() if role == "cover"]
    for path in dict.fromkeys([*paths, *pages]):
        if not path.lower().endswith((".xhtml", ".html", ".htm")):
            continue
        paths += _pictures(archive, path)
    return [path for path in dict.fromkeys(paths) if archive.find(path)]


def _pictures(archive: Archive, path: str) -> list[str]:
    """Return the pictures of a page, those in a drawing too."""
    try:
        root = parse_document(archive.read(path)).root
    except EntryError:
        return []
    found = []
    for element in root.iter():
        if markup.name_of(element) in {"img", "image"}:
            link = element.get("src") or element.get("{http://www.w3.org/1999/xlink}href")
            target = markup.resolve(path, link or element.get("xlink:href") or "")
            if target is not None and target[0] != path:
                found.append(target[0])
    return found
