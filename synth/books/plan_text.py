"""Write a planned chapter as texts, each of one role in one language; tell who speaks how much."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from synth.books.book import Block, BlockKind
from synth.books.dialogue import DialogueReader
from synth.books.documents.labels import join_titles
from synth.books.plan import Plan, PlannedChapter
from synth.books.rules import (
    DIALOGUE,
    NARRATOR,
    Casting,
    Role,
    RoleKind,
    SkipReason,
    SpeakerNames,
    fold_name,
)
from synth.text.languages import base_of
from synth.text.normalise import is_speakable
from synth.text.segments import MAX_SPEAKER
from ttsweb.refusals import counted

# `<|speaker:1|>` is a number of `voices`, `<|speaker:Alice|>` a character of the casting.
TAG = re.compile(r"<\|speaker:([^|<>\n]{1,100})\|>")
_PROSE = frozenset({BlockKind.PARAGRAPH, BlockKind.LIST_ITEM})
_NAME_ENDS = ".:!?"
# What a person of a play does, in the text of what they say.
_DIRECTION = re.compile(r"\[([^\[\]]{1,500})\]")


class Joint(enum.StrEnum):
    """Say how a unit follows the one before it."""

    PARAGRAPH = "paragraph"
    LINE = "line"  # of verse, in the same stanza
    SPAN = "span"  # in the same paragraph


@dataclass(frozen=True, slots=True)
class Unit:
    """Hold a block, or a part of one, that one role speaks.

    `person` is who speaks by a play or a tag, with a voice of their own or without. The end of a
    scene is a unit without text.
    """

    kind: BlockKind
    text: str
    language: str
    role: Role = NARRATOR
    speaker: int = 0
    joint: Joint = Joint.PARAGRAPH
    person: str = ""


@dataclass(frozen=True, slots=True)
class _Turn:
    """Hold what one speaker says in a block; `role` is None where nobody is named."""

    text: str
    role: Role | None = None
    speaker: int = 0
    person: str = ""


def units_of(
    chapter: PlannedChapter, casting: Casting, *, speaker_names: SpeakerNames = SpeakerNames.SAY
) -> Iterator[Unit]:
    """Yield what is spoken of a chapter in order, by role; ends of scenes too."""
    if not chapter.included:
        return
    reader = _Reader(chapter, casting, speaker_names)
    for planned in chapter.blocks:
        if planned.reason is SkipReason.BREAK:
            reader.quotes.interrupt()
            yield Unit(BlockKind.BREAK, "", "")
        elif planned.reason is None:
            yield from reader.units(planned.block)


def persons_of(block: Block) -> Iterator[str]:
    """Yield the names of those who speak in a block, by a play or by tags."""
    if block.kind is BlockKind.SPEECH and block.speaker:
        yield block.speaker
    if "<|" in block.text:
        yield from (name.strip() for name in TAG.findall(block.text) if not _is_number(name))


@dataclass(slots=True)
class _Reader:
    chapter: PlannedChapter
    casting: Casting
    speaker_names: SpeakerNames
    quotes: DialogueReader = field(default_factory=DialogueReader)
    _tagged: _Turn = field(default_factory=lambda: _Turn(""))  # whom the last tag named
    _speaker: str = ""  # of the last speech of a play
    _last: BlockKind | None = None

    def units(self, block: Block) -> Iterator[Unit]:
        language = block.language or self.chapter.language
        joint = Joint.PARAGRAPH
        if block.kind is BlockKind.VERSE and self._last is BlockKind.VERSE:
            joint = Joint.PARAGRAPH if block.is_stanza_start else Joint.LINE
        self._last = block.kind
        for turn in _speakable(self._turns(block, language)):
            role = turn.role or NARRATOR
            yield Unit(block.kind, turn.text, language, role, turn.speaker, joint, turn.person)
            joint = Joint.SPAN

    def _turns(self, block: Block, language: str) -> Iterator[_Turn]:
        """Yield who speaks what of a block; texts may be blank."""
        # The voice of a chapter speaks the chapter's own language.
        is_own = bool(self.chapter.voice) and language == self.chapter.language
        of_language = None if is_own else self.casting.language(language)
        if block.kind is not BlockKind.SPEECH or not block.speaker:
            self._speaker = ""
            for turn in self._by_tags(block.text):
                if turn.role is None and not turn.speaker:
                    yield from self._prose(turn.text, block.kind, language, of_language)
                else:
                    self.quotes.interrupt()
                    yield turn
            return
        self.quotes.interrupt()
        speaker = block.speaker
        role = self.casting.character(speaker)
        is_new = speaker not in {self._speaker, block.text}
        is_named = is_new and role is None and self.speaker_names is SpeakerNames.SAY
        name = f"{speaker}{'' if speaker[-1] in _NAME_ENDS else '.'}" if is_named else ""
        self._speaker = speaker
        text = "".join(turn.text for turn in self._by_tags(block.text))
        if role is None and of_language is None and self.casting.detects_dialogue:
            role = DIALOGUE
        yield _Turn(name, of_language, person=speaker)
        for place, part in enumerate(_DIRECTION.split(text)):
            said_by = of_language if place % 2 else role or of_language
            yield _Turn(part, said_by, person=speaker)

    def _by_tags(self, text: str) -> Iterator[_Turn]:
        """Yield a text's parts by its tags; what a tag says holds until the next one."""
        place = 0
        for tag in TAG.finditer(text) if "<|" in text else ():
            yield replace(self._tagged, text=text[place : tag.start()])
            place = tag.end()
            name = tag[1].strip()
            if _is_number(name):
                number = int(name) if len(name) <= 4 else MAX_SPEAKER
                self._tagged = _Turn("", speaker=number)
            else:
                role = self.casting.character(name) or Role(RoleKind.CHARACTER, name)
                self._tagged = _Turn("", role, person=name)
        yield replace(self._tagged, text=text[place:])

    def _prose(
        self, text: str, kind: BlockKind, language: str, role: Role | None
    ) -> Iterator[_Turn]:
        """Yield what the narrator says of a text, and what the persons in it say."""
        if role is not None or kind not in _PROSE or not self.casting.detects_dialogue:
            self.quotes.interrupt()
            yield _Turn(text, role)
            return
        for span in self.quotes.split(text, language):
            yield _Turn(span.text, DIALOGUE if span.is_dialogue else None)


