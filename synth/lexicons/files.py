"""What files of lexicons have in common: entries with their lines, and what is wrong with them."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from synth.lexicons import book, store
from synth.lexicons.store import Mode, check_entry, put_entries
from synth.models import Lexicon, LexiconEntry
from synth.text.languages import language_tag
from synth.text.rules import KINDS, MAX_SLOW, Rule, RuleError
from ttsweb.refusals import RefusedError, counted

MAX_BAD_LINES = 20  # then no more are looked for: a pattern's trial takes its time
MAX_ENTRY_BYTES = 5000
_REQUESTS_TIMES = 5  # a whole lexicon may take the time of so many requests


class FileRefusedError(RefusedError):
    """A lexicon's file is not taken as a whole."""

    field = "file"


class FileEntry(NamedTuple):
    """Hold one entry as a file has it, and the line where it begins, from 1."""

    line: int
    values: Mapping[str, Any]


class BadLine(NamedTuple):
    """Say what is wrong in a line; `attr` is the entry's field, or empty for the line."""

    line: int
    attr: str
    code: str
    message: str


@dataclass
class Reading:
    """Hold what was read of a file: entries, lines that cannot be used, what was left out."""

    entries: list[FileEntry] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, line: int, attr: str, code: str, message: str) -> None:
        self.bad.append(BadLine(line, attr, code, message))

    def is_enough(self) -> bool:
        """Say whether the file is refused by now, so that the rest of it need not be read."""
        too_many = len(self.entries) > store.MAX_LEXICON_ENTRIES
        return too_many or len(self.bad) >= MAX_BAD_LINES


def max_file_bytes() -> int:
    return MAX_ENTRY_BYTES * store.MAX_LEXICON_ENTRIES + 100_000


def check_entries(reading: Reading) -> list[tuple[Rule, bool]]:
    """Return the rules of a file with whether each is enabled; bad ones join `reading.bad`.

    Raises:
        FileRefusedError: too_many_entries; file_too_slow, where trying all patterns takes too long.
    """
    rules: list[tuple[Rule, bool]] = []
    if len(reading.entries) > store.MAX_LEXICON_ENTRIES:
        raise FileRefusedError(
            "too_many_entries",
            f"The file has more than {store.MAX_LEXICON_ENTRIES} entries, which is the limit of "
            "a lexicon. Split it into several lexicons.",
        )
    seconds = _REQUESTS_TIMES * book.LEXICON_SECONDS
    until = time.monotonic() + seconds
    slow = 0
    for entry in reading.entries:
        if len(reading.bad) >= MAX_BAD_LINES or slow >= MAX_SLOW:
            break
        if time.monotonic() > until:
            raise FileRefusedError(
                "file_too_slow",
                f"Testing the file's patterns took more than {seconds:g} seconds, up to "
                f"line {entry.line}. Make them simpler, or split them into several files.",
            )
        values = dict(entry.values)
        tag = language_tag(values["language"]) if values.get("language") else ""
        if tag is None:
            sentence = "Expected a language tag such as en, pt-BR or zh-Hant."
            reading.refuse(entry.line, "language", "language_invalid", sentence)
            continue
        if values.get("kind", "word") not in KINDS:
            sentence = f"The kind must be one of {', '.join(KINDS)}."
            reading.refuse(entry.line, "kind", "invalid", sentence)
            continue
        enabled = bool(values.pop("enabled", True))
        try:
            rules.append((check_entry(values | {"language": tag}), enabled))
        except RuleError as error:
            reading.refuse(entry.line, error.attr, error.code, error.message)
            slow += error.code == "pattern_too_slow"
    return rules


