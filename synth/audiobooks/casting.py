"""Plan the job of a book: its credits, who speaks each passage, and the pieces it is cut into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from synth.audiobooks.plans import Passage, Script, SpokenChapter, metadata_of_file
from synth.books.book import StoredBookError, count_chars
from synth.books.rules import (
    Casting,
    CreditsError,
    Role,
    RoleKind,
    fill_template,
    names_of,
    year_of,
)
from synth.jobs.orders import Order, check_options, speakers_of
from synth.jobs.planning import PlannedChapter, PlannedJob, Planner
from synth.lexicons.book import LexiconBook
from synth.models import BookSource, RenderJob
from synth.text.normalise import TextRejectedError, clean_text
from synth.text.numbers import say_numerals
from synth.text.pauses import PAUSE_KINDS, Pauses, pause_lengths
from synth.text.segments import Piece, cut_text
from ttsweb.refusals import SubmitRejectedError
from voices.access import find_voice
from voices.models import VoiceVersion

MAX_BOOK_CHARS = 20_000_000  # of a book; the longest novels have about ten million
TITLES = {"opening_credits": "Opening credits", "closing_credits": "Closing credits"}
ACX = "acx"  # the shop's rules for audiobooks ask for both


@dataclass(frozen=True, slots=True)
class BookCredits:
    """Hold the templates of a book's credits by field, and what their placeholders stand for."""

    templates: Mapping[str, str]
    values: Mapping[str, str]
    narrators: tuple[str, ...]
    language: str

    def chapter(self, field: str, voices: Sequence[str]) -> SpokenChapter | None:
        """Return the chapter of one of the two fields; None where it has no template.

        Args:
            voices: names of the voices that speak, for a book of which nobody named narrators.

        Raises:
            SubmitRejectedError: credits_incomplete.
        """
        template = self.templates.get(field, "")
        if not template:
            return None
        narrators = names_of(self.narrators or tuple(voices), language=self.language)
        try:
            text = fill_template(template, {**self.values, "narrators": narrators})
        except CreditsError as error:
            raise SubmitRejectedError(error.code, error.message, attr=field) from error
        passage = Passage(text, self.language)
        return SpokenChapter(field.replace("_", "-"), TITLES[field], (passage,), 0)


def credits_of(book: BookSource) -> BookCredits:
    """Return the credits of a planned book.

    Raises:
        FileNotFoundError, StoredBookError: what was read of it is not there any more.
    """
    templates = {field: book.production.get(field, "") for field in TITLES}
    metadata = {**metadata_of_file(book), **book.metadata} if any(templates.values()) else {}
    language = str(metadata.get("language", ""))
    values = {
        "title": str(metadata.get("title", "")),
        "subtitle": str(metadata.get("subtitle", "")),
        "authors": names_of(tuple(metadata.get("authors", ())), language=language),
        "publisher": str(metadata.get("publisher", "")),
        "year": year_of(str(metadata.get("date", ""))),
    }
    return BookCredits(templates, values, tuple(metadata.get("narrators", ())), language)


