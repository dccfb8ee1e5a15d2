"""Switch parts of a book's plan on and off by the command line, and list what is left out."""

from __future__ import annotations

import re
import textwrap
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synth.books.rules import (
    CHARS_PER_SECOND,
    AltTexts,
    Notes,
    Rules,
    SkipReason,
    SpeakerNames,
    Tables,
)
from ttsweb.commands.noun_command import argument
from ttsweb.terminal.plain_table import one_line

PLAN_RULES: dict[str, type[Notes | Tables | AltTexts | SpeakerNames]] = {
    "notes": Notes,
    "tables": Tables,
    "alt_texts": AltTexts,
    "speaker_names": SpeakerNames,
}


def add_plan_arguments(parser: ArgumentParser) -> None:
    """Take `--plan` and what the plan goes by."""
    plan = parser.add_argument_group(
        "the plan of a book, which is made on this machine without a server"
    )
    plan.add_argument(
        "--plan",
        action="store_true",
        help="print chapters, and what is spoken or skipped and why; render nothing",
    )
    for name, choices in PLAN_RULES.items():
        flag = f"--plan-{name.replace('_', '-')}"
        plan.add_argument(
            flag,
            choices=[str(one) for one in choices],
            help=f"with --plan; {getattr(Rules(), name)} if left out",
        )
    plan.add_argument(
        "--chars-per-second",
        type=float,
        metavar="N",
        help=(
            f"with --plan, characters that the voice speaks per second; {CHARS_PER_SECOND:g} if "
            "left out"
        ),
    )
    for names, options in SWITCHES:
        parser.add_argument(*names, **options)


MOST_ROWS = 8  # of each reason that a person is shown
_WIDTH = 80
_PLACE = re.compile(r"(?P<chapter>[\w.]+?)(?::(?P<block>\d{1,6}))?\Z")


_WHAT = "a reason such as hidden, a chapter's number, or CHAPTER:BLOCK, as the plan lists them"
SWITCHES = tuple(
    argument(f"--{name}", action="append", default=[], metavar="WHAT", help=help_text)
    for name, help_text in (
        ("include", f"in a book, speak what the plan leaves out: {_WHAT}; may be repeated"),
        ("exclude", "in a book, leave out what the plan speaks; same names as for --include"),
    )
)


def edits_of(chosen: Namespace, chapters: Sequence[str]) -> list[dict[str, Any]]:
    """Return the edits of a plan that the arguments ask for.

    Args:
        chapters: the ids of the plan's chapters, in their order.

    Raises:
        ValueError: an argument names nothing of this plan.
    """
    return [
        {"edit": edit, **_named(what, chapters)}
        for edit in ("include", "exclude")
        for what in getattr(chosen, edit)
    ]


def _named(what: str, chapters: Sequence[str]) -> dict[str, Any]:
    if what.replace("-", "_") in set(SkipReason):
        return {"reason": what.replace("-", "_")}
    found = _PLACE.match(what)
    name = found["chapter"] if found else ""
    if name.isdecimal() and 1 <= int(name) <= len(chapters):
        name = chapters[int(name) - 1]
    if found is None or name not in chapters:
        raise ValueError(
            f"{what!r} is not a part of this plan; name a reason, a chapter from 1 to "
            f"{len(chapters)}, or CHAPTER:BLOCK"
        )
    if found["block"] is None:
        return {"chapter": name}
    return {"chapter": name, "block": int(found["block"])}


def left_out_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a plan leaves out, by reason: how it begins, and what --include takes for it."""
    numbers = {chapter["id"]: chapter["index"] + 1 for chapter in plan["chapters"]}
    rows: dict[str, list[str]] = defaultdict(list)
    for chapter in plan["chapters"]:
        if not chapter["included"]:
            rows[chapter["reason"] or "excluded"].append(
                f"{numbers[chapter['id']]}: {chapter['beginning'] or chapter['title']}"
            )
    for row in plan["skipped"]:
        if not row["included"]:
            place = f"{numbers[row['chapter']]}:{row['block']}"
            mark = "" if row["can_be_included"] else " (no words to speak)"
            rows[row["reason"]].append(f"{place}: {row['text'] or row['kind']}{mark}")
    for reason, count in plan["completeness"]["skipped"].items():
        line = f"  {count:>8}  {reason}: {SkipReason(reason).sentence}"
        yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 12)
        for line in rows[reason][:MOST_ROWS]:
            yield one_line(f"            {line}", _WIDTH)
        if len(rows[reason]) > MOST_ROWS:
            yield f"            and {len(rows[reason]) - MOST_ROWS} more; --json lists them"
    for loss in plan["completeness"]["missing"]:
        line = f"   MISSING  {loss['path']}: {loss['why']}"
        yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 12)