def decode_file(content: bytes) -> str:
    """Return a file's text, without the mark that some programs begin it with.

    Raises:
        FileRefusedError: file_too_large, file_not_utf8, file_empty.
    """
    if len(content) > max_file_bytes():
        message = f"The file is too large: at most {max_file_bytes()} bytes are allowed."
        raise FileRefusedError("file_too_large", message)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"The file is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8."
        raise FileRefusedError("file_not_utf8", message) from error
    if not text.strip():
        message = "The file is empty; choose a CSV or PLS file with entries."
        raise FileRefusedError("file_empty", message)
    return text


COLUMNS = ("find", "say", "kind", "case_sensitive", "language", "enabled")
_FLAGS = ("case_sensitive", "enabled")
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
# A spreadsheet takes a cell that begins like this for a formula; an apostrophe makes it a text.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001  # they too


def write_csv(entries: Iterable[LexiconEntry]) -> bytes:
    """Return entries as CSV: UTF-8 with its mark, commas, one line of column names."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for entry in entries:
        flags = [str(flag).lower() for flag in (entry.case_sensitive, entry.enabled)]
        cells = [entry.find, entry.say, entry.kind, flags[0], entry.language, flags[1]]
        writer.writerow(f"'{cell}" if _is_formula(cell) else cell for cell in cells)
    return file.getvalue().encode("utf-8-sig")


def read_csv(content: bytes) -> Reading:
    """Read what `write_csv` writes; columns may be in any order, `find` and `say` must be there.

    Raises:
        FileRefusedError: file_too_large, file_not_utf8, file_empty, csv_columns.
    """
    text = decode_file(content)
    reading = Reading()
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] | None = None
    line = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                if names is None:
                    names = _column_names(row)
                else:
                    _read_row(reading, line, names, row)
                    if reading.is_enough():
                        break
            line = reader.line_num + 1
    except csv.Error as error:
        reading.refuse(line, "", "csv_invalid", f"The file is not CSV: {error}.")
    if names is None and not reading.bad:
        _column_names([])
    return reading


def _column_names(row: list[str]) -> list[str]:
    names = [cell.strip().lower() for cell in row]
    faults = [f"{name[:50]!r} is not one of them" for name in names if name not in COLUMNS]
    faults += [f"{name!r} is missing" for name in COLUMNS[:2] if name not in names]
    faults += ["a column is given twice"] if len(set(names)) < len(names) else []
    if not row:
        faults = ["the file has no line of column names"]
    if faults:
        raise FileRefusedError(
            "csv_columns",
            "The first line must name the columns, separated by commas: "
            f"{', '.join(COLUMNS)}; {faults[0]}.",
        )
    return names


def _read_row(reading: Reading, line: int, names: list[str], row: list[str]) -> None:
    if len(row) != len(names):
        cells, columns = counted(len(row), "cell"), counted(len(names), "column")
        sentence = f"The line has {cells}, but the first line names {columns}."
        reading.refuse(line, "", "csv_cells", sentence)
        return
    values: dict[str, Any] = {
        name: cell[1:] if cell.startswith("'") and _is_formula(cell) else cell
        for name, cell in zip(names, row, strict=True)
    }
    for name in ("kind", "language", *_FLAGS):
        values[name] = values.get(name, "").strip()
    for name in _FLAGS:
        word = values[name].lower()
        if word not in (*_TRUE, *_FALSE, ""):
            reading.refuse(line, name, "invalid", "Expected true or false.")
            return
        values[name] = word in _TRUE or (not word and name == "enabled")
    values["kind"] = values["kind"].lower() or "word"
    reading.entries.append(FileEntry(line, values))


def _is_formula(cell: str) -> bool:
    """Say whether a spreadsheet takes a cell for a formula, without the apostrophes before it."""
    return cell.lstrip("'").startswith(_FORMULA)


PLS = "http://www.w3.org/2005/01/pronunciation-lexicon"
OWN = "urn:ttsweb:lexicon"  # what PLS has no word for, as attributes that other programs pass over
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_MAX_WARNINGS = 50


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
    file = io.BytesIO(decode_file(content).encode())
    reading = Reading()
    its_language = ""
    try:
        for event, element in etree.iterparse(
            file, events=("start", "end"), encoding="utf-8", resolve_entities=False
        ):
            parent = element.getparent()
            if parent is None and event == "start":  # nothing behind a document type is read yet
                _check_root(element)
                given = element.get(_XML_LANG, "")
                its_language = "" if given.lower() in ("", "und", language.lower()) else given
            elif (
                event == "end" and element.tag == f"{{{PLS}}}lexeme" and parent.getparent() is None
            ):
                _read_lexeme(reading, element, its_language)
                element.clear()
                if reading.is_enough():
                    break
    except etree.XMLSyntaxError as error:
        raise FileRefusedError("pls_invalid", f"The file is not XML: {error.msg}.") from error
    return reading


def _check_root(root: Any) -> None:
    if root.getroottree().docinfo.doctype:
        raise FileRefusedError(
            "pls_doctype",
            "The file has a document type or entities; remove them and send it again.",
        )
    if root.tag != f"{{{PLS}}}lexicon":
        raise FileRefusedError(
            "pls_invalid", f"The first element must be `lexicon` in the namespace {PLS}."
        )


def _read_lexeme(reading: Reading, lexeme: Any, language: str) -> None:
    line = lexeme.sourceline
    graphemes, aliases, phonemes = (
        {one: " ".join("".join(one.xpath("text()")).split()) for one in lexeme.iterchildren(tag)}
        for tag in (f"{{{PLS}}}{name}" for name in ("grapheme", "alias", "phoneme"))
    )
    names = ", ".join(graphemes.values())[:100]
    if not graphemes:
        reading.refuse(line, "find", "pls_lexeme", "The lexeme has no grapheme.")
    elif not aliases and phonemes:
        if len(reading.warnings) < _MAX_WARNINGS:
            reading.warnings.append(
                f"Line {line}: {names} has only phonemes, which the model does not "
                "read; add an alias that spells the sound."
            )
        elif len(reading.warnings) == _MAX_WARNINGS:
            reading.warnings.append("There are more of the same kind.")
    elif not aliases:
        reading.refuse(line, "say", "pls_lexeme", f"The lexeme {names} has no alias.")
    else:
        preferred = (said for alias, said in aliases.items() if alias.get("prefer") == "true")
        values = {
            "say": next(preferred, next(iter(aliases.values()))),
            "kind": lexeme.get(f"{{{OWN}}}kind", "word"),
            "case_sensitive": lexeme.get(f"{{{OWN}}}case-sensitive") != "false",
            "language": lexeme.get(f"{{{OWN}}}language", language),
        }
        reading.entries += [FileEntry(line, {"find": one, **values}) for one in graphemes.values()]


class BadLinesError(Exception):
    """Lines of a file that cannot be used; nothing was changed."""

    def __init__(self, lines: list[BadLine]) -> None:
        super().__init__(f"{counted(len(lines), 'line')} cannot be used")
        self.lines = lines


class Imported(NamedTuple):
    """Say what came of a file: entries added, entries there are now, what was left out and why."""

    added: int
    entries_total: int
    warnings: list[str]


def import_entries(lexicon: Lexicon, content: bytes, *, mode: Mode, format: str = "") -> Imported:
    """Put the entries of a file into a lexicon.

    Args:
        format: `csv` or `pls`; without it the file's first character says which it is.

    Raises:
        BadLinesError: lines cannot be used.
        FileRefusedError: the file as a whole cannot.
        LexiconError: too_many_entries, lexicon_not_found.
    """
    is_pls = format == "pls" or (not format and content.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"<")
    reading = read_pls(content, language=lexicon.language) if is_pls else read_csv(content)
    rules = check_entries(reading)
    if reading.bad:
        raise BadLinesError(sorted(reading.bad, key=lambda bad: bad.line))
    total = put_entries(lexicon, rules, mode)
    return Imported(len(rules), total, reading.warnings)
