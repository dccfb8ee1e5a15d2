"""Write a planned chapter as texts that are cut into pieces, each of one role in one language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from synth.books.book import BlockKind
from synth.books.cast import NARRATOR, Casting, Role
from synth.books.documents.labels import join_titles
from synth.books.plan import PlannedChapter
from synth.books.plan_units import Joint, Unit, units_of
from synth.books.rules import SpeakerNames

SCENE_BREAK = "* * *"
_MAX_HEADING_CHARS = 100
# Why there is a pause where a passage ends, by what the next one begins.
_GAPS = {Joint.PARAGRAPH: "paragraph", Joint.LINE: "line", Joint.SPAN: "speaker"}


@dataclass(frozen=True, slots=True)
class Passage:
    """Hold text of one role in one language, for `synth.text.segments.cut_text`.

    `language` is a tag, or empty if the book names none. `speaker` is the number of the text's
    last `<|speaker:N|>`; the tags themselves are in no text. `gap` names the pause after it.
    """

    text: str
    language: str
    role: Role = NARRATOR
    speaker: int = 0
    gap: str = "paragraph"


def text_of(chapter: PlannedChapter, *, speaker_names: SpeakerNames = SpeakerNames.SAY) -> str:
    """Return what is spoken of a chapter where the narrator speaks all; empty for nothing.

    Headings that follow each other are one paragraph, lines of verse one line each, the end of a
    scene is `* * *`.
    """
    return "\n\n".join(one.text for one in passages_of(chapter, speaker_names=speaker_names))


def passages_of(
    chapter: PlannedChapter,
    casting: Casting | None = None,
    *,
    speaker_names: SpeakerNames = SpeakerNames.SAY,
) -> list[Passage]:
    """Return the chapter's text, cut where its role or language changes, and after headings.

    Args:
        casting: who speaks beside the narrator; without one only the text's own tags say that.
        speaker_names: whether the names of a play's persons without a voice are said.
    """
    writer = _Writer()
    for unit in units_of(chapter, casting or Casting(), speaker_names=speaker_names):
        writer.add(unit)
    return writer.finished()


@dataclass(slots=True)
class _Open:
    """Hold the passage that is being written: lines of each of its paragraphs."""

    unit: Unit  # its first
    paragraphs: list[list[str]]

    @property
    def is_heading(self) -> bool:
        return self.unit.kind is BlockKind.HEADING

    @property
    def ends_scene(self) -> bool:
        return self.paragraphs[-1] == [SCENE_BREAK]

    def is_of(self, unit: Unit) -> bool:
        """Say whether the same voice goes on in the same language."""
        own = self.unit
        return (own.role, own.language, own.speaker) == (unit.role, unit.language, unit.speaker)

    def closed(self, gap: str) -> Passage:
        text = "\n\n".join("\n".join(lines) for lines in self.paragraphs)
        own = self.unit
        return Passage(text, own.language, own.role, own.speaker, gap)


@dataclass(slots=True)
class _Writer:
    _done: list[Passage] = field(default_factory=list)
    _open: _Open | None = None

    def add(self, unit: Unit) -> None:
        """Append a unit."""
        now = self._open
        if unit.kind is BlockKind.BREAK:
            if now is not None and not now.ends_scene:
                now.paragraphs.append([SCENE_BREAK])
            return
        if now is None:
            self._open = _Open(unit, [[unit.text]])
        elif now.is_heading and unit.kind is BlockKind.HEADING and _is_one_heading(now, unit):
            now.paragraphs[-1] = [join_titles([*now.paragraphs[-1], unit.text])]
        elif not now.is_of(unit) or now.is_heading or unit.kind is BlockKind.HEADING:
            gap = "heading" if now.is_heading else _GAPS[unit.joint]
            self._done.append(now.closed("scene" if now.ends_scene else gap))
            self._open = _Open(unit, [[unit.text]])
        else:
            _append(now.paragraphs, unit)

    def finished(self) -> list[Passage]:
        """Return the passages; a scene's end at the very end is none."""
        now, self._open = self._open, None
        if now is not None:
            if now.ends_scene:
                now.paragraphs.pop()
            self._done.append(now.closed("paragraph"))
        return self._done


def _is_one_heading(now: _Open, unit: Unit) -> bool:
    """Say whether a heading is one with the one before it, such as a number and a title."""
    return now.is_of(unit) and not now.ends_scene and _chars(now.paragraphs) <= _MAX_HEADING_CHARS


def _chars(paragraphs: Sequence[Sequence[str]]) -> int:
    return len(paragraphs[-1][0])


def _append(paragraphs: list[list[str]], unit: Unit) -> None:
    """Append a unit to a passage that it belongs to."""
    if unit.joint is Joint.PARAGRAPH or paragraphs[-1] == [SCENE_BREAK]:
        paragraphs.append([unit.text])
    elif unit.joint is Joint.LINE:
        paragraphs[-1].append(unit.text)
    else:
        paragraphs[-1][-1] += f" {unit.text}"
