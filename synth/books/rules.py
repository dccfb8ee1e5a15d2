"""Decide what of a book is spoken and by whom, and say why the rest is not; write its credits."""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from synth.books.book import Block, BlockKind, CodedError
from synth.text.languages import base_of
from synth.text.normalise import is_speakable

CHARS_PER_SECOND = 15.0  # a calm reader of European languages, blanks counted


class SkipReason(enum.StrEnum):
    """Say why something is not spoken; `sentence` says it to a reader of the plan."""

    sentence: str

    def __new__(cls, value: str, sentence: str = "") -> SkipReason:
        """Make a member of its value and its sentence."""
        member = str.__new__(cls, value)
        member._value_, member.sentence = value, sentence
        return member

    TITLE_PAGE = (
        "title_page",
        "A title page or cover. The title and the author are in the book's metadata.",
    )
    CONTENTS = "contents", "A contents list or another list of places in the book."
    LICENCE = "licence", "An imprint, copyright notice, licence or colophon."
    INDEX = "index", "An index. Its page numbers are useless to a listener."
    BOILERPLATE = (
        "boilerplate",
        "A text that an archive put before or after the book, such as its licence.",
    )
    SITE = "site", "The header, footer, sidebar or banner of a web page."
    NOTE = "note", "A footnote or endnote, which the setting for notes leaves out."
    NOTE_MARK = "note_mark", "The mark of a note, or the link from a note back to its mark."
    PAGE_NUMBER = "page_number", "A page number of the printed book."
    TABLE = "table", "A table, which the setting for tables leaves out."
    ALT_TEXT = "alt_text", "The description of a picture, which the setting for images leaves out."
    CODE = "code", "A program or another text for computers."
    HIDDEN = "hidden", "The book hides this text from its readers."
    BREAK = "break", "An ornament between scenes; it is heard as a pause."
    UNSPEAKABLE = "unspeakable", "This text has no letter or digit."
    NOT_LINEAR = "not_linear", "The book marks this as outside its reading order."
    EMPTY = "empty", "This part has nothing that can be spoken."
    EXCLUDED = "excluded", "A user left this out."


class Notes(enum.StrEnum):
    """Say where notes are spoken."""

    SKIP = "skip"
    INLINE = "inline"  # after the paragraph that refers to them
    END = "end"  # at the end of the chapter that refers to them


class Tables(enum.StrEnum):
    """Say how tables are spoken."""

    ROWS = "rows"
    SKIP = "skip"


class AltTexts(enum.StrEnum):
    """Say whether the descriptions of pictures are spoken."""

    SKIP = "skip"
    SPEAK = "speak"


class SpeakerNames(enum.StrEnum):
    """Say whether the names of the persons of a play are spoken before their speeches."""

    SAY = "say"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Rules:
    """Hold what may be chosen."""

    notes: Notes = Notes.SKIP
    tables: Tables = Tables.ROWS
    alt_texts: AltTexts = AltTexts.SKIP
    speaker_names: SpeakerNames = SpeakerNames.SAY


