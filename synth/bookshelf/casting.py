"""Plan the job of a book: who speaks each of its passages, and the pieces that it is cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from synth.api.books.cast_fields import of_role
from synth.books.book import count_chars
from synth.books.cast import Role, RoleKind
from synth.bookshelf.book_credits import TITLES, BookCredits
from synth.bookshelf.script import Passage, Script, SpokenChapter
from synth.jobs.planning import Planner
from synth.jobs.rejections import SubmitRejectedError, text_rejected
from synth.jobs.submit import segment_seed
from synth.lexicons.book import LexiconBook
from synth.models import Chapter, JobVoice, RenderJob, Segment
from synth.options.orders import Order, check_options, speakers_of
from synth.text.normalise import TextRejectedError, clean_text
from synth.text.pauses import PAUSE_KINDS, Pauses, pause_lengths
from synth.text.segments import Piece, cut_text
from synth.text.spelling.heading_numerals import say_numerals
from voices.models import VoiceVersion

NO_PAUSE = 0


@dataclass(frozen=True, slots=True)
class CastChapter:
    """Hold a chapter's pieces, of which the pauses are kinds; `speakers` are the job's for each."""

    chapter: SpokenChapter
    pieces: Sequence[Piece]
    speakers: Sequence[int]
    text_chars: int  # non-blank characters of its text, all of which are in its pieces

    @property
    def pause_kinds(self) -> str:
        """Return a digit for each piece: why there is a pause after it."""
        return "".join(str(piece.pause_after_ms) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class CastBook:
    """Hold the unsaved job of a book, its voices and their roles by speaker, and its chapters."""

    job: RenderJob
    versions: Mapping[int, VoiceVersion]
    roles: Mapping[int, str]
    chapters: Sequence[CastChapter]

    def rows(
        self,
    ) -> tuple[list[JobVoice], list[Chapter], Iterable[Segment]]:
        """Return the job's unsaved rows, to be written in this order."""
        voices = [
            JobVoice(job=self.job, speaker=speaker, version=version, role=self.roles[speaker])
            for speaker, version in sorted(self.versions.items())
        ]
        chapters = [
            Chapter(job=self.job, index=index, title=cast.chapter.title[:300])
            for index, cast in enumerate(self.chapters)
        ]
        return voices, chapters, self._segments(chapters)

    def _segments(self, chapters: Sequence[Chapter]) -> Iterable[Segment]:
        lengths = pause_lengths(Pauses.of(self.job.pauses))
        for row, cast in zip(chapters, self.chapters, strict=True):
            both = zip(cast.pieces, cast.speakers, strict=True)
            for index, (piece, speaker) in enumerate(both):
                yield Segment(
                    job=self.job,
                    chapter=row,
                    index=index,
                    text=piece.text,
                    spoken_text=piece.spoken_text,
                    speaker=speaker,
                    # By the speaker of the text: a voice that another chapter or role gets, and
                    # which may move this one's number, leaves its takes as they are.
                    seed=segment_seed(self.job.seed, piece.spoken_text, piece.speaker),
                    pause_after_ms=lengths[piece.pause_after_ms],
                )


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
            deadline_past, sample_rate_unfit, bit_rate_unfit, checkpoint_card_invalid.
    """
    check_options(order)
    if not script.chapters:
        raise SubmitRejectedError(
            409,
            "book_nothing_to_speak",
            "Every chapter of this book is excluded; include at least one.",
        )
    stage = Stage(script, order, planner)
    cast = [stage.cast(chapter) for chapter in script.chapters]
    if book_credits is not None:
        opening, closing = (
            [stage.cast(chapter)] if chapter is not None else []
            for chapter in stage.credits(book_credits)
        )
        cast = [*opening, *cast, *closing]
    cast[-1] = replace(cast[-1], pieces=_with_last_pause(cast[-1].pieces, NO_PAUSE))
    num_segments = sum(len(one.pieces) for one in cast)
    job = planner.row(order, "", stage.language, num_segments)
    job.kind = RenderJob.Kind.BOOK
    return CastBook(job, stage.versions, stage.roles, cast)


def narrating_versions(order: Order, planner: Planner) -> dict[int, VoiceVersion]:
    """Return who speaks by the numbers of `voices`; number 0 reads the book.

    Raises:
        SubmitRejectedError: voice_*.
    """
    wanted, references = speakers_of(order)
    if references:
        raise SubmitRejectedError(
            400, "voice_required", "A book needs a voice; give one in `voice`.", attr="voice"
        )
    if 0 not in wanted:
        raise SubmitRejectedError(
            400, "voice_required", "Give a voice for speaker 0, who reads the book.", attr="voices"
        )
    return dict(planner.versions_of(wanted, order))


class Stage:
    """Give each passage its voice and cut it; roles get their speakers as they come."""

    def __init__(self, script: Script, order: Order, planner: Planner) -> None:
        """Set the stage with those who speak by numbers.

        Raises:
            SubmitRejectedError: voice_*.
        """
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
                409,
                "chapter_empty",
                f"The chapter {chapter.title!r} has speaker tags but no words; exclude it.",
            )
        pieces = _with_last_pause(pieces, PAUSE_KINDS.chapter)
        return CastChapter(chapter, pieces, speakers, chars)

    def credits(self, wanted: BookCredits) -> list[SpokenChapter | None]:
        """Return the chapters of the credits, once all who speak are known.

        Raises:
            SubmitRejectedError: credits_incomplete.
        """
        named = [one.voice.name for _, one in sorted(self.versions.items()) if one.voice]
        voices = list(dict.fromkeys(named))
        return [wanted.chapter(field, voices) for field in TITLES]

    def _reader(self, chapter: SpokenChapter) -> int:
        """Return the job's speaker for the voice that a chapter names."""
        try:
            version = self.planner.versions_of({0: chapter.voice}, self.order)[0]
        except SubmitRejectedError as error:
            raise SubmitRejectedError(
                error.status,
                error.code,
                f"Chapter {chapter.title!r}: {error}",
                attr=error.attr,
                retry_after=error.retry_after,
            ) from error
        if version.pk not in self._readers:
            self._readers[version.pk] = self._add(version, "chapter")
        return self._readers[version.pk]

    def _speaker(self, role: Role, chapter: SpokenChapter) -> int:
        """Return the job's speaker for a role; each has its own, whatever its voice is."""
        if role not in self._voices:
            raise SubmitRejectedError(
                400,
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
            cleaned = clean_text(passage.text, max_chars=settings.MAX_BOOK_CHARS)
            pieces = cut_text(
                cleaned,
                max_chars=most,
                language=language,
                pauses=PAUSE_KINDS,
                speaker=passage.speaker,
            )
        except TextRejectedError as error:
            refused = text_rejected(error)
            raise SubmitRejectedError(
                refused.status, refused.code, f"Chapter {chapter.title!r}: {refused}"
            ) from error
        chars = count_chars(cleaned)
        if sum(count_chars(piece.text) for piece in pieces) != chars:
            raise SubmitRejectedError(
                500,
                "book_text_lost",
                f"The book was not started: cutting the chapter {chapter.title!r} into "
                "segments would lose some of its text. Please report this as a defect.",
            )
        _check_speakers(chapter, pieces, roles)
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
        if passage.gap == "heading":
            spoken = [_with_numerals(piece, language) for piece in spoken]
        return spoken, chars


def _check_speakers(
    chapter: SpokenChapter, pieces: Sequence[Piece], roles: Mapping[int, int]
) -> None:
    unknown = sorted({piece.speaker for piece in pieces} - set(roles))
    if unknown:
        raise SubmitRejectedError(
            400,
            "speaker_unknown",
            f"The chapter {chapter.title!r} has a tag for speaker {unknown[0]}, who has no "
            "voice; give one in `voices`.",
            attr="voices",
        )


def _with_numerals(piece: Piece, language: str) -> Piece:
    """Return a heading's piece with its numerals said, unless a lexicon says it otherwise."""
    if piece.spoken_text != piece.text:
        return piece
    return replace(piece, spoken_text=say_numerals(piece.text, language))


def _with_last_pause(pieces: Sequence[Piece], kind: int) -> list[Piece]:
    return [*pieces[:-1], replace(pieces[-1], pause_after_ms=kind)]


def _language_of(version: VoiceVersion, planner: Planner) -> str:
    voice = version.voice
    spoken = voice.language if voice is not None else ""
    return spoken or next(iter(planner.card.languages), "en")
