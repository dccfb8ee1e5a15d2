"""Plan a job: look at all that an order says, and build its rows without writing any.

Segments of a chapter are chained: which earlier ones each is rendered after, where that ends. A
chain has one speaker and at most `LONGEST` segments, so that another text of one changes no take
behind that. One segment in `LONGEST` begins a chain by its own words: where a sentence is put in,
later chains of the new text soon begin where they began in the old one, and have its takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone

from synth.card import Card, CardError, read_card
from synth.jobs.options import OPTIONS
from synth.jobs.orders import Order as Order
from synth.jobs.orders import UrlClips, check_options, speakers_of
from synth.lexicons.book import LexiconBook
from synth.models import RenderJob
from synth.text.languages import WORDS, has_rules
from synth.text.normalise import clean_text
from synth.text.pauses import Pauses
from synth.text.respeaking import SpokenPiece
from synth.text.segments import MAX_SPEAKER, Piece, cut_text
from ttsweb.refusals import SubmitRejectedError
from voices.access import find_voice, speaking_version
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip

LONGEST = 8


class Link(NamedTuple):
    """Hold the index of the first segment of a chain, a place in it, and how many follow there."""

    chain: int
    place: int
    left: int


def links_of(speakers: Sequence[int], seeds: Sequence[int]) -> list[Link]:
    """Return where each segment of a chapter stands.

    Args:
        speakers: of the segments, in order.
        seeds: those that follow from the segments' words, see `segment_seed`.
    """
    chains: list[list[int]] = []
    open_chains: dict[int, list[int]] = {}
    for index, (speaker, seed) in enumerate(zip(speakers, seeds, strict=True)):
        chain = open_chains.get(speaker)
        if chain is None or len(chain) == LONGEST or seed % LONGEST == 0:
            chain = open_chains[speaker] = []
            chains.append(chain)
        chain.append(index)
    links = {
        index: Link(chain[0], place, len(chain) - 1 - place)
        for chain in chains
        for place, index in enumerate(chain)
    }
    return [links[index] for index in range(len(seeds))]


@dataclass(frozen=True, slots=True)
class PlannedChapter:
    """Hold the pieces of a chapter, and who speaks each in the job where that is not the text's.

    A job of one text has one chapter without a title.
    """

    pieces: Sequence[Piece]
    speakers: Sequence[int] = ()
    title: str = ""


@dataclass(frozen=True)
class PlannedJob:
    """Hold a job that may be written: its unsaved row, its chapters, and who speaks them.

    `versions`, `references` and `roles` are by speaker; a speaker is in one of the first two.
    `num_chars` are those that count towards the limit of an API key.
    """

    job: RenderJob
    chapters: Sequence[PlannedChapter] = ()
    versions: Mapping[int, VoiceVersion] = field(default_factory=dict)
    references: Mapping[int, NewClip] = field(default_factory=dict)
    roles: Mapping[int, str] = field(default_factory=dict)
    num_chars: int = 0


_LETTERS_PER_SECOND = 14.0  # read aloud in most alphabets, short pauses included
_FULL_WIDTH = "\u2e80"  # an ideograph, a syllable of Kana or Hangul takes as long as some letters
_LETTERS_OF_FULL_WIDTH = 2.5


@dataclass(frozen=True)
class PlannedText:
    """Hold a text as it was cleaned, the tag of its language, and its pieces as they are spoken."""

    text: str
    language: str
    pieces: list[Piece]
    warnings: Sequence[str] = ()  # for who looks at it before it is spoken

    @property
    def characters(self) -> int:
        return sum(len(piece.spoken_text) for piece in self.pieces)

    @property
    def estimated_seconds(self) -> float:
        """Return about how long the audio would be at a usual pace, pauses included."""
        spoken = "".join(piece.spoken_text for piece in self.pieces)
        wide = sum(character >= _FULL_WIDTH for character in spoken)
        letters = len(spoken) + wide * (_LETTERS_OF_FULL_WIDTH - 1)
        pauses_ms = sum(piece.pause_after_ms for piece in self.pieces)
        return round(letters / _LETTERS_PER_SECOND + pauses_ms / 1000, 1)


class Planner:
    """Plan jobs of one owner, None is the system; what several of them share is looked up once.

    Use one for a request and no longer: what it has found of voices is not looked up again.
    """

    def __init__(self, owner: AbstractBaseUser | None) -> None:
        self.owner = owner
        self._versions: dict[str, VoiceVersion | SubmitRejectedError] = {}
        self._url_clips = UrlClips()
        self._lexicons = LexiconBook(owner)

    @cached_property
    def card(self) -> Card:
        """The checkpoint's card; raises SubmitRejectedError (checkpoint_card_invalid)."""
        try:
            return read_card(settings.CHECKPOINT)
        except CardError as error:
            raise SubmitRejectedError("checkpoint_card_invalid", str(error)) from error

    def plan(self, order: Order) -> PlannedJob:
        """Look at an order and return the job that it makes; nothing is written.

        Raises:
            SubmitRejectedError: text_*, voice_*, speaker_unknown, sample_rate_unfit,
                bit_rate_unfit, deadline_past, url_* (a clip that cannot be fetched), clip_*,
                lexicon_*, pattern_*, find_empty, say_invalid, spoken_too_long,
                history_not_supported, checkpoint_card_invalid.
        """
        check_options(order)
        voices, references = speakers_of(order)
        versions = self.versions_of(voices, order)
        planned = self._plan_text(order, versions, {*versions, *references})
        clips: dict[int, NewClip] = {}
        for speaker, clip in sorted(references.items()):
            attr = "reference" if order.reference else f"references.{speaker}"
            fetched = clip if isinstance(clip, NewClip) else self._url_clips.get(clip, attr)
            clips[speaker] = fetched
        job = self.row(order, planned.text, planned.language, len(planned.pieces))
        chapters = [PlannedChapter(planned.pieces)]
        return PlannedJob(job, chapters, versions, clips, num_chars=len(job.text))

    def preview(self, order: Order) -> PlannedText:
        """Return how an order's text would be spoken; without any voice no voice's lexicon applies.

        Raises:
            SubmitRejectedError: as `plan`, of what concerns text, voices and lexicons.
        """
        voices = speakers_of(order)[0] if order.voice or order.voices else {}
        versions = self.versions_of(voices, order)
        planned = self._plan_text(order, versions, set(versions) or None)
        warnings = []
        if order.normalise and not has_rules(planned.language):
            warnings.append(
                "Numbers are not spelled out: there are no rules for the language "
                f"{planned.language!r}, only for {', '.join(sorted(WORDS))}."
            )
        if not voices:
            warnings.append("No voice is given, so the lexicons of voices are not applied.")
        return replace(planned, warnings=warnings)

    def preview_lexicons(self, order: Order) -> PlannedText:
        """Return what the lexicons and entries of an order alone would change in its text.

        Raises:
            SubmitRejectedError: as `plan`, of what concerns text and lexicons.
        """
        cut, book = self._cut_text(order, {}), self._lexicons
        layers = book.first_layers(order.lexicon, order.lexicons, cut.language)
        pieces = book.speak_by(cut.pieces, layers, max_chars=self.card.segment_chars)
        return replace(cut, pieces=pieces)

    def versions_of(
        self, voices: Mapping[int, Voice | str], order: Order
    ) -> dict[int, VoiceVersion]:
        """Return who speaks, by speaker.

        Raises:
            SubmitRejectedError: voice_not_found, voice_not_ready, voice_failed.
        """
        return {
            speaker: self._version(voice, "voice" if order.voice else f"voices.{speaker}")
            for speaker, voice in sorted(voices.items())
        }

    def _cut_text(self, order: Order, versions: Mapping[int, VoiceVersion]) -> PlannedText:
        """Return an order's text cut into pieces, to which no lexicon is applied yet."""
        voices = [version.voice for _, version in sorted(versions.items())]
        spoken = [voice.language for voice in voices if voice is not None and voice.language]
        language = order.language or next(iter([*spoken, *self.card.languages]), "en")
        text = clean_text(order.text, max_chars=settings.MAX_TEXT_CHARS)
        most, pauses = self.card.segment_chars, Pauses.of(order.pauses)
        pieces = cut_text(text, max_chars=most, language=language, pauses=pauses)
        return PlannedText(text, language, pieces)

    def _plan_text(
        self, order: Order, versions: Mapping[int, VoiceVersion], speakers: set[int] | None
    ) -> PlannedText:
        """Return the text as it is spoken; `speakers` are those who may, None lets all."""
        cut = self._cut_text(order, versions)
        if speakers is not None:
            _check_speakers(cut.pieces, speakers)
        pieces = self._lexicons.speak(
            cut.pieces,
            language=cut.language,
            max_chars=self.card.segment_chars,
            voice_ids={speaker: version.voice_id for speaker, version in versions.items()},
            named=order.lexicons,
            entries=order.lexicon,
            normalise=order.normalise,
            pauses=Pauses.of(order.pauses),
        )
        return replace(cut, pieces=pieces)

    def row(
        self, order: Order, text: str, language: str, num_pieces: int, *, is_book: bool = False
    ) -> RenderJob:
        """Return the unsaved row of a job of so many segments.

        Raises:
            SubmitRejectedError: history_not_supported, checkpoint_card_invalid.
        """
        columns = {one.column: getattr(order, one.column) for one in OPTIONS.values()}
        for one in OPTIONS.values():
            if one.of_card and columns[one.column] is None:
                columns[one.column] = getattr(self.card, one.column)
        columns["live_requested_at"] = timezone.now() if columns.pop("live") else None
        columns["history"] = self.history_of(order, is_book=is_book)
        columns["kind"] = RenderJob.Kind.BOOK if is_book else RenderJob.Kind.SPEECH
        columns |= {"text": text, "language": language, "segments_total": num_pieces}
        columns["owner"] = self.owner  # not its id alone: whoever writes the row would look it up
        return RenderJob(**columns)

    def history_of(self, order: Order, *, is_book: bool) -> int:
        """Return after how many earlier segments those of an order are rendered.

        Raises:
            SubmitRejectedError: history_not_supported, checkpoint_card_invalid.
        """
        if order.history is None:
            return self.card.history if is_book else 0
        if order.history > self.card.history:
            raise SubmitRejectedError(
                "history_not_supported",
                f"The card of the model {self.card.name} allows a history of at most "
                f"{self.card.history}; send that, or leave `history` out.",
                attr="history",
            )
        return order.history

    def _version(self, wanted: Voice | str, attr: str) -> VoiceVersion:
        key = wanted if isinstance(wanted, str) else str(wanted.pk)
        if key not in self._versions:
            try:
                voice = find_voice(self.owner, wanted) if isinstance(wanted, str) else wanted
                self._versions[key] = speaking_version(voice)
            except SubmitRejectedError as error:
                self._versions[key] = error
        found = self._versions[key]
        if isinstance(found, SubmitRejectedError):
            raise found.at(attr)
        return found


def _check_speakers(pieces: list[Piece], known: set[int]) -> None:
    """Refuse a text that names a speaker without a voice: never another one speaks for it."""
    unknown = {piece.speaker for piece in pieces} - known
    if not unknown:
        return
    names, first = ", ".join(map(str, sorted(known))), min(unknown)
    said = f"The text has a tag <|speaker:{first}|>"
    if first == 0:
        said = "The words before the first tag, or after <|speaker:0|>, belong to speaker 0"
    elif first == MAX_SPEAKER:
        said = f"The text names a speaker by a number above {MAX_SPEAKER - 1}"
    raise SubmitRejectedError(
        "speaker_unknown",
        f"{said}, but this job has voices only for speaker {names}. Add a voice in "
        "`voices`, or remove the tag.",
        attr="text",
    )


def changes_of(piece: Piece) -> list[dict[str, object]]:
    """Return what is spoken otherwise in a piece; `start` counts from the start of its text."""
    if not isinstance(piece, SpokenPiece):
        return []
    return [
        {
            "found": piece.text[change.start : change.end],
            "said": change.said,
            "by": change.by,
            "start": change.start,
        }
        for change in piece.changes
    ]
