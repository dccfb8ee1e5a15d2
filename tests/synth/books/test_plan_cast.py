"""Who speaks what of a plan: tags, characters, languages, dialogue; and what the plan tells."""

# ruff: noqa: RUF001  # quotation marks are what some of these texts are about

from __future__ import annotations

from dataclasses import replace
from typing import Any

from synth.books.book import Block, BlockKind, Book, Document, Metadata, TocEntry, count_chars
from synth.books.cast import Casting
from synth.books.plan import Plan, PlannedChapter, plan_book
from synth.books.plan_cast import cast_report, unknown_characters
from synth.books.plan_text import Passage, passages_of
from synth.books.rules import SpeakerNames


def block(text: str, kind: BlockKind = BlockKind.PARAGRAPH, **fields: Any) -> Block:
    return Block(kind, text, count_chars(text), **fields)


def plan_of(*blocks: Block, language: str = "en") -> Plan:
    heading = block("One", BlockKind.HEADING, level=1)
    total = sum(one.source_chars for one in (heading, *blocks))
    document = Document("a.xhtml", (heading, *blocks), total, role="chapter", language=language)
    toc = (TocEntry("One", "a.xhtml"),)
    return plan_book(Book(Metadata(title="T", language=language), (document,), toc))


def chapter_of(*blocks: Block, language: str = "en") -> PlannedChapter:
    return plan_of(*blocks, language=language).chapters[0]


def shown(passages: list[Passage]) -> list[tuple[str, str]]:
    """Return who speaks what, without the heading."""
    return [(one.role.label, one.text) for one in passages[1:]]


DIALOGUE = Casting(dialogue_voice="Dia")


def test_dialogue_is_a_passage_of_its_own_and_pauses_say_why_they_are_there() -> None:
    chapter = chapter_of(block("“Come,” said Ann. She sat."), block("It rained."), block("“Go!”"))

    passages = passages_of(chapter, DIALOGUE)

    assert shown(passages) == [
        ("dialogue", "“Come,”"),
        ("narrator", "said Ann. She sat.\n\nIt rained."),
        ("dialogue", "“Go!”"),
    ]
    assert [one.gap for one in passages] == ["heading", "speaker", "paragraph", "paragraph"]


def test_without_a_casting_the_narrator_speaks_all() -> None:
    chapter = chapter_of(block("“Come,” said Ann."), block("Bonjour.", language="fr"))

    assert {one.role.label for one in passages_of(chapter)} == {"narrator"}


def test_dialogue_in_headings_verse_and_other_languages_is_not_looked_for() -> None:
    casting = Casting(dialogue_voice="Dia", languages={"fr": "Fra"})
    chapter = chapter_of(
        block("“I sing,” he sang,", BlockKind.VERSE, is_stanza_start=True),
        block("« Viens, dit-elle, viens. »", language="fr-CA"),
        block("“What a Day”", BlockKind.HEADING, level=2),
    )

    assert shown(passages_of(chapter, casting)) == [
        ("narrator", "“I sing,” he sang,"),
        ("fr", "« Viens, dit-elle, viens. »"),
        ("narrator", "“What a Day”"),
    ]


def test_longest_tag_speaks_a_language_and_a_chapters_own_voice_its_language() -> None:
    casting = Casting(languages={"pt": "P", "pt-BR": "B", "en": "E"})
    chapter = chapter_of(
        block("Olá.", language="pt-BR"), block("Oi.", language="pt"), block("Good.")
    )

    plain = [one.role.label for one in passages_of(chapter, casting)]
    own = [one.role.label for one in passages_of(replace(chapter, voice="X"), casting)]

    assert plain == ["en", "pt-BR", "pt", "en"]
    assert own == ["narrator", "pt-BR", "pt", "narrator"]


