"""Who speaks what of a plan: tags, characters, languages, dialogue; and what the plan tells."""

# ruff: noqa: RUF001  # quotation marks are what some of these texts are about

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from synth.books.book import Block, BlockKind, Book, Document, Metadata, TocEntry, count_chars
from synth.books.plan import Plan, PlannedChapter, plan_book
from synth.books.plan_text import cast_report, passages_of, unknown_characters
from synth.books.rules import Casting, SpeakerNames


def block(text: str, kind: BlockKind = BlockKind.PARAGRAPH, **fields: Any) -> Block:
    return Block(kind, text, count_chars(text), **fields)


def speech(speaker: str, text: str) -> Block:
    return block(text, BlockKind.SPEECH, speaker=speaker)


def plan_of(*blocks: Block) -> Plan:
    heading = block("One", BlockKind.HEADING, level=1)
    total = sum(one.source_chars for one in (heading, *blocks))
    document = Document("a.xhtml", (heading, *blocks), total, role="chapter", language="en")
    toc = (TocEntry("One", "a.xhtml"),)
    return plan_book(Book(Metadata(title="T", language="en"), (document,), toc))


def chapter_of(*blocks: Block) -> PlannedChapter:
    return plan_of(*blocks).chapters[0]


def shown(chapter: PlannedChapter, casting: Casting | None = None, **rules: Any) -> list[str]:
    """Return "who: what" of each passage but the heading; a tag's speaker is 1 or more."""
    heading, *others = passages_of(chapter, casting, **rules)
    assert (heading.text, heading.speaker) == ("One", 0)
    return [f"{one.role.label}{one.speaker or ''}: {one.text}" for one in others]


