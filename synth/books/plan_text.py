"""Write a planned chapter as the text that is cut into pieces: paragraphs parted by blank lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from synth.books.book import Block, BlockKind
from synth.books.labels import join_titles
from synth.books.plan import PlannedChapter
from synth.books.rules import SkipReason, SpeakerNames

SCENE_BREAK = "* * *"
_MAX_HEADING_CHARS = 100
_NAME_ENDS = ".:!?"


@dataclass(frozen=True, slots=True)
class Passage:
    """Hold text in one language; `language` is a tag, or empty if the book names none."""

    text: str
    language: str


def text_of(
    chapter: PlannedChapter,
    *,
    speakers: Mapping[str, int] | None = None,
    speaker_names: SpeakerNames = SpeakerNames.SAY,
) -> str:
    """Return what is spoken of a chapter, for `synth.text.segments.cut_text`.

    Headings that follow each other are one paragraph, lines of verse one line each, the end of a
    scene is `* * *`. The text is empty where nothing is spoken.

    Args:
        speakers: numbers of voices by the names of a play's persons; their speeches get
            `<|speaker:N|>` tags instead of names, and all else speaker 0.
        speaker_names: whether names without a number are said.
    """
    passages = passages_of(chapter, speakers=speakers, speaker_names=speaker_names)
    return "\n\n".join(passage.text for passage in passages)


def passages_of(
    chapter: PlannedChapter,
    *,
    speakers: Mapping[str, int] | None = None,
    speaker_names: SpeakerNames = SpeakerNames.SAY,
) -> list[Passage]:
    """Return the chapter's text, cut where the language changes; arguments as of `text_of`."""
    writer = _Writer(speakers or {}, speaker_names)
    for block, language in _spoken(chapter):
        writer.add(block, language)
    return writer.finished()


def _spoken(chapter: PlannedChapter) -> Iterator[tuple[Block, str]]:
    """Yield the blocks with their languages; the ends of scenes too, though they are not spoken."""
    if not chapter.included:
        return
    for planned in chapter.blocks:
        is_break = planned.reason is SkipReason.BREAK
        if planned.reason is None or is_break:
            yield planned.block, planned.block.language or chapter.language


@dataclass(slots=True)
class _Writer:
    speakers: Mapping[str, int]
    speaker_names: SpeakerNames
    _done: list[Passage] = field(default_factory=list)
    _paragraphs: list[list[str]] = field(default_factory=list)  # lines of each
    _language: str = ""
    _speaker: str = ""  # who spoke last
    _number: int = 0
    _last: BlockKind | None = None

    def add(self, block: Block, language: str) -> None:
        """Append a block."""
        if block.kind is BlockKind.BREAK:
            if self._last not in {None, BlockKind.BREAK}:
                self._paragraphs.append([SCENE_BREAK])
                self._last = block.kind
            return
        if self._paragraphs and language != self._language:
            self._end_passage()
        self._language = language
        text = self._said(block)
        if block.kind is BlockKind.HEADING and self._goes_on_heading():
            self._paragraphs[-1] = [join_titles([*self._paragraphs[-1], text])]
        elif (
            block.kind is BlockKind.VERSE
            and self._last is BlockKind.VERSE
            and self._paragraphs
            and not block.is_stanza_start
        ):
            self._paragraphs[-1].append(text)
        else:
            self._paragraphs.append([text])
        self._last = block.kind

    def _goes_on_heading(self) -> bool:
        """Say whether a heading is one with the one before it, such as a number and a title."""
        if self._last is not BlockKind.HEADING or not self._paragraphs:
            return False
        return len(self._paragraphs[-1][0]) <= _MAX_HEADING_CHARS

    def _said(self, block: Block) -> str:
        """Return a block's text with the name or the tag of who speaks."""
        speaker = block.speaker if block.kind is BlockKind.SPEECH else ""
        number = self.speakers.get(speaker, 0)
        text = block.text
        is_named = speaker not in {"", self._speaker, text} and speaker not in self.speakers
        if is_named and self.speaker_names is SpeakerNames.SAY:
            text = f"{speaker}{'' if speaker[-1] in _NAME_ENDS else '.'} {text}"
        self._speaker = speaker
        if number != self._number:
            self._number = number
            return f"<|speaker:{number}|>{text}"
        return text

    def _end_passage(self) -> None:
        text = "\n\n".join("\n".join(lines) for lines in self._paragraphs)
        if text:
            self._done.append(Passage(text, self._language))
        self._paragraphs = []

    def finished(self) -> list[Passage]:
        """Return the passages; a scene's end at the very end is none."""
        while self._paragraphs and self._paragraphs[-1] == [SCENE_BREAK]:
            self._paragraphs.pop()
        self._end_passage()
        return self._done
