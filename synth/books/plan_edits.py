"""Edit a plan: each edit is a pure function that gives another plan, of the same characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from synth.books.book import BlockKind, CodedError
from synth.books.plan import Plan, PlannedBlock, PlannedChapter
from synth.books.rules import SkipReason
from synth.text.languages import language_tag
from ttsweb.refusals import counted

MAX_TITLE_CHARS = 200
MAX_VOICE_CHARS = 100


class PlanEditError(CodedError):
    """An edit that cannot be made."""


def include(plan: Plan, chapter: str = "", block: int | None = None, reason: str = "") -> Plan:
    """Speak what was left out: a chapter, a block of one, or all that was left out for a reason.

    Args:
        chapter: its id; may be empty with `reason`, for the whole book.
        block: counted from 0 in the chapter.
        reason: as the plan gives it, such as `hidden`.

    Raises:
        PlanEditError: chapter_unknown, block_unknown, edit_invalid, or chapter_empty: nothing in it
            can be spoken.
    """
    if reason:
        return _switch_reason(plan, chapter, block, reason, is_on=True)
    found = _find(plan, chapter)
    blocks = list(found.blocks)
    if block is not None:
        _check_block(found, block)
        if not blocks[block].can_be_spoken:
            raise PlanEditError(
                "chapter_empty",
                f"Block {block} of chapter {chapter!r} has nothing that can be spoken.",
            )
        if not found.included:  # nothing else of it is spoken
            why = found.reason or SkipReason.EXCLUDED
            blocks = [replace(one, reason=one.reason or why, usual=None) for one in blocks]
        blocks[block] = _switch_on(blocks[block])
    elif all(planned.reason is not None for planned in blocks):
        # All of it was left out block by block, as page numbers are.
        blocks = list(map(_switch_on, blocks))
        if all(planned.reason is not None for planned in blocks):
            raise PlanEditError(
                "chapter_empty",
                f"Chapter {chapter!r} has nothing that can be spoken, so it cannot be included.",
            )
    return _replace_chapter(plan, chapter, included=True, blocks=tuple(blocks))


def exclude(plan: Plan, chapter: str = "", block: int | None = None, reason: str = "") -> Plan:
    """Leave out a chapter, a block of one, or what was included although it has a reason.

    Args:
        chapter, block, reason: as `include` takes them.

    Raises:
        PlanEditError: chapter_unknown, block_unknown, edit_invalid.
    """
    if reason:
        return _switch_reason(plan, chapter, block, reason, is_on=False)
    found = _find(plan, chapter)
    if block is None:
        why = found.reason or SkipReason.EXCLUDED
        return _replace_chapter(plan, chapter, included=False, reason=why)
    _check_block(found, block)
    blocks = list(found.blocks)
    blocks[block] = _switch_off(blocks[block])
    return _replace_chapter(plan, chapter, blocks=tuple(blocks))


def _switch_on(planned: PlannedBlock) -> PlannedBlock:
    if planned.reason is None or not planned.can_be_spoken:
        return planned
    # Who left it out has no reason but their own, which is gone.
    usual = None if planned.reason is SkipReason.EXCLUDED else planned.reason
    return replace(planned, reason=None, usual=usual)


def _switch_off(planned: PlannedBlock) -> PlannedBlock:
    if planned.reason is not None:
        return planned
    return replace(planned, reason=planned.usual or SkipReason.EXCLUDED, usual=None)


def _check_block(chapter: PlannedChapter, block: int) -> None:
    if not 0 <= block < len(chapter.blocks):
        raise PlanEditError(
            "block_unknown",
            f"Chapter {chapter.id!r} has {counted(len(chapter.blocks), 'block')}, counted "
            f"from 0; block {block} does not exist.",
        )


def _switch_reason(
    plan: Plan, chapter: str, block: int | None, reason: str, *, is_on: bool
) -> Plan:
    if block is not None:
        raise PlanEditError("edit_invalid", "Give a `block` or a `reason`, not both.")
    if reason not in set(SkipReason):
        known = ", ".join(SkipReason)
        raise PlanEditError("edit_invalid", f"`reason` must be one of {known}.")
    if chapter:
        _find(plan, chapter)
    chapters = (
        _switch_chapter(one, SkipReason(reason), is_on=is_on) if chapter in {"", one.id} else one
        for one in plan.chapters
    )
    return _with_chapters(plan, *chapters)


def _switch_chapter(chapter: PlannedChapter, reason: SkipReason, *, is_on: bool) -> PlannedChapter:
    is_included = chapter.included
    if is_on:
        blocks = tuple(_switch_on(one) if one.reason is reason else one for one in chapter.blocks)
        is_spoken = any(one.reason is None for one in blocks)
        is_included = is_included or (chapter.reason is reason and is_spoken)
    elif is_included and chapter.reason is reason:
        return replace(chapter, included=False)
    else:
        blocks = tuple(_switch_off(one) if one.usual is reason else one for one in chapter.blocks)
    return replace(chapter, blocks=blocks, included=is_included)


def rename(plan: Plan, chapter: str, title: str) -> Plan:
    """Give a chapter another title in files and lists; what is spoken stays.

    Raises:
        PlanEditError: chapter_unknown or title_invalid.
    """
    cleaned = " ".join(title.split())
    is_text = cleaned.isprintable() and cleaned.encode("utf-8", "ignore").decode() == cleaned
    if not cleaned or len(cleaned) > MAX_TITLE_CHARS or not is_text:
        raise PlanEditError(
            "title_invalid", f"A title must have 1 to {MAX_TITLE_CHARS} characters in one line."
        )
    return _replace_chapter(plan, chapter, title=cleaned)


def merge(plan: Plan, chapters: Sequence[str]) -> Plan:
    """Make one chapter of several that follow each other; it has the id and title of the first.

    Raises:
        PlanEditError: chapter_unknown, merge_too_few, merge_not_adjacent, or merge_mixed: some
            are included and some are not.
    """
    if len(chapters) < 2:
        raise PlanEditError("merge_too_few", "Give at least two chapters to merge.")
    found = [_find(plan, chapter) for chapter in chapters]
    ids = [chapter.id for chapter in plan.chapters]
    start = ids.index(chapters[0])
    if ids[start : start + len(chapters)] != list(chapters):
        raise PlanEditError(
            "merge_not_adjacent",
            "Only chapters that follow each other can be merged, in their order.",
        )
    if len({chapter.included for chapter in found}) > 1:
        raise PlanEditError(
            "merge_mixed",
            "Include all of these chapters or exclude all of them before you merge them.",
        )
    blocks = tuple(planned for chapter in found for planned in chapter.blocks)
    merged = replace(found[0], blocks=blocks)
    rest = plan.chapters[start + len(chapters) :]
    return _with_chapters(plan, *plan.chapters[:start], merged, *rest)


def split(plan: Plan, chapter: str, block: int, title: str = "") -> Plan:
    """Begin another chapter at a block, counted from 0 in this one.

    Its id is the old one with a number; its title is `title`, or its heading, or the old one with
    a number.

    Raises:
        PlanEditError: chapter_unknown, title_invalid, or split_invalid.
    """
    found = _find(plan, chapter)
    if not 0 < block < len(found.blocks):
        raise PlanEditError(
            "split_invalid",
            f"Chapter {chapter!r} has {counted(len(found.blocks), 'block')}"
            + (f"; split it at 1 to {len(found.blocks) - 1}." if len(found.blocks) > 1 else "."),
        )
    ids = {one.id for one in plan.chapters}
    number = next(n for n in range(2, len(ids) + 3) if f"{chapter}.{n}" not in ids)
    first, second = found.blocks[:block], found.blocks[block:]
    heading = second[0].block.text if second[0].block.kind is BlockKind.HEADING else ""
    new = replace(
        found,
        id=f"{chapter}.{number}",
        title=(heading or f"{found.title} ({number})")[:MAX_TITLE_CHARS],
        blocks=second,
    )
    place = plan.chapters.index(found)
    both = (replace(found, blocks=first), new)
    changed = _with_chapters(plan, *plan.chapters[:place], *both, *plan.chapters[place + 1 :])
    return rename(changed, new.id, title) if title else changed


def reorder(plan: Plan, chapters: Sequence[str]) -> Plan:
    """Put all chapters, those that are left out too, in another order.

    Raises:
        PlanEditError: order_incomplete.
    """
    by_id = {chapter.id: chapter for chapter in plan.chapters}
    if len(chapters) != len(by_id) or set(chapters) != set(by_id):
        missing = [one for one in by_id if one not in set(chapters)]
        unknown = [one for one in chapters if one not in by_id]
        detail = f"missing: {', '.join(missing[:5])}" if missing else "one is named twice"
        detail = f"unknown: {', '.join(map(repr, unknown[:5]))}" if unknown else detail
        raise PlanEditError("order_incomplete", f"Give every chapter exactly once; {detail}.")
    return _with_chapters(plan, *(by_id[chapter] for chapter in chapters))


def set_voice(plan: Plan, chapter: str, voice: str) -> Plan:
    """Let a voice, by id or name, read a chapter; an empty one is the book's.

    Raises:
        PlanEditError: chapter_unknown or voice_invalid.
    """
    if len(voice) > MAX_VOICE_CHARS or not voice.isprintable():
        raise PlanEditError("voice_invalid", f"A voice has at most {MAX_VOICE_CHARS} characters.")
    return _replace_chapter(plan, chapter, voice=voice)


def set_language(plan: Plan, chapter: str, language: str) -> Plan:
    """Set the language of a chapter; passages that the book marks keep theirs.

    Raises:
        PlanEditError: chapter_unknown or language_invalid.
    """
    tag = language_tag(language)
    if tag is None:
        raise PlanEditError("language_invalid", "A language must be a tag such as en, de or pt-BR.")
    return _replace_chapter(plan, chapter, language=tag)


# Function, and the fields of each edit with their types; a field with "?" may be left out.
_SWITCH_FIELDS: dict[str, type] = {"chapter?": str, "block?": int, "reason?": str}
_TYPES = {str: "text", int: "a whole number", list: "a list of texts"}
_EDITS: dict[str, tuple[Callable[..., Plan], dict[str, type]]] = {
    "include": (include, _SWITCH_FIELDS),
    "exclude": (exclude, _SWITCH_FIELDS),
    "rename": (rename, {"chapter": str, "title": str}),
    "merge": (merge, {"chapters": list}),
    "split": (split, {"chapter": str, "block": int, "title?": str}),
    "reorder": (reorder, {"chapters": list}),
    "voice": (set_voice, {"chapter": str, "voice": str}),
    "language": (set_language, {"chapter": str, "language": str}),
}
EDIT_NAMES = tuple(_EDITS)


def apply_edits(plan: Plan, edits: Sequence[Mapping[str, Any]]) -> Plan:
    """Apply edits in order, each `{"edit": name, ...}` with the arguments of its function.

    Raises:
        PlanEditError: edit_invalid (a wrong name, field or type), or what the edit raises; the
            message begins with the number of the edit.
    """
    for number, edit in enumerate(edits, 1):
        try:
            plan = _apply(plan, edit)
        except PlanEditError as error:
            raise PlanEditError(error.code, f"Edit {number}: {error.message}") from error
    return plan


def _apply(plan: Plan, edit: Mapping[str, Any]) -> Plan:
    if not isinstance(edit, Mapping):
        raise PlanEditError("edit_invalid", "Each edit must be an object.")
    name = edit.get("edit")
    if not isinstance(name, str) or name not in _EDITS:
        raise PlanEditError("edit_invalid", f"`edit` must be one of {', '.join(EDIT_NAMES)}.")
    function, fields = _EDITS[name]
    arguments = {key: value for key, value in edit.items() if key != "edit"}
    known = {field.rstrip("?") for field in fields}
    if unknown := sorted(str(key) for key in arguments.keys() - known):
        raise PlanEditError("edit_invalid", f"{name} has no field {unknown[0]!r}.")
    for field, kind in fields.items():
        key = field.rstrip("?")
        if key not in arguments:
            if not field.endswith("?"):
                raise PlanEditError("edit_invalid", f"{name} needs the field `{key}`.")
        elif not _has_type(arguments[key], kind):
            raise PlanEditError("edit_invalid", f"`{key}` of {name} must be {_TYPES[kind]}.")
    if fields is _SWITCH_FIELDS and not (arguments.get("chapter") or arguments.get("reason")):
        raise PlanEditError("edit_invalid", f"{name} needs the field `chapter`, or `reason`.")
    return function(plan, **arguments)


def _has_type(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _find(plan: Plan, chapter: str) -> PlannedChapter:
    found = next((one for one in plan.chapters if one.id == chapter), None)
    if found is None:
        raise PlanEditError(
            "chapter_unknown", f"The plan has no chapter {chapter!r}; get the plan again."
        )
    return found


def _replace_chapter(plan: Plan, chapter: str, **changes: Any) -> Plan:
    changed = replace(_find(plan, chapter), **changes)
    return _with_chapters(plan, *(changed if one.id == chapter else one for one in plan.chapters))


def _with_chapters(plan: Plan, *chapters: PlannedChapter) -> Plan:
    plan = replace(plan, chapters=chapters)
    plan.check()
    return plan
