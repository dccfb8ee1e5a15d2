from __future__ import annotations

from typing import Any

import pytest

from synth.books.epub.reader import read_epub
from synth.books.plan import Plan, plan_book
from synth.books.plan_edits import PlanEditError, apply_edits
from synth.books.plan_text import text_of
from synth.books.rules import SkipReason
from tests.synth.books.documents import PROSE, Epub, page

NAMES = ["titlepage", "c1", "c2", "c3"]


@pytest.fixture
def plan() -> Plan:
    pages = {
        f"{n}.xhtml": page(f'<section epub:type="{n}"><h2>{n}</h2><p>{PROSE * 40}</p></section>')
        for n in NAMES
    }
    return plan_book(read_epub(Epub(pages, nav=[(n, f"{n}.xhtml") for n in NAMES]).bytes()))


def ids(plan: Plan) -> list[str]:
    return [chapter.id for chapter in plan.chapters]


def refusal(plan: Plan, edit: Any) -> str:
    with pytest.raises(PlanEditError) as caught:
        apply_edits(plan, [edit])
    assert caught.value.message.startswith("Edit 1: ")
    return caught.value.code


def test_one_block_of_a_chapter_that_is_left_out_is_spoken_alone(plan: Plan) -> None:
    chapter = plan.chapters[0]
    assert not chapter.included

    one = apply_edits(plan, [{"edit": "include", "chapter": chapter.id, "block": 0}])

    assert [block.text for block in one.chapters[0].spoken()] == ["titlepage"]
    assert one.skipped()[SkipReason.TITLE_PAGE] == chapter.source_chars - len("titlepage")


def test_all_that_is_left_out_for_a_reason_is_spoken_and_left_out_again(plan: Plan) -> None:
    all_of_it = apply_edits(plan, [{"edit": "include", "reason": "title_page"}])
    assert all_of_it.chapters[0].included

    again = apply_edits(all_of_it, [{"edit": "exclude", "reason": "title_page"}])

    assert again.skipped() == plan.skipped()


def test_a_chapter_is_left_out_and_taken_in_again(plan: Plan) -> None:
    chapter = ids(plan)[1]

    out = apply_edits(plan, [{"edit": "exclude", "chapter": chapter}])

    assert len(out.included) == 2
    assert out.skipped()[SkipReason.EXCLUDED] == plan.chapters[1].source_chars
    assert text_of(out.chapters[1]) == ""
    assert len(apply_edits(out, [{"edit": "include", "chapter": chapter}]).included) == 3


def test_a_title_page_can_be_spoken(plan: Plan) -> None:
    spoken = apply_edits(plan, [{"edit": "include", "chapter": ids(plan)[0]}])

    assert spoken.included[0].title == "titlepage"
    assert SkipReason.TITLE_PAGE not in spoken.skipped()


def test_chapters_that_follow_each_other_merge(plan: Plan) -> None:
    merged = apply_edits(plan, [{"edit": "merge", "chapters": ids(plan)[1:3]}])

    assert ids(merged) == [ids(plan)[0], ids(plan)[1], ids(plan)[3]]
    assert merged.spoken_source_chars == plan.spoken_source_chars


def test_a_chapter_is_split_at_a_block_and_ids_stay_apart(plan: Plan) -> None:
    chapter = ids(plan)[1]
    edits: list[dict[str, Any]] = [
        {"edit": "merge", "chapters": ids(plan)[1:]},
        {"edit": "split", "chapter": chapter, "block": 4},
        {"edit": "split", "chapter": chapter, "block": 2, "title": "Middle"},
    ]

    split = apply_edits(plan, edits)

    assert [c.title for c in split.chapters] == ["titlepage", "c1", "Middle", "c3"]
    assert len(set(ids(split))) == 4
    assert ids(split)[1] == chapter
    assert split.spoken_source_chars == plan.spoken_source_chars