def _speakable(turns: Iterator[_Turn]) -> list[_Turn]:
    """Return turns that can be spoken; others join the one before, or else the one after."""
    kept: list[_Turn] = []
    waiting = ""
    for turn in turns:
        text = turn.text.strip()
        if is_speakable(text):
            kept.append(replace(turn, text=f"{waiting} {text}".strip()))
            waiting = ""
        elif kept and text:
            kept[-1] = replace(kept[-1], text=f"{kept[-1].text} {text}")
        else:
            waiting = f"{waiting} {text}".strip()
    return kept


def _is_number(name: str) -> bool:
    return name.strip().isdecimal()


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
    passages: list[Passage] = []
    first: Unit | None = None  # of the passage that is open
    paragraphs: list[list[str]] = []  # their lines

    def close(gap: str) -> None:
        if first is not None:
            text = "\n\n".join("\n".join(lines) for lines in paragraphs)
            passages.append(Passage(text, first.language, first.role, first.speaker, gap))

    for unit in units_of(chapter, casting or Casting(), speaker_names=speaker_names):
        ends_scene = paragraphs[-1:] == [[SCENE_BREAK]]
        if unit.kind is BlockKind.BREAK:
            if first is not None and not ends_scene:
                paragraphs.append([SCENE_BREAK])
            continue
        is_heading = unit.kind is BlockKind.HEADING
        was_heading = first is not None and first.kind is BlockKind.HEADING
        goes_on = first is not None and _voice_of(first) == _voice_of(unit)
        # A heading may be one with the one before it, such as a number and a title.
        is_title = is_heading and was_heading and goes_on and not ends_scene
        if is_title and len(paragraphs[-1][0]) <= _MAX_HEADING_CHARS:
            paragraphs[-1] = [join_titles([*paragraphs[-1], unit.text])]
        elif not goes_on or is_heading or was_heading:
            gap = "heading" if was_heading else _GAPS[unit.joint]
            close("scene" if ends_scene else gap)
            first, paragraphs = unit, [[unit.text]]
        elif unit.joint is Joint.PARAGRAPH or ends_scene:
            paragraphs.append([unit.text])
        elif unit.joint is Joint.LINE:
            paragraphs[-1].append(unit.text)
        else:
            paragraphs[-1][-1] += f" {unit.text}"
    if paragraphs[-1:] == [[SCENE_BREAK]]:  # at the very end it is none
        paragraphs.pop()
    close("paragraph")
    return passages