DIALOGUE = Casting(dialogue_voice="Dia")
SPANISH = Casting(languages={"pt": "P", "pt-BR": "B", "en": "E"})
PLAY = (block("A room."), speech("ANN", "Good day."), speech("BEN", "Well?"))
BREAK = block("", BlockKind.BREAK)
SAID: dict[str, tuple[Casting | None, tuple[Block, ...], list[str]]] = {
    "dialogue": (DIALOGUE, (block("“Come,” said Ann. She sat."), block("It rained."),
        block("“Go!”")), ["dialogue: “Come,”", "narrator: said Ann. She sat.\n\nIt rained.",
        "dialogue: “Go!”"]),
    "no_casting": (None, (block("“Come,” said Ann."), block("Bonjour.", language="fr")),
        ["narrator: “Come,” said Ann.", "narrator: Bonjour."]),
    "verse_and_languages": (Casting(dialogue_voice="Dia", languages={"fr": "Fra"}), (
        block("“I sing,” he sang,", BlockKind.VERSE, is_stanza_start=True),
        block("« Viens, dit-elle, viens. »", language="fr-CA"),
        block("“What a Day”", BlockKind.HEADING, level=2)), ["narrator: “I sing,” he sang,",
        "fr: « Viens, dit-elle, viens. »", "narrator: “What a Day”"]),
    "play": (Casting(characters={"Ann.": "A"}), PLAY, ["narrator: A room.", "Ann.: Good day.",
        "narrator: BEN. Well?"]),
    "play_and_dialogue": (Casting(dialogue_voice="D", characters={"ann": "A"}), PLAY,
        ["narrator: A room.", "ann: Good day.", "narrator: BEN.", "dialogue: Well?"]),
    "tags": (Casting(dialogue_voice="D", characters={"ANN": "A"}), (
        block("Then <|speaker:Ann|>I came."), block("I saw."), block("<|speaker:1|>And I?"),
        block("<|speaker:0|>“Both,” he said.")), ["narrator: Then", "ANN: I came.\n\nI saw.",
        "narrator1: And I?", "dialogue: “Both,”", "narrator: he said."]),
    "tag_alone": (Casting(characters={"Ann": "A"}), (block("<|speaker:Ann|>"), block("I came.")),
        ["Ann: I came."]),
    "scene": (DIALOGUE, (block("He left."), BREAK, block("“Hello there,” she said.")),
        ["narrator: He left.\n\n* * *", "dialogue: “Hello there,”", "narrator: she said."]),
    "directions": (Casting(characters={"Anne": "Cleo"}),
        (speech("ANNE", "[Kneels.] My lord! [To Ben.] Go."),),
        ["narrator: Kneels.", "Anne: My lord!", "narrator: To Ben.", "Anne: Go."]),
    "directions_alone": (None, (speech("ANNE", "[Kneels.] My lord! [To Ben.] Go."),),
        ["narrator: ANNE. Kneels. My lord! To Ben. Go."]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_each_part_of_a_chapter_is_spoken_by_whom_the_casting_says(name: str) -> None:
    casting, blocks, passages = SAID[name]
    assert shown(chapter_of(*blocks), casting) == passages
    assert passages_of(chapter_of(*blocks), casting)[0].role.label == "narrator"


@pytest.mark.parametrize(
    ("name", "gaps"),
    [("dialogue", "heading speaker paragraph paragraph"), ("scene", "heading scene speaker "
      "paragraph")],
)  # fmt: skip
def test_pauses_say_why_they_are_there(name: str, gaps: str) -> None:
    casting, blocks, _ = SAID[name]
    assert [one.gap for one in passages_of(chapter_of(*blocks), casting)] == gaps.split()


def test_longest_tag_speaks_a_language_and_a_chapters_own_voice_its_language() -> None:
    chapter = chapter_of(
        block("Olá.", language="pt-BR"), block("Oi.", language="pt"), block("Good.")
    )
    roles = ["pt-BR: Olá.", "pt: Oi."]
    assert shown(chapter, SPANISH) == [*roles, "en: Good."]
    assert shown(replace(chapter, voice="X"), SPANISH) == [*roles, "narrator: Good."]


def test_names_that_the_rule_leaves_out_are_not_said_before_dialogue() -> None:
    chapter = chapter_of(speech("BEN", "Well?"))
    assert shown(chapter, DIALOGUE, speaker_names=SpeakerNames.SKIP) == ["dialogue: Well?"]


def test_plan_tells_characters_languages_and_dialogue() -> None:
    plan = plan_of(
        speech("ANN", "Good day to you."),
        speech("ANN", "And more."),
        speech("Ben", "Well?"),
        block("<|speaker:Cyd|>Bonjour à tous.", language="fr"),
        block("<|speaker:0|>“Come here,” he said."),
    )
    answer = cast_report(plan, Casting(dialogue_voice="D", characters={"Ann": "A"}))

    names = [(one["name"], one["voice"], one["speeches"]) for one in answer["characters"]]
    assert names == [("ANN", "A", 1), ("Cyd", "", 1), ("Ben", "", 1)]
    assert answer["characters"][0]["example"].startswith("Good day")
    assert [one["language"] for one in answer["languages"]] == ["en", "fr"]
    assert sum(one["share"] for one in answer["languages"]) > 0.99
    assert answer["dialogue"]["characters"] == len("“Come here,”") + len("Well?")
    assert any("narrator speaks" in one and "language fr" in one for one in answer["warnings"])
    assert cast_report(plan, Casting())["dialogue"] is None


def test_characters_who_say_nothing_and_languages_without_text_are_told() -> None:
    plan = plan_of(speech("ANN", "Hello, all."))
    casting = Casting(characters={"ann": "A", "Zoe": "Z"}, languages={"de": "G"})
    assert unknown_characters(plan, casting) == ["Zoe"]
    warnings = " ".join(cast_report(plan, casting)["warnings"])
    assert "'Zoe'" in warnings
    assert "language de" in warnings


def test_every_character_of_prose_is_in_one_passage() -> None:
    text = "“One,” he said, “two – «three» ‘four’.” – “…” ‘Five’ and “six” (seven)."
    chapter = chapter_of(*(block(f"{text} {n}") for n in range(20)))
    for casting in (Casting(), DIALOGUE):
        said = "".join(one.text for one in passages_of(chapter, casting)[1:])
        assert count_chars(said) == sum(count_chars(f"{text} {n}") for n in range(20))