def test_order_title_voice_and_language_are_set(plan: Plan) -> None:
    first, *others = ids(plan)

    edited = apply_edits(
        plan,
        [
            {"edit": "reorder", "chapters": [*others, first]},
            {"edit": "rename", "chapter": first, "title": "  New \n title "},
            {"edit": "voice", "chapter": first, "voice": "anna"},
            {"edit": "language", "chapter": first, "language": "pt-br"},
        ],
    )

    last = edited.chapters[-1]
    assert (last.id, last.title, last.voice, last.language) == (first, "New title", "anna", "pt-BR")
    assert plan.chapters[0].title == "titlepage"  # an edit makes another plan


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        ({"edit": "include", "chapter": "nobody"}, "chapter_unknown"),
        ({"edit": "rename", "chapter": "{1}", "title": " "}, "title_invalid"),
        ({"edit": "rename", "chapter": "{1}", "title": "\ud800"}, "title_invalid"),
        ({"edit": "rename", "chapter": "{1}", "title": "a\0b"}, "title_invalid"),
        ({"edit": "rename", "chapter": "{1}", "title": "x" * 201}, "title_invalid"),
        ({"edit": "merge", "chapters": ["{1}"]}, "merge_too_few"),
        ({"edit": "merge", "chapters": ["{1}", "{3}"]}, "merge_not_adjacent"),
        ({"edit": "merge", "chapters": ["{1}", "{1}"]}, "merge_not_adjacent"),
        ({"edit": "merge", "chapters": ["{0}", "{1}"]}, "merge_mixed"),
        ({"edit": "split", "chapter": "{1}", "block": 0}, "split_invalid"),
        ({"edit": "split", "chapter": "{1}", "block": 10**30}, "split_invalid"),
        ({"edit": "reorder", "chapters": ["{1}"]}, "order_incomplete"),
        ({"edit": "reorder", "chapters": ["{0}", "{1}", "{2}", "{2}"]}, "order_incomplete"),
        ({"edit": "voice", "chapter": "{1}", "voice": "x" * 101}, "voice_invalid"),
        ({"edit": "language", "chapter": "{1}", "language": "klingon!"}, "language_invalid"),
        ({"edit": "split", "chapter": "{1}", "block": True}, "edit_invalid"),
        ({"edit": "split", "chapter": "{1}", "block": "2"}, "edit_invalid"),
        ({"edit": "merge", "chapters": [1, 2]}, "edit_invalid"),
        ({"edit": "merge", "chapters": "ab"}, "edit_invalid"),
        ({"edit": "include", "chapter": ["a"]}, "edit_invalid"),
        ({"edit": "include", "chapter": "{1}", "more": 1}, "edit_invalid"),
        ({"edit": "include"}, "edit_invalid"),
        ({"edit": "exclude", "chapter": ""}, "edit_invalid"),
        ({"edit": "exclude", "block": 1}, "edit_invalid"),
        ({"edit": "include", "chapter": "{1}", "block": 2}, "block_unknown"),
        ({"edit": "exclude", "chapter": "{1}", "block": -1}, "block_unknown"),
        ({"edit": "include", "chapter": "{1}", "block": 1, "reason": "note"}, "edit_invalid"),
        ({"edit": "include", "reason": "boredom"}, "edit_invalid"),
        ({"edit": "include", "chapter": "c", "reason": "note"}, "chapter_unknown"),
        ({"edit": ["include"]}, "edit_invalid"),
        ({"edit": "explode"}, "edit_invalid"),
        ("include", "edit_invalid"),
        (None, "edit_invalid"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why(plan: Plan, edit: Any, code: str) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        return value.format(*ids(plan)) if isinstance(value, str) else value

    shown = {k: filled(v) for k, v in edit.items()} if isinstance(edit, dict) else edit

    assert refusal(plan, shown) == code


def test_a_chapter_without_words_cannot_be_taken_in() -> None:
    pages = {"a.xhtml": page(f"<p>{PROSE}</p>"), "b.xhtml": page("<p>…</p>")}
    plan = plan_book(read_epub(Epub(pages, nav=[("A", "a.xhtml"), ("B", "b.xhtml")]).bytes()))

    assert refusal(plan, {"edit": "include", "chapter": ids(plan)[1]}) == "chapter_empty"