def test_persons_of_a_play_speak_themselves_and_their_names_are_not_said() -> None:
    chapter = chapter_of(
        block("A room.", BlockKind.PARAGRAPH),
        block("Good day.", BlockKind.SPEECH, speaker="ANN"),
        block("Well?", BlockKind.SPEECH, speaker="BEN"),
    )

    some = shown(passages_of(chapter, Casting(characters={"Ann.": "A"})))
    both = shown(passages_of(chapter, Casting(dialogue_voice="D", characters={"ann": "A"})))

    assert some == [("narrator", "A room."), ("Ann.", "Good day."), ("narrator", "BEN. Well?")]
    assert both == [
        ("narrator", "A room."),
        ("ann", "Good day."),
        ("narrator", "BEN."),
        ("dialogue", "Well?"),
    ]


def test_names_that_the_rule_leaves_out_are_not_said_before_dialogue() -> None:
    chapter = chapter_of(block("Well?", BlockKind.SPEECH, speaker="BEN"))

    passages = passages_of(chapter, DIALOGUE, speaker_names=SpeakerNames.SKIP)

    assert shown(passages) == [("dialogue", "Well?")]


def test_tags_hold_until_the_next_one_over_paragraphs_and_are_no_text() -> None:
    chapter = chapter_of(
        block("Then <|speaker:Ann|>I came."),
        block("I saw."),
        block("<|speaker:1|>And I?"),
        block("<|speaker:0|>“Both,” he said."),
    )

    passages = passages_of(chapter, Casting(dialogue_voice="D", characters={"ANN": "A"}))

    assert [(one.role.label, one.speaker, one.text) for one in passages[1:]] == [
        ("narrator", 0, "Then"),
        ("ANN", 0, "I came.\n\nI saw."),
        ("narrator", 1, "And I?"),
        ("dialogue", 0, "“Both,”"),
        ("narrator", 0, "he said."),
    ]


def test_paragraph_of_a_tag_alone_says_who_speaks_what_follows() -> None:
    chapter = chapter_of(block("<|speaker:Ann|>"), block("I came."))

    passages = passages_of(chapter, Casting(characters={"Ann": "A"}))

    assert shown(passages) == [("Ann", "I came.")]


def test_end_of_a_scene_is_one_wherever_a_passage_ends() -> None:
    chapter = chapter_of(
        block("He left."), block("", BlockKind.BREAK), block("“Hello there,” she said.")
    )

    passages = passages_of(chapter, DIALOGUE)

    assert [one.gap for one in passages] == ["heading", "scene", "speaker", "paragraph"]
    assert passages[1].text == "He left.\n\n* * *"


def test_plan_tells_characters_languages_and_dialogue() -> None:
    plan = plan_of(
        block("Good day to you.", BlockKind.SPEECH, speaker="ANN"),
        block("And more.", BlockKind.SPEECH, speaker="ANN"),
        block("Well?", BlockKind.SPEECH, speaker="Ben"),
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
    plan = plan_of(block("Hello, all.", BlockKind.SPEECH, speaker="ANN"))
    casting = Casting(characters={"ann": "A", "Zoe": "Z"}, languages={"de": "G"})

    assert unknown_characters(plan, casting) == ["Zoe"]
    warnings = cast_report(plan, casting)["warnings"]
    assert any("'Zoe'" in one for one in warnings)
    assert any("language de" in one for one in warnings)


def test_every_character_of_prose_is_in_one_passage() -> None:
    text = "“One,” he said, “two – «three» ‘four’.” – “…” ‘Five’ and “six” (seven)."
    chapter = chapter_of(*(block(f"{text} {n}") for n in range(20)))

    for casting in (Casting(), DIALOGUE):
        said = "".join(one.text for one in passages_of(chapter, casting)[1:])
        assert count_chars(said) == sum(count_chars(f"{text} {n}") for n in range(20))


def test_directions_in_a_speech_are_the_narrators() -> None:
    speech = block("[Kneels.] My lord! [To Ben.] Go.", BlockKind.SPEECH, speaker="ANNE")
    chapter = chapter_of(speech)

    cast = passages_of(chapter, Casting(characters={"Anne": "Cleo"}))
    alone = passages_of(chapter)

    assert shown(cast) == [
        ("narrator", "Kneels."),
        ("Anne", "My lord!"),
        ("narrator", "To Ben."),
        ("Anne", "Go."),
    ]
    assert shown(alone) == [("narrator", "ANNE. Kneels. My lord! To Ben. Go.")]
