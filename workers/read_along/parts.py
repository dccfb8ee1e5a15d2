"""Write the parts of a read-along EPUB 3: overlays in SMIL, times, a made text and its package."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

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
