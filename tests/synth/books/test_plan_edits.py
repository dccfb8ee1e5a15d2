from __future__ import annotations

from typing import Any

import pytest

from synth.books.plan import Plan
from synth.books.plan_edits import PlanEditError, apply_edits
from synth.books.plan_text import text_of
from synth.books.rules import SkipReason
from tests.synth.books.documents import PROSE, Epub, page, plan_of, titles

NAMES = ["titlepage", "c1", "c2", "c3"]


@pytest.fixture(scope="module")
def plan() -> Plan:
    pages = {
        f"{n}.xhtml": page(f'<section epub:type="{n}"><h2>{n}</h2><p>{PROSE * 40}</p></section>')
        for n in NAMES
    }
    return plan_of(Epub(pages, nav=[(n, f"{n}.xhtml") for n in NAMES]))


def ids(plan: Plan) -> list[str]:
    return [chapter.id for chapter in plan.chapters]


def edited(plan: Plan, edit: str, **fields: Any) -> Plan:
    return apply_edits(plan, [{"edit": edit, **fields}])


def refusal(plan: Plan, edit: Any) -> str:
    with pytest.raises(PlanEditError) as caught:
        apply_edits(plan, [edit])
    assert caught.value.message.startswith("Edit 1: ")
    return caught.value.code


def test_a_title_page_is_spoken_whole_or_one_block_of_it_alone(plan: Plan) -> None:
    chapter = plan.chapters[0]
    assert not chapter.included
    whole = edited(plan, "include", chapter=chapter.id)
    one = edited(plan, "include", chapter=chapter.id, block=0)
    assert whole.included[0].title == "titlepage"
    assert SkipReason.TITLE_PAGE not in whole.skipped()
    assert [block.text for block in one.chapters[0].spoken()] == ["titlepage"]
    assert one.skipped()[SkipReason.TITLE_PAGE] == chapter.source_chars - len("titlepage")


def test_all_that_is_left_out_for_a_reason_is_spoken_and_left_out_again(plan: Plan) -> None:
    all_of_it = edited(plan, "include", reason="title_page")
    assert all_of_it.chapters[0].included
    assert edited(all_of_it, "exclude", reason="title_page").skipped() == plan.skipped()


def test_a_chapter_is_left_out_and_taken_in_again(plan: Plan) -> None:
    chapter = ids(plan)[1]
    out = edited(plan, "exclude", chapter=chapter)
    assert (len(out.included), text_of(out.chapters[1])) == (2, "")
    assert out.skipped()[SkipReason.EXCLUDED] == plan.chapters[1].source_chars
    assert len(edited(out, "include", chapter=chapter).included) == 3


def test_chapters_that_follow_each_other_merge(plan: Plan) -> None:
    merged = edited(plan, "merge", chapters=ids(plan)[1:3])
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
    assert (len(set(ids(split))), ids(split)[1]) == (4, chapter)
    assert split.spoken_source_chars == plan.spoken_source_chars


def test_order_title_voice_and_language_are_set(plan: Plan) -> None:
    first, *others = ids(plan)
    edits: list[dict[str, Any]] = [
        {"edit": "reorder", "chapters": [*others, first]},
        {"edit": "rename", "chapter": first, "title": "  New \n title "},
        {"edit": "voice", "chapter": first, "voice": "anna"},
        {"edit": "language", "chapter": first, "language": "pt-br"},
    ]
    last = apply_edits(plan, edits).chapters[-1]

    assert (last.id, last.title, last.voice, last.language) == (first, "New title", "anna", "pt-BR")
    assert plan.chapters[0].title == "titlepage"  # an edit makes another plan


# The edit, its fields, the refusal; {0} to {3} are the chapters' ids.
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("include", {"chapter": "nobody"}, "chapter_unknown"),
    ("include", {"chapter": "c", "reason": "note"}, "chapter_unknown"),
    *(("rename", {"chapter": "{1}", "title": title}, "title_invalid")
      for title in (" ", "\ud800", "a\0b", "x" * 201)),
    ("merge", {"chapters": ["{1}"]}, "merge_too_few"),
    ("merge", {"chapters": ["{1}", "{3}"]}, "merge_not_adjacent"),
    ("merge", {"chapters": ["{1}", "{1}"]}, "merge_not_adjacent"),
    ("merge", {"chapters": ["{0}", "{1}"]}, "merge_mixed"),
    ("split", {"chapter": "{1}", "block": 0}, "split_invalid"),
    ("split", {"chapter": "{1}", "block": 10**30}, "split_invalid"),
    ("reorder", {"chapters": ["{1}"]}, "order_incomplete"),
    ("reorder", {"chapters": ["{0}", "{1}", "{2}", "{2}"]}, "order_incomplete"),
    ("voice", {"chapter": "{1}", "voice": "x" * 101}, "voice_invalid"),
    ("language", {"chapter": "{1}", "language": "klingon!"}, "language_invalid"),
    ("include", {"chapter": "{1}", "block": 2}, "block_unknown"),
    ("exclude", {"chapter": "{1}", "block": -1}, "block_unknown"),
    ("split", {"chapter": "{1}", "block": True}, "edit_invalid"),
    ("split", {"chapter": "{1}", "block": "2"}, "edit_invalid"),
    ("merge", {"chapters": [1, 2]}, "edit_invalid"),
    ("merge", {"chapters": "ab"}, "edit_invalid"),
    ("include", {"chapter": ["a"]}, "edit_invalid"),
    ("include", {"chapter": "{1}", "more": 1}, "edit_invalid"),
    ("include", {}, "edit_invalid"),
    ("exclude", {"chapter": ""}, "edit_invalid"),
    ("exclude", {"block": 1}, "edit_invalid"),
    ("include", {"chapter": "{1}", "block": 1, "reason": "note"}, "edit_invalid"),
    ("include", {"reason": "boredom"}, "edit_invalid"),
    (["include"], {}, "edit_invalid"),
    ("explode", {}, "edit_invalid"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "fields", "code"), REFUSED)
def test_an_edit_that_cannot_be_made_says_why(
    plan: Plan, edit: Any, fields: dict[str, Any], code: str
) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        return value.format(*ids(plan)) if isinstance(value, str) else value

    shown = {name: filled(value) for name, value in fields.items()}
    assert refusal(plan, {"edit": edit, **shown}) == code


def test_what_is_no_edit_and_a_chapter_without_words_are_refused(plan: Plan) -> None:
    assert [refusal(plan, edit) for edit in ("include", None)] == ["edit_invalid"] * 2
    pages = {"a.xhtml": page(f"<p>{PROSE}</p>"), "b.xhtml": page("<p>…</p>")}
    empty = plan_of(Epub(pages, nav=[("A", "a.xhtml"), ("B", "b.xhtml")]))
    assert titles(empty) == ["A"]
    assert refusal(empty, {"edit": "include", "chapter": ids(empty)[1]}) == "chapter_empty"
