"""Read Markdown as a book: CommonMark with tables, footnotes and front matter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from synth.books.book import Block, BlockKind, Book, Metadata, count_chars
from synth.books.documents.html import book_of_tree, parse_text
from synth.books.documents.markup import squeeze
from synth.books.txt.decoding import decode_text

_ATTRIBUTES = re.compile(r"^(#{1,6}[ \t].*?)[ \t]*\{[#.][^{}\n]*\}[ \t]*#*$", re.MULTILINE)
_PAIR = re.compile(r"([A-Za-z][\w .-]{0,40}?)\s*:\s*(.*)")
_KEYS = {
    **{
        name: name for name in ("title", "subtitle", "language", "publisher", "date", "description")
    },
    **{name: name for name in ("rights", "identifier", "series")},
    **dict.fromkeys(("author", "authors", "creator"), "authors"),
    **dict.fromkeys(("subject", "keywords", "tags"), "subjects"),
    "lang": "language",
    "abstract": "description",
}
_LISTS = frozenset({"authors", "subjects"})


def read_markdown(raw: bytes, filename: str) -> Book:
    """Return the book that Markdown holds; links and pictures leave their words.

    Raises:
        BookRejectedError: `book_empty`, `book_not_text`, `book_charset_unknown`.
    """
    decoded = decode_text(raw)
    text = _ATTRIBUTES.sub(r"\1", decoded.text)
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # Notes stay where they are told: moved to the end, one that no mark leads to would be lost.
    parser.use(footnote_plugin, inline=False, move_to_end=False).use(front_matter_plugin)
    for name, rule in _NOTE_RULES.items():
        parser.add_render_rule(name, rule)
    tokens = parser.parse(text)
    front = next((token.content for token in tokens if token.type == "front_matter"), "")
    html = parser.renderer.render(tokens, parser.options, {})
    root, lost = parse_text(f"<html><body>\n{html}</body></html>")
    before = _front_block(front)
    return book_of_tree(
        root, filename, read_front_matter(front), before=before, warnings=(*decoded.warnings, *lost)
    )


def _note_mark(_: RendererHTML, tokens: Sequence[Token], index: int, *__: Any) -> str:
    label = escape(str(tokens[index].meta["label"]), quote=True)
    return f'<sup><a role="doc-noteref" href="#fn-{label}">[{label}]</a></sup>'


def _note_start(_: RendererHTML, tokens: Sequence[Token], index: int, *__: Any) -> str:
    label = escape(str(tokens[index].meta["label"]), quote=True)
    return f'<aside role="doc-footnote" id="fn-{label}">'


def _note_end(*_: Any) -> str:
    return "</aside>"


_NOTE_RULES: dict[str, Callable[..., str]] = {
    "footnote_ref": _note_mark,
    "footnote_reference_open": _note_start,
    "footnote_reference_close": _note_end,
}


def _front_block(front: str) -> tuple[Block, ...]:
    if not front.strip():
        return ()
    return (Block(BlockKind.FURNITURE, squeeze(front), count_chars(front), role="metadata"),)


def read_front_matter(front: str) -> Metadata:
    """Return what the simple lines of a front matter say: `key: value`, `[a, b]` and `- a`.

    Anything deeper, and any key that says nothing of a book, is left alone.
    """
    found: dict[str, list[str]] = {}
    key = ""
    for line in front.splitlines():
        item = re.match(r"\s*-\s+(.*)", line)
        pair = _PAIR.fullmatch(line.strip())
        if item is not None and key:
            # A list may hold pairs of its own: "- name: Jane".
            inner = _PAIR.fullmatch(item[1].strip())
            found[key].append(_unquoted(inner[2] if inner else item[1]))
        elif pair is not None and not line[:1].isspace():
            key = _KEYS.get(pair[1].strip().lower(), "")
            if key:
                found.setdefault(key, []).extend(_values(pair[2], is_list=key in _LISTS))
    fields: dict[str, Any] = {}
    for name, values in found.items():
        kept = [squeeze(value) for value in values if squeeze(value)]
        if kept:
            fields[name] = tuple(kept) if name in _LISTS else kept[0]
    return Metadata(**fields)


def _values(text: str, *, is_list: bool) -> list[str]:
    text = text.strip()
    if text in {"", "|", ">", "|-", ">-"}:
        return []
    if text.startswith("[") and text.endswith("]"):
        return [_unquoted(part) for part in text[1:-1].split(",")]
    if is_list and text[:1] not in "\"'" and ";" in text:
        return [_unquoted(part) for part in text.split(";")]
    return [_unquoted(text)]


def _unquoted(text: str) -> str:
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text
