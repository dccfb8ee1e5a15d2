"""Read and write lexicons as PLS 1.0 (W3C): a lexeme's graphemes, and the alias said for them.

Nothing that a file names is ever fetched: a document type, and with it every entity, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from synth.lexicons.files import BadLine, FileEntry, FileRefusedError, Reading, decoded
from synth.models import Lexicon, LexiconEntry

PLS = "http://www.w3.org/2005/01/pronunciation-lexicon"
OWN = "urn:ttsweb:lexicon"  # what PLS has no word for, as attributes that other programs pass over
_XML_LANG = "http://www.w3.org/XML/1998/namespace lang"
_MAX_DEPTH = 20
_MAX_WARNINGS = 50
_TEXTS = ("grapheme", "alias", "phoneme")


def write_pls(lexicon: Lexicon, entries: Iterable[LexiconEntry]) -> tuple[bytes, list[str]]:
    """Return a lexicon as PLS, and what is found by the entries that PLS cannot say: patterns, and
    those that are switched off or say nothing.
    """
    left_out: list[str] = []
    lexemes: list[str] = []
    for entry in entries:
        if entry.kind == LexiconEntry.Kind.REGEX or not entry.enabled or not entry.say:
            left_out.append(entry.find)
            continue
        marks = ""
        if not entry.case_sensitive:
            marks += ' own:case-sensitive="false"'
        if entry.kind != LexiconEntry.Kind.WORD:
            marks += f" own:kind={quoteattr(entry.kind)}"
        if entry.language:
            marks += f" own:language={quoteattr(entry.language)}"
        lexemes.append(
            f"  <lexeme{marks}>\n    <grapheme>{escape(entry.find)}</grapheme>\n"
            f"    <alias>{escape(entry.say)}</alias>\n  </lexeme>\n"
        )
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<lexicon version="1.0" xmlns="{PLS}" xmlns:own="{OWN}" alphabet="ipa" '
        f"xml:lang={quoteattr(lexicon.language or 'und')}>\n"
    )
    return f"{head}{''.join(lexemes)}</lexicon>\n".encode(), left_out


def read_pls(content: bytes, *, language: str = "") -> Reading:
    """Read the lexemes that have an alias; what is said by phonemes alone is left out, and named.

    Args:
        language: that of the lexicon; entries of a file in another language are marked with it.

    Raises:
        FileRefusedError: file_too_large, file_not_utf8, file_empty, pls_doctype, pls_invalid.
    """
    text = decoded(content)
    reader = _Reader(language)
    parser = expat.ParserCreate(encoding="UTF-8", namespace_separator=" ")
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.EntityDeclHandler = _refuse_doctype
    parser.StartElementHandler = lambda name, attributes: reader.start(
        name, attributes, parser.CurrentLineNumber
    )
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.add
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise FileRefusedError("pls_invalid", f"The file is not XML: {error}.") from error
    return reader.reading


@dataclass
class _Lexeme:
    line: int
    marks: dict[str, str]
    graphemes: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    preferred: str | None = None
    has_phonemes: bool = False


class _Reader:
    """Follow the elements of one file."""

    def __init__(self, language: str) -> None:
        self.reading = Reading()
        self._own_language, self._language = language, ""
        self._path: list[str] = []
        self._lexeme: _Lexeme | None = None
        self._text: list[str] = []
        self._is_preferred = False

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        """Begin an element."""
        tag = name.removeprefix(f"{PLS} ")
        if len(self._path) >= _MAX_DEPTH:
            raise FileRefusedError("pls_invalid", f"Line {line} is nested too deeply.")
        if not self._path:
            if name != f"{PLS} lexicon":
                raise FileRefusedError(
                    "pls_invalid", f"The first element must be `lexicon` in the namespace {PLS}."
                )
            given = attributes.get(_XML_LANG, "")
            is_other = given.lower() not in ("", "und", self._own_language.lower())
            self._language = given if is_other else ""
        elif tag == "lexeme" and len(self._path) == 1:
            marks = {
                key.removeprefix(f"{OWN} "): value
                for key, value in attributes.items()
                if key.startswith(f"{OWN} ")
            }
            self._lexeme = _Lexeme(line, marks)
        elif tag in _TEXTS:
            self._text = []
            self._is_preferred = attributes.get("prefer") == "true"
        self._path.append(tag)

    def add(self, text: str) -> None:
        """Take a part of an element's text."""
        if self._path and self._path[-1] in _TEXTS:
            self._text.append(text)

    def end(self, name: str) -> None:
        """End an element."""
        tag = self._path.pop()
        lexeme = self._lexeme
        if lexeme is None or len(self._path) > 2:
            return
        text = " ".join("".join(self._text).split())
        if tag == "grapheme":
            lexeme.graphemes.append(text)
        elif tag == "alias":
            lexeme.aliases.append(text)
            if self._is_preferred and lexeme.preferred is None:
                lexeme.preferred = text
        elif tag == "phoneme":
            lexeme.has_phonemes = True
        elif tag == "lexeme":
            self._keep(lexeme)
            self._lexeme = None

    def _keep(self, lexeme: _Lexeme) -> None:
        """Turn a lexeme into entries."""
        names = ", ".join(lexeme.graphemes)[:100]
        if not lexeme.graphemes:
            self._bad(lexeme, "find", "pls_lexeme", "The lexeme has no grapheme.")
        elif not lexeme.aliases and lexeme.has_phonemes:
            self._warn(
                f"Line {lexeme.line}: {names} has only phonemes, which the model does not "
                "read; add an alias that spells the sound."
            )
        elif not lexeme.aliases:
            self._bad(lexeme, "say", "pls_lexeme", f"The lexeme {names} has no alias.")
        else:
            say = lexeme.aliases[0] if lexeme.preferred is None else lexeme.preferred
            if self.reading.is_enough():
                return
            self.reading.entries += [
                FileEntry(lexeme.line, self._values(lexeme, grapheme, say))
                for grapheme in lexeme.graphemes
            ]

    def _values(self, lexeme: _Lexeme, grapheme: str, say: str) -> dict[str, Any]:
        return {
            "find": grapheme,
            "say": say,
            "kind": lexeme.marks.get("kind", "word"),
            "case_sensitive": lexeme.marks.get("case-sensitive") != "false",
            "language": lexeme.marks.get("language", self._language),
        }

    def _bad(self, lexeme: _Lexeme, attr: str, code: str, message: str) -> None:
        self.reading.bad.append(BadLine(lexeme.line, attr, code, message))

    def _warn(self, sentence: str) -> None:
        warnings = self.reading.warnings
        if len(warnings) < _MAX_WARNINGS:
            warnings.append(sentence)
        elif len(warnings) == _MAX_WARNINGS:
            warnings.append("There are more of the same kind.")


def _refuse_doctype(*_: Any) -> None:
    raise FileRefusedError(
        "pls_doctype", "The file has a document type or entities; remove them and send it again."
    )
