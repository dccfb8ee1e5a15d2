"""Print the plan of a book on this machine: neither server nor key nor voice is needed."""

from __future__ import annotations

import json
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from synth.books.book import BookRejectedError
from synth.books.detect import read_book
from synth.books.plan import Plan, PlannedChapter, plan_book
from synth.books.plan_edits import PlanEditError, apply_edits
from synth.books.plan_text import cast_report, passages_of
from synth.books.rules import CHARS_PER_SECOND, Casting, Rules
from synth.text.normalise import TextRejectedError, clean_text
from synth.text.segments import cut_text
from ttsweb.commands.base import BaseCommand, StepError, UsageError, reporting_errors
from ttsweb.commands.job_arguments import PLAN_RULES, casting_options_of, edits_of, left_out_lines
from ttsweb.commands.noun_command import Cells, lines_of_rows
from ttsweb.commands.terminal import one_line

# Most characters of a segment that models take; the plan of a server goes by its model's.
SEGMENT_CHARS = 300
_WIDTH = 80  # of a terminal
_TITLE_WIDTH = 36  # what the other columns leave
MOST_CHARACTERS = 20  # that a person is shown


def print_plan(command: BaseCommand, chosen: Namespace) -> None:
    """Print the plan of each file: tables, or with `--json` one object.

    Raises:
        CommandError: a file is no book that can be read.
        UsageError: an argument is out of range.
    """
    rate = CHARS_PER_SECOND if chosen.chars_per_second is None else chosen.chars_per_second
    if not 1 <= rate <= 100:
        raise UsageError("--chars-per-second must be from 1 to 100")
    given = {name: getattr(chosen, f"plan_{name}") for name in PLAN_RULES}
    choices: dict[str, Any] = {name: PLAN_RULES[name](one) for name, one in given.items() if one}
    rules = Rules(**choices)
    try:
        casting = Casting.of(casting_options_of(chosen).get("casting", {}))
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = []
    with reporting_errors(command.stdout, as_json=chosen.json):
        for path in chosen.files:
            plan = _plan_of(path, rules, rate, chosen)
            if chosen.json:
                found.append({"file": str(path), **_with_segments(plan, casting)})
            else:
                command.stdout.writelines(f"{line}\n" for line in lines_of(path, plan, casting))
    if chosen.json:
        shown = found[0] if len(found) == 1 else {"plans": found}
        command.stdout.write(json.dumps(shown, ensure_ascii=False, indent=2))


def _plan_of(path: Path, rules: Rules, rate: float, chosen: Namespace) -> Plan:
    try:
        book = read_book(path)
    except BookRejectedError as error:
        raise StepError(error.code, f"{path}: {error.message}") from error
    except OSError as error:
        raise StepError("file_unreadable", f"{path}: {error.strerror or error}.") from error
    if chosen.language:
        book = replace(book, metadata=replace(book.metadata, language=chosen.language))
    plan = plan_book(book, rules, chars_per_second=rate)
    try:
        return apply_edits(plan, edits_of(chosen, [chapter.id for chapter in plan.chapters]))
    except (UsageError, PlanEditError) as error:
        raise UsageError(f"{path}: {error}") from error


def _with_segments(plan: Plan, casting: Casting) -> dict[str, Any]:
    report = cast_report(plan, casting)
    found = plan.to_json()
    found |= report | {"warnings": [*found["warnings"], *report["warnings"]]}
    for row, chapter in zip(found["chapters"], plan.chapters, strict=True):
        row["segments"] = count_segments(plan, chapter, casting)
    found["totals"]["segments"] = sum(row["segments"] for row in found["chapters"])
    return found


def count_segments(plan: Plan, chapter: PlannedChapter, casting: Casting) -> int:
    count = 0
    for passage in passages_of(chapter, casting, speaker_names=plan.rules.speaker_names):
        try:
            cleaned = clean_text(passage.text, max_chars=len(passage.text))
            language = passage.language or "en"
            count += len(cut_text(cleaned, max_chars=SEGMENT_CHARS, language=language))
        except TextRejectedError:
            continue  # a warning of the plan says so
    return count


def lines_of(path: Path, plan: Plan, casting: Casting) -> Iterator[str]:
    found = _with_segments(plan, casting)
    by = f" by {', '.join(found['authors'])}" if found["authors"] else ""
    yield one_line(f"{found['title'] or path.name}{by}", _WIDTH)
    yield ""
    yield from lines_of_rows(CHAPTERS, found["chapters"])
    totals, proof = found["totals"], found["completeness"]
    yield ""
    yield (
        f"{totals['chapters']} chapters, {totals['characters']} characters, "
        f"{totals['segments']} segments, about {_duration(totals['seconds'])} of audio"
    )
    yield (
        f"{proof['source_chars']} characters without blanks in the book: {proof['spoken']} "
        f"spoken, {proof['source_chars'] - proof['spoken']} skipped"
    )
    yield from left_out_lines(found)
    yield from _cast_lines(found)
    for warning in found["warnings"]:
        text = f"warning: {one_line(warning, 300)}"
        yield from textwrap.wrap(text, _WIDTH, subsequent_indent=" " * 9)


def _shown_title(row: dict[str, Any]) -> str:
    """Return a chapter's title and why it is not read, which a long title does not push out."""
    end = "" if row["included"] else f" ({row['reason']})"
    return f"{one_line(row['title'], _TITLE_WIDTH - len(end))}{end}"


def _cast_lines(found: dict[str, Any]) -> Iterator[str]:
    if found["characters"]:
        yield ""
        yield from lines_of_rows(CHARACTERS, found["characters"][:MOST_CHARACTERS])
        if len(found["characters"]) > MOST_CHARACTERS:
            yield f"and {len(found['characters']) - MOST_CHARACTERS} more; --json lists them"
    if len(found["languages"]) > 1:
        shares = [f"{one['language'] or '?'} {one['share']:.1%}" for one in found["languages"]]
        yield f"languages: {', '.join(shares[:MOST_CHARACTERS])}"
    if found["dialogue"] is not None:
        yield f"dialogue: {found['dialogue']['share']:.1%} of the spoken text"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


CHAPTERS: Cells = {
    "#": lambda row: row["index"] + 1,
    "read": lambda row: "yes" if row["included"] else "no",
    "chars": lambda row: row["characters" if row["included"] else "source_chars"],
    "segments": "segments",
    "time": lambda row: _duration(row["seconds"]),
    "lang": "language",
    "title": _shown_title,
}
CHARACTERS: Cells = {
    "character": "name",
    "voice": lambda row: row["voice"] or "-",
    "speeches": "speeches",
    "chars": "characters",
}