def _voice_of(unit: Unit) -> tuple[Role, str, int]:
    return unit.role, unit.language, unit.speaker


MAX_CHARACTERS_TOLD = 500
_EXAMPLE_CHARS = 80


@dataclass(slots=True)
class _Person:
    """Count what a character says."""

    name: str  # as it is written first
    voice: str = ""
    speeches: int = 0
    characters: int = 0
    example: str = ""


@dataclass(slots=True)
class _CastCounts:
    characters: int = 0
    dialogue: int = 0
    persons: dict[str, _Person] = field(default_factory=dict)
    languages: Counter[str] = field(default_factory=Counter)
    by_language_voice: Counter[str] = field(default_factory=Counter)
    _last: str = ""

    def share_of(self, count: int) -> float:
        return round(count / self.characters, 4) if self.characters else 0.0

    def add(self, unit: Unit, casting: Casting) -> None:
        chars = len(unit.text)
        self.characters += chars
        self.languages[unit.language] += chars
        if unit.role.kind is RoleKind.DIALOGUE:
            self.dialogue += chars
        if unit.role.kind is RoleKind.LANGUAGE:
            self.by_language_voice[unit.language] += chars
        key = fold_name(unit.person)
        if key:
            person = self.persons.setdefault(key, _Person(unit.person))
            role = casting.character(unit.person)
            person.voice = casting.characters[role.name] if role else ""
            person.speeches += key != self._last
            person.characters += chars
            if len(person.example) < min(chars, _EXAMPLE_CHARS // 4):
                person.example = unit.text[:_EXAMPLE_CHARS]
        self._last = key


def cast_report(plan: Plan, casting: Casting) -> dict[str, Any]:
    """Return who speaks how much of what is included, as what `json.dumps` takes.

    `characters` are those of plays and of the text's tags, who speaks most first; `voice` is empty
    where they have none of their own. `dialogue` is None where it is not looked for.
    """
    counts = _CastCounts()
    for chapter in plan.included:
        for unit in units_of(chapter, casting, speaker_names=plan.rules.speaker_names):
            if unit.text:
                counts.add(unit, casting)
    persons = sorted(counts.persons.values(), key=lambda one: (-one.characters, one.name))
    languages = []
    for language, count in counts.languages.most_common():
        role = casting.language(language) if counts.by_language_voice[language] else None
        languages.append(
            {
                "language": language,
                "characters": count,
                "share": counts.share_of(count),
                "voice": casting.languages[role.name] if role else "",
            }
        )
    dialogue = {"characters": counts.dialogue, "share": counts.share_of(counts.dialogue)}
    return {
        "characters": list(map(asdict, persons[:MAX_CHARACTERS_TOLD])),
        "languages": languages,
        "dialogue": dialogue if casting.detects_dialogue else None,
        "warnings": list(_warnings(plan, casting, counts)),
    }


def unknown_characters(plan: Plan, casting: Casting) -> list[str]:
    """Return the characters of a casting who say nothing anywhere in the book."""
    if not casting.characters:
        return []
    blocks = (planned.block for chapter in plan.chapters for planned in chapter.blocks)
    known = {fold_name(name) for block in blocks for name in persons_of(block)}
    return [name for name in casting.characters if fold_name(name) not in known]


def _warnings(plan: Plan, casting: Casting, counts: _CastCounts) -> Iterable[str]:
    own = base_of(plan.metadata.language.replace("_", "-"))
    for language, count in counts.languages.most_common():
        is_other = bool(language and own) and base_of(language.replace("_", "-")) != own
        if is_other and not counts.by_language_voice[language]:
            yield (
                f"The narrator speaks {counted(count, 'character')} in the language "
                f"{language}; choose a voice for it in the casting's `languages`."
            )
    for tag in casting.languages:
        if not any(Casting(languages={tag: "-"}).language(one) for one in counts.languages):
            yield f"The language {tag} has a voice, but none of the spoken text is in it."
    if casting.detects_dialogue and not counts.dialogue:
        yield "No dialogue was found, so the narrator speaks everything."
    for name in unknown_characters(plan, casting):
        yield f"The character {name!r} has a voice, but does not speak in this book."