def credits_report(book: BookSource, voices: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the credits as they would be spoken, by field, and what is to be known of them.

    Args:
        voices: names of the voices that would speak.
    """
    shown: dict[str, str] = {}
    warnings: list[str] = []
    try:
        found = credits_of(book)
    except (FileNotFoundError, StoredBookError):
        return {}, []
    for field, title in TITLES.items():
        try:
            chapter = found.chapter(field, voices)
        except SubmitRejectedError as error:
            warnings.append(f"{title}: {error}")
            continue
        if chapter is not None:
            shown[field] = chapter.passages[0].text
        elif book.production.get("preset") == ACX and not found.templates[field]:
            warnings.append(f"The preset acx needs {title.lower()}; add them.")
    return shown, warnings


@dataclass(frozen=True, slots=True)
class CastChapter:
    """Hold a chapter's pieces, of which the pauses are kinds; `speakers` are the job's for each."""

    chapter: SpokenChapter
    pieces: Sequence[Piece]
    speakers: Sequence[int]
    text_chars: int  # non-blank characters of its text, all of which are in its pieces

    @property
    def pause_kinds(self) -> str:
        """A digit for each piece: why there is a pause after it."""
        return "".join(str(piece.pause_after_ms) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class CastBook:
    """Hold the unsaved job of a book, its voices and their roles by speaker, and its chapters."""

    job: RenderJob
    versions: Mapping[int, VoiceVersion]
    roles: Mapping[int, str]
    chapters: Sequence[CastChapter]

    def planned(self) -> PlannedJob:
        """Return the job with its chapters, of which the pauses are lengths in milliseconds."""
        lengths = pause_lengths(Pauses.of(self.job.pauses))
        chapters = [
            PlannedChapter(
                [replace(one, pause_after_ms=lengths[one.pause_after_ms]) for one in cast.pieces],
                cast.speakers,
                cast.chapter.title[:300],
            )
            for cast in self.chapters
        ]
        num_chars = sum(one.text_chars for one in self.chapters)
        return PlannedJob(self.job, chapters, self.versions, roles=self.roles, num_chars=num_chars)


def cast_book(
    script: Script, order: Order, planner: Planner, *, book_credits: BookCredits | None = None
) -> CastBook:
    """Return the job that a book makes; nothing is written.

    Args:
        order: options of the job; its text is not looked at.
        book_credits: become the first and the last chapter.

    Raises:
        SubmitRejectedError: book_nothing_to_speak, chapter_empty, book_text_lost, voice_*,
            credits_incomplete, speaker_unknown, text_*, lexicon_*, pattern_*, spoken_too_long,
            deadline_past, sample_rate_unfit, bit_rate_unfit, history_not_supported,
            checkpoint_card_invalid.
    """
    check_options(order)
    if not script.chapters:
        raise SubmitRejectedError(
            "book_nothing_to_speak", "Every chapter of this book is excluded; include at least one."
        )
    stage = Stage(script, order, planner)
    cast = [stage.cast(chapter) for chapter in script.chapters]
    if book_credits is not None:  # once all who speak are known
        named = [one.voice.name for _, one in sorted(stage.versions.items()) if one.voice]
        opening, closing = (
            [stage.cast(chapter)] if chapter is not None else []
            for chapter in [
                book_credits.chapter(field, list(dict.fromkeys(named))) for field in TITLES
            ]
        )
        cast = [*opening, *cast, *closing]
    cast[-1] = replace(cast[-1], pieces=_with_last_pause(cast[-1].pieces, 0))
    num_segments = sum(len(one.pieces) for one in cast)
    job = planner.row(order, "", stage.language, num_segments, is_book=True)
    return CastBook(job, stage.versions, stage.roles, cast)


def narrating_versions(order: Order, planner: Planner) -> dict[int, VoiceVersion]:
    """Return who speaks by the numbers of `voices`; number 0 reads the book. Raises voice_*."""
    wanted, references = speakers_of(order)
    if references:
        raise SubmitRejectedError(
            "voice_required", "A book needs a voice; give one in `voice`.", attr="voice"
        )
    if 0 not in wanted:
        raise SubmitRejectedError(
            "voice_required", "Give a voice for speaker 0, who reads the book.", attr="voices"
        )
    return dict(planner.versions_of(wanted, order))


class Stage:
    """Give each passage its voice and cut it; roles get their speakers as they come."""

    def __init__(self, script: Script, order: Order, planner: Planner) -> None:
        """Set the stage with those who speak by numbers; raises voice_*."""
        self.order, self.planner = order, planner
        self.versions = narrating_versions(order, planner)
        self.roles = dict.fromkeys(self.versions, "") | {0: str(RoleKind.NARRATOR)}
        self.language = order.language or _language_of(self.versions[0], planner)
        self._numbered = frozenset(self.versions)
        self._voices = dict(script.casting.voices())
        self._lexicons = LexiconBook(planner.owner)
        self._readers = {self.versions[0].pk: 0}  # of chapters, by version
        self._speakers: dict[Role, int] = {}

    def cast(self, chapter: SpokenChapter) -> CastChapter:
        """Return a chapter with its pieces.

        Raises:
            SubmitRejectedError: as `cast_book`.
        """
        reader = self._reader(chapter) if chapter.voice else 0
        pieces: list[Piece] = []
        speakers: list[int] = []
        chars = 0
        for passage in chapter.passages:
            number = reader
            if passage.role.kind is not RoleKind.NARRATOR:
                number = self._speaker(passage.role, chapter)
            roles = {one: one for one in self._numbered} | {0: number}
            some, count = self._passage(chapter, passage, roles)
            pieces += _with_last_pause(some, getattr(PAUSE_KINDS, passage.gap))
            speakers += [roles[piece.speaker] for piece in some]
            chars += count
        if not pieces:
            raise SubmitRejectedError(
                "chapter_empty",
                f"The chapter {chapter.title!r} has speaker tags but no words; exclude it.",
                case="chapter_unspoken",
            )
        pieces = _with_last_pause(pieces, PAUSE_KINDS.chapter)
        return CastChapter(chapter, pieces, speakers, chars)

    def _reader(self, chapter: SpokenChapter) -> int:
        """Return the job's speaker for the voice that a chapter names."""
        try:
            version = self.planner.versions_of({0: chapter.voice}, self.order)[0]
        except SubmitRejectedError as error:
            raise error.at(error.attr, f"Chapter {chapter.title!r}: {error}") from error
        if version.pk not in self._readers:
            self._readers[version.pk] = self._add(version, "chapter")
        return self._readers[version.pk]

    def _speaker(self, role: Role, chapter: SpokenChapter) -> int:
        """Return the job's speaker for a role; each has its own, whatever its voice is."""
        if role not in self._voices:
            raise SubmitRejectedError(
                "speaker_unknown",
                f"The chapter {chapter.title!r} has a tag for the character {role.name!r}, "
                "who has no voice; give one in the casting's `characters`.",
                attr="casting.characters",
            )
        if role not in self._speakers:
            try:
                version = self.planner.versions_of({0: self._voices[role]}, self.order)[0]
            except SubmitRejectedError as error:
                raise of_role(error, role) from error
            self._speakers[role] = self._add(version, role.label)
        return self._speakers[role]

    def _add(self, version: VoiceVersion, role: str) -> int:
        number = max(self.versions) + 1
        self.versions[number], self.roles[number] = version, role
        return number

    def _passage(
        self, chapter: SpokenChapter, passage: Passage, roles: Mapping[int, int]
    ) -> tuple[list[Piece], int]:
        """Return the pieces of a passage, and its non-blank characters."""
        language = passage.language or self.language
        most = self.planner.card.segment_chars
        try:
            cleaned = clean_text(passage.text, max_chars=MAX_BOOK_CHARS)
            pieces = cut_text(
                cleaned,
                max_chars=most,
                language=language,
                pauses=PAUSE_KINDS,
                speaker=passage.speaker,
            )
        except TextRejectedError as error:
            message = f"Chapter {chapter.title!r}: {error}"
            raise SubmitRejectedError(error.code, message) from error
        chars = count_chars(cleaned)
        if sum(count_chars(piece.text) for piece in pieces) != chars:
            raise SubmitRejectedError(
                "book_text_lost",
                f"The book was not started: cutting the chapter {chapter.title!r} into "
                "segments would lose some of its text. Please report this as a defect.",
            )
        if unknown := sorted({piece.speaker for piece in pieces} - set(roles)):
            raise SubmitRejectedError(
                "speaker_unknown",
                f"The chapter {chapter.title!r} has a tag for speaker {unknown[0]}, who has no "
                "voice; give one in `voices`.",
                attr="voices",
            )
        spoken = self._lexicons.speak(
            pieces,
            language=language,
            max_chars=most,
            voice_ids={one: self.versions[role].voice_id for one, role in roles.items()},
            named=self.order.lexicons,
            entries=self.order.lexicon,
            normalise=self.order.normalise,
            pauses=PAUSE_KINDS,
        )
        if passage.gap == "heading":  # numerals are said, unless a lexicon says it otherwise
            spoken = [
                replace(piece, spoken_text=say_numerals(piece.text, language))
                if piece.spoken_text == piece.text
                else piece
                for piece in spoken
            ]
        return spoken, chars


def _with_last_pause(pieces: Sequence[Piece], kind: int) -> list[Piece]:
    return [*pieces[:-1], replace(pieces[-1], pause_after_ms=kind)]


def _language_of(version: VoiceVersion, planner: Planner) -> str:
    voice = version.voice
    spoken = voice.language if voice is not None else ""
    return spoken or next(iter(planner.card.languages), "en")


def check_voices(user: AbstractBaseUser | None, stored: Mapping[str, Any]) -> None:
    """Pass if the user may use all voices of a casting.

    Raises:
        SubmitRejectedError: voice_not_found, voice_ambiguous_name; it names the role.
    """
    for role, voice in Casting.of(stored).voices():
        try:
            find_voice(user, voice)
        except SubmitRejectedError as error:
            raise of_role(error, role) from error


def of_role(error: SubmitRejectedError, role: Role) -> SubmitRejectedError:
    """Return a refusal that says for which role it is."""
    whose, attr = {
        RoleKind.NARRATOR: ("The narrator", "voice"),
        RoleKind.DIALOGUE: ("The dialogue", "casting.dialogue_voice"),
        RoleKind.CHARACTER: (f"The character {role.name!r}", f"casting.characters.{role.name}"),
        RoleKind.LANGUAGE: (f"The language {role.name}", f"casting.languages.{role.name}"),
    }[role.kind]
    return SubmitRejectedError(
        error.code, f"{whose}: {error}", attr=attr, retry_after=error.retry_after
    )
