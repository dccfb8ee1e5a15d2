"""Tell who could speak what of a plan: its characters, its languages, how much is dialogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from synth.books.cast import Casting, RoleKind, fold_name
from synth.books.plan import Plan
from synth.books.plan_text import Unit, persons_of, units_of
from synth.text.languages import base_of
from ttsweb.counted import counted

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
