"""Plan the job of a book: who speaks each chapter, and the pieces that it is cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from synth.books.book import count_chars
from synth.bookshelf.script import Script, SpokenChapter, SpokenPassage
from synth.lexicons.book import LexiconBook
from synth.models import Chapter, JobVoice, RenderJob, Segment
from synth.orders import Order, check_options, speakers_of
from synth.planning import Planner
from synth.rejections import SubmitRejectedError, text_rejected
from synth.submit import segment_seed
from synth.text.normalise import TextRejectedError, clean_text
from synth.text.pauses import Pauses
from synth.text.segments import Piece, cut_text
from voices.models import VoiceVersion

CHAPTER_PAUSE_MS = 2000  # what players take for the end of a chapter, and not for a fault


@dataclass(frozen=True, slots=True)
class CastChapter:
    """Hold a chapter's pieces; `roles` gives the job's speaker for each speaker of its text."""

    chapter: SpokenChapter
    pieces: Sequence[Piece]
    roles: Mapping[int, int]
    text_chars: int  # non-blank characters of its text, all of which are in its pieces


@dataclass(frozen=True, slots=True)
class CastBook:
    """Hold the unsaved job of a book, its voices by speaker, and its chapters."""

    job: RenderJob
    versions: Mapping[int, VoiceVersion]
    chapters: Sequence[CastChapter]

    def rows(
        self,
    ) -> tuple[list[JobVoice], list[Chapter], Iterable[Segment]]:
        """Return the job's unsaved rows, to be written in this order."""
        voices = [
            JobVoice(job=self.job, speaker=speaker, version=version)
            for speaker, version in sorted(self.versions.items())
        ]
        chapters = [
            Chapter(job=self.job, index=index, title=cast.chapter.title[:300])
            for index, cast in enumerate(self.chapters)
        ]
        return voices, chapters, self._segments(chapters)

    def _segments(self, chapters: Sequence[Chapter]) -> Iterable[Segment]:
        for row, cast in zip(chapters, self.chapters, strict=True):
            for index, piece in enumerate(cast.pieces):
                yield Segment(
                    job=self.job,
                    chapter=row,
                    index=index,
                    text=piece.text,
                    spoken_text=piece.spoken_text,
                    speaker=cast.roles[piece.speaker],
                    # By the speaker of the text: a voice that another chapter gets, and which may
                    # move this one's number, leaves its takes as they are.
                    seed=segment_seed(self.job.seed, piece.spoken_text, piece.speaker),
                    pause_after_ms=piece.pause_after_ms,
                )


def cast_book(script: Script, order: Order, planner: Planner) -> CastBook:
    """Return the job that a book makes; nothing is written.

    Args:
        order: options of the job; its text is not looked at.

    Raises:
        SubmitRejectedError: book_nothing_to_speak, book_text_lost, voice_*, speaker_unknown,
            text_*, lexicon_*, pattern_*, spoken_too_long, deadline_past, sample_rate_unfit,
            bit_rate_unfit, checkpoint_card_invalid.
    """
    check_options(order)
    if not script.chapters:
        raise SubmitRejectedError(
            409, "book_nothing_to_speak", "Nothing of this book is to be spoken; include a chapter."
        )
    wanted, references = speakers_of(order)
    if references:
        raise SubmitRejectedError(
            400, "voice_required", "A book is spoken by voices; give one.", attr="voice"
        )
    if 0 not in wanted:
        raise SubmitRejectedError(
            400, "voice_required", "Give the voice of speaker 0, who reads the book.", attr="voices"
        )
    stage = _Stage(order, planner, dict(planner.versions_of(wanted, order)))
    cast = [stage.cast(chapter) for chapter in script.chapters]
    cast[-1] = replace(cast[-1], pieces=_with_last_pause(cast[-1].pieces, 0))
    num_segments = sum(len(one.pieces) for one in cast)
    job = planner.row(order, "", stage.language, num_segments)
    job.kind = RenderJob.Kind.BOOK
    return CastBook(job, stage.versions, cast)


class _Stage:
    """Give each chapter its voices and cut it; voices get their speakers as they come."""

    def __init__(self, order: Order, planner: Planner, versions: dict[int, VoiceVersion]) -> None:
        self.order, self.planner, self.versions = order, planner, versions
        self.language = order.language or _language_of(versions[0], planner)
        self._lexicons = LexiconBook(planner.owner)
        self._speaker_of: dict[object, int] = {version.pk: n for n, version in versions.items()}

    def cast(self, chapter: SpokenChapter) -> CastChapter:
        """Return a chapter with its pieces.

        Raises:
            SubmitRejectedError: as `cast_book`.
        """
        roles = {speaker: speaker for speaker in self.versions}
        if chapter.voice:
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
            roles[0] = self._speaker(version)
        pieces, chars = self._pieces(chapter, roles)
        return CastChapter(chapter, _with_last_pause(pieces, CHAPTER_PAUSE_MS), roles, chars)

    def _speaker(self, version: VoiceVersion) -> int:
        """Return the job's number of a voice that a chapter names."""
        if version.pk not in self._speaker_of:
            number = max(self.versions) + 1
            self.versions[number] = version
            self._speaker_of[version.pk] = number
        return self._speaker_of[version.pk]

    def _pieces(self, chapter: SpokenChapter, roles: Mapping[int, int]) -> tuple[list[Piece], int]:
        """Return a chapter's pieces as they are spoken, and its non-blank characters."""
        found: list[Piece] = []
        chars = 0
        for passage in chapter.passages:
            pieces, count = self._passage(chapter, passage, roles)
            if found:
                found = _with_last_pause(found, Pauses.of(self.order.pauses).paragraph)
            found += pieces
            chars += count
        return found, chars

    def _passage(
        self, chapter: SpokenChapter, passage: SpokenPassage, roles: Mapping[int, int]
    ) -> tuple[list[Piece], int]:
        """Return the pieces of a text in one language, and its non-blank characters."""
        language = passage.language or self.language
        pauses = Pauses.of(self.order.pauses)
        most = self.planner.card.segment_chars
        try:
            cleaned = clean_text(passage.text, max_chars=settings.MAX_BOOK_CHARS)
            pieces = cut_text(cleaned, max_chars=most, language=language, pauses=pauses)
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
                f"Cutting the chapter {chapter.title!r} would lose some of its text, so that the "
                "book was not started; please report this.",
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
            pauses=pauses,
        )
        return spoken, chars


def _check_speakers(
    chapter: SpokenChapter, pieces: Sequence[Piece], roles: Mapping[int, int]
) -> None:
    unknown = sorted({piece.speaker for piece in pieces} - set(roles))
    if unknown:
        raise SubmitRejectedError(
            400,
            "speaker_unknown",
            f"The chapter {chapter.title!r} names speaker {unknown[0]}, who has no voice here; "
            "give one by `voices`.",
            attr="voices",
        )


def _with_last_pause(pieces: Sequence[Piece], pause_ms: int) -> list[Piece]:
    return [*pieces[:-1], replace(pieces[-1], pause_after_ms=pause_ms)]


def _language_of(version: VoiceVersion, planner: Planner) -> str:
    voice = version.voice
    spoken = voice.language if voice is not None else ""
    return spoken or next(iter(planner.card.languages), "en")