_ROLE_REASONS = {
    **dict.fromkeys(("titlepage", "halftitlepage", "cover", "seriespage"), SkipReason.TITLE_PAGE),
    **dict.fromkeys(
        ("toc", "navigation", "landmarks", "page-list", "loi", "lot"), SkipReason.CONTENTS
    ),
    **dict.fromkeys(
        ("copyright-page", "imprint", "imprimatur", "colophon", "credits"), SkipReason.LICENCE
    ),
    **dict.fromkeys(("footnotes", "endnotes"), SkipReason.NOTE),
    **dict.fromkeys(("pg-header", "pg-footer"), SkipReason.BOILERPLATE),
    "index": SkipReason.INDEX,
    "hidden": SkipReason.HIDDEN,
}
_FURNITURE_REASONS = {
    "noteref": SkipReason.NOTE_MARK,
    "backlink": SkipReason.NOTE_MARK,
    "pagebreak": SkipReason.PAGE_NUMBER,
    "hidden": SkipReason.HIDDEN,
    "site": SkipReason.SITE,
    "invisible": SkipReason.UNSPEAKABLE,
    "code": SkipReason.CODE,
    "link-list": SkipReason.CONTENTS,
}
_TITLE_REASONS = (
    (
        SkipReason.CONTENTS,
        r"(?:table of )?contents(?: page)?|table des matières|sommaire|inhalt|inhaltsverzeichnis|"
        r"índice|indice general|sommario|inhoud|(?:list of )?(?:illustrations|plates|tables|maps)|"
        r"landmarks|abbildungsverzeichnis|table des illustrations|table(?: des chapitres)?|"
        r"innehåll|sisällys|spis treści|obsah|tartalom",
    ),
    (
        SkipReason.TITLE_PAGE,
        r"(?:half[ -]?)?title[ -]?page|(?:half[ -]?)?title|cover(?: page)?|umschlag|titelblatt|"
        r"titelseite|couverture|page de titre|portada|frontispiece|also by.*|"
        r"(?:other )?(?:books|works|novels)? ?by the same author|du même auteur|"
        r"ouvrages du même auteur|(?:vom gleichen|von demselben) verfasser.*|del mismo autor",
    ),
    (
        SkipReason.LICENCE,
        r"imprint|(?:un)?copyright(?: page| notice)?|colophon|impressum|mentions légales|"
        r"licen[cs]e|(?:the )?full project gutenberg.* licen[cs]e|legal notice|rights|achevé "
        r"d.imprimer|kolophon|about this (?:e-?book|(?:digital |electronic )?edition)|"
        r"à propos de cette édition.*|über diese (?:digitale )?(?:edition|ausgabe)|"
        r"transcriber.?s?.? (?:end)?notes?|(?:weitere )?anmerkungen? (?:zur|der|des) transkri\w+|"
        r"notes? (?:de (?:la )?transcription|d[eu]s? transcript\w+)|"
        r"nota d[ei]l? (?:transcriptor|trascrittore)|opmerkingen van de bewerker",
    ),
    (SkipReason.INDEX, r"(?:general )?index(?: of .*)?|register|namenregister|sachregister"),
    (
        SkipReason.NOTE,
        r"(?:foot|end)?notes|anmerkungen|fußnoten|endnoten|notes de bas de page|notas|note",
    ),
)
_TITLES = [(why, re.compile(rf"(?:{names})\W*\Z", re.IGNORECASE)) for why, names in _TITLE_REASONS]


def section_reason(role: str) -> SkipReason | None:
    """Return why everything in a section of this role is not spoken; None if it is.

    Prefaces, introductions, epigraphs and dedications are spoken.
    """
    return _ROLE_REASONS.get(role)


def title_reason(title: str) -> SkipReason | None:
    """Return why a chapter that is called so is not spoken; for books that name no roles."""
    title = title.strip()
    return next((why for why, names in _TITLES if names.match(title)), None)


def block_reason(block: Block, rules: Rules) -> SkipReason | None:
    """Return why a block is not spoken though its chapter is; None if it is spoken."""
    if block.kind is BlockKind.FURNITURE:
        return _FURNITURE_REASONS.get(block.role) or section_reason(block.role) or SkipReason.HIDDEN
    if block.kind is BlockKind.BREAK:
        return SkipReason.BREAK
    if block.role in {"code", "link-list"}:
        return _FURNITURE_REASONS[block.role]
    if block.kind is BlockKind.TABLE_ROW and rules.tables is Tables.SKIP:
        return SkipReason.TABLE
    if block.kind is BlockKind.ALT_TEXT and rules.alt_texts is AltTexts.SKIP:
        return SkipReason.ALT_TEXT
    if not is_speakable(block.text):
        return SkipReason.UNSPEAKABLE
    return None


class RoleKind(enum.StrEnum):
    """Name the kinds of roles, the one that yields to all others first."""

    NARRATOR = "narrator"
    DIALOGUE = "dialogue"
    LANGUAGE = "language"
    CHARACTER = "character"


@dataclass(frozen=True, slots=True)
class Role:
    """Hold one part that is spoken; `name` is a character's name or a language's tag."""

    kind: RoleKind
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or str(self.kind)


