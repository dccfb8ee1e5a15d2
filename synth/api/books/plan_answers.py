"""Say all that is known of a book's plan: chapters, casting, credits, what is expected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from synth.api.books.options import order_of
from synth.books.cast import Casting
from synth.books.plan import Plan
from synth.books.plan_cast import cast_report
from synth.bookshelf.book_credits import TITLES, credits_report
from synth.bookshelf.expecting import expect, reading_rate
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookSource
from synth.options.orders import speakers_of
from synth.options.voice_choice import find_voice
from voices.models import Voice


def plan_answer(book: BookSource, plan: Plan) -> dict[str, Any]:
    """Return what `PlanSerializer` shows of a book's plan as it stands."""
    casting = Casting.of(book.casting)
    voices = _voices_of(book, casting)
    reader = voices.get("0")
    rate = reading_rate(reader.current_version) if reader is not None else None
    plan = plan if rate is None else replace(plan, chars_per_second=rate)
    report = cast_report(plan, casting)
    names = list(dict.fromkeys(voice.name for voice in voices.values()))
    spoken, warnings = credits_report(book, names)
    expected = expect(book, plan, is_measured=rate is not None)
    told = plan.to_json()
    return {
        **told,
        "warnings": [*told["warnings"], *report["warnings"], *warnings],
        "plan_number": book.plan_number,
        "edits": book.edits,
        "casting": book.casting,
        "characters": report["characters"],
        "languages": report["languages"],
        "dialogue": report["dialogue"],
        **{field: book.production.get(field, "") for field in TITLES},
        "credits": spoken,
        "chars_per_second": expected.chars_per_second,
        "is_rate_measured": expected.is_measured,
        "expected_seconds": expected.seconds,
        "expected_render_seconds": expected.render_seconds,
        "expected_finish": expected.finish,
        "expected_segments": expected.reuse.segments if expected.reuse else None,
        "expected_reused": expected.reuse.reused if expected.reuse else None,
    }


def _voices_of(book: BookSource, casting: Casting) -> dict[str, Voice]:
    """Return the voices that would speak, by number or role; those that are gone are left out."""
    owner: AbstractBaseUser | None = book.owner
    order = order_of(book)
    named = speakers_of(order)[0] if order.voice or order.voices else {}
    wanted = [(str(speaker), str(voice)) for speaker, voice in sorted(named.items())]
    wanted += [(role.label, voice) for role, voice in casting.voices()]
    found: dict[str, Voice] = {}
    for role, voice in wanted:
        try:
            found[role] = find_voice(owner, voice)
        except SubmitRejectedError:
            continue  # told when it is started, or when it is given
    return found