NARRATOR = Role(RoleKind.NARRATOR)
DIALOGUE = Role(RoleKind.DIALOGUE)


@dataclass(frozen=True, slots=True)
class Casting:
    """Hold who speaks beside the narrator; voices are ids or names, as they were given.

    `characters` are by the names that were given, `languages` by tags in their usual spelling.
    """

    dialogue_voice: str = ""
    characters: Mapping[str, str] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Casting:
        """Return the casting that a request gave, and that was checked then."""
        detects = stored.get("dialogue") == "detect"
        return cls(
            dialogue_voice=stored.get("dialogue_voice", "") if detects else "",
            characters=dict(stored.get("characters", {})),
            languages=dict(stored.get("languages", {})),
        )

    @property
    def detects_dialogue(self) -> bool:
        return bool(self.dialogue_voice)

    def character(self, name: str) -> Role | None:
        """Return the role of a character, by its name in whatever case; None without a voice."""
        folded = fold_name(name)
        found = (given for given in self.characters if fold_name(given) == folded)
        given = next(found, None) if folded else None
        return None if given is None else Role(RoleKind.CHARACTER, given)

    def language(self, tag: str) -> Role | None:
        """Return the role of a language, by the longest tag that begins it; None without one."""
        spelled = f"{tag.replace('_', '-')}-".lower()
        fitting = [one for one in self.languages if spelled.startswith(f"{one}-".lower())]
        return Role(RoleKind.LANGUAGE, max(fitting, key=len)) if fitting else None

    def voices(self) -> Iterator[tuple[Role, str]]:
        """Yield every role with its voice."""
        if self.dialogue_voice:
            yield DIALOGUE, self.dialogue_voice
        for name, voice in self.characters.items():
            yield Role(RoleKind.CHARACTER, name), voice
        for tag, voice in self.languages.items():
            yield Role(RoleKind.LANGUAGE, tag), voice


def fold_name(name: str) -> str:
    """Return a name without what differs between a list of persons and their speeches."""
    folded = unicodedata.normalize("NFC", name).casefold()
    return " ".join(folded.split()).rstrip(" .:")


MAX_CREDITS_CHARS = 2000
PLACEHOLDERS = ("title", "subtitle", "authors", "narrators", "publisher", "year")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)")


class CreditsError(CodedError):
    """A template that cannot be spoken."""


def check_template(template: str) -> None:
    """Pass if a template names nothing but placeholders that there are.

    Raises:
        CreditsError: placeholder_unknown.
    """
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    unknown = [name for name in _PLACEHOLDER.findall(template) if name not in PLACEHOLDERS]
    if unknown:
        raise CreditsError(
            "placeholder_unknown",
            f"There is no placeholder {{{unknown[0]}}}; the allowed placeholders are {known}.",
        )
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        raise CreditsError(
            "placeholder_unknown",
            f"The text has a single brace. Braces mark placeholders, which are {known}.",
        )


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders filled in.

    Raises:
        CreditsError: credits_incomplete: the book has nothing for one of them.
    """
    missing = [name for name in dict.fromkeys(_PLACEHOLDER.findall(template)) if not values[name]]
    if missing:
        raise CreditsError(
            "credits_incomplete",
            f"The credits use {{{missing[0]}}}, but the book has no such value. Set it in the "
            "book's metadata, or remove it from the credits.",
        )
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def year_of(date: str) -> str:
    """Return the year of a date in whatever spelling; empty where there is none."""
    found = _YEAR.search(date)
    return found[0] if found else ""


_AND = {
    "en": "and", "de": "und", "fr": "et", "es": "y", "it": "e", "pt": "e", "nl": "en", "sv": "och",
    "da": "og", "nb": "og", "no": "og", "pl": "i", "ru": "и", "uk": "\u0456",
}  # fmt: skip


def names_of(names: tuple[str, ...], *, language: str) -> str:
    """Return names as they are said: with the word for "and" before the last one."""
    word = _AND.get(base_of(language), "")
    if len(names) < 2 or not word:
        return ", ".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
