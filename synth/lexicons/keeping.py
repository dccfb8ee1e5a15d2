"""Keep lexicons and their entries: every write is here, each under the lexicon's lock."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from synth.lexicons.access import may_change
from synth.models import Lexicon, LexiconEntry
from synth.text.rules import Rule, RuleError, checked_rule

Mode = Literal["append", "replace"]
MODES: tuple[Mode, ...] = ("append", "replace")
MAX_INDEX = 10**9
_RULE_FIELDS = ("find", "say", "kind", "case_sensitive", "language")


class LexiconError(Exception):
    """A change that is refused: HTTP status, stable code, sentence, and the field at fault."""

    def __init__(self, status: int, code: str, message: str, *, attr: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.attr = status, code, message, attr


def not_found() -> LexiconError:
    """Return the error for a lexicon that does not exist, or that the user may not see."""
    return LexiconError(404, "lexicon_not_found", "No lexicon that you may use has this id.")


def check_may_change(user: AbstractBaseUser | AnonymousUser, lexicon: Lexicon) -> None:
    """Refuse a change of what a user sees and does not own.

    Raises:
        LexiconError: 403 lexicon_shared.
    """
    if not may_change(user, lexicon):
        raise LexiconError(
            403,
            "lexicon_shared",
            "Only an administrator can change this lexicon, as it applies to all users. "
            "Make a lexicon of your own: its entries take precedence.",
        )


def save_lexicon(lexicon: Lexicon, values: Mapping[str, Any]) -> Lexicon:
    """Give a lexicon, new or not, these values and write it.

    Raises:
        LexiconError: voice_required, voice_unfit (of another scope than `voice`),
            lexicon_name_taken; 404 where it was deleted meanwhile.
    """
    for name, value in values.items():
        setattr(lexicon, name, value)
    if lexicon.scope == Lexicon.Scope.VOICE and lexicon.voice is None:
        raise LexiconError(
            400,
            "voice_required",
            "Choose a voice: a lexicon of the scope `voice` needs one.",
            attr="voice",
        )
    if lexicon.scope != Lexicon.Scope.VOICE and values.get("voice") is not None:
        raise LexiconError(
            400,
            "voice_unfit",
            "Leave the voice out: only a lexicon of the scope `voice` has one.",
            attr="voice",
        )
    if lexicon.scope != Lexicon.Scope.VOICE:
        lexicon.voice = None
    try:
        with transaction.atomic():
            if not lexicon._state.adding:
                _lock(lexicon.pk)
            lexicon.save()
    except IntegrityError as error:
        raise LexiconError(
            409,
            "lexicon_name_taken",
            f"There is already a lexicon named {lexicon.name!r}; choose another name.",
            attr="name",
        ) from error
    return lexicon


def delete_lexicon(lexicon: Lexicon) -> None:
    """Delete a lexicon; jobs that were made with it stay as they are."""
    Lexicon.objects.filter(pk=lexicon.pk).delete()


def check_entry(values: Mapping[str, Any]) -> Rule:
    """Return the rule of an entry's values, as it is kept; raises RuleError as `checked_rule`."""
    return checked_rule(Rule(**{name: values[name] for name in _RULE_FIELDS if name in values}))


@transaction.atomic
def add_entry(lexicon: Lexicon, values: Mapping[str, Any]) -> LexiconEntry:
    """Add an entry, at the end unless it has an `index`.

    Raises:
        LexiconError: 409 too_many_entries; lexicon_not_found; those of a rule (see checked_rule).
    """
    rule = _rule(values)
    _lock(lexicon.pk)
    entries = LexiconEntry.objects.filter(lexicon_id=lexicon.pk)
    _check_room(entries.count() + 1)
    entry = LexiconEntry(lexicon=lexicon, index=values.get("index", _next_index(lexicon)))
    _write(entry, rule, enabled=values.get("enabled", True))
    return entry


@transaction.atomic
def change_entry(entry: LexiconEntry, values: Mapping[str, Any]) -> LexiconEntry:
    """Change what is given of an entry; the whole of it is checked again."""
    whole = {name: getattr(entry, name) for name in _RULE_FIELDS} | dict(values)
    rule = _rule(whole)
    _lock(entry.lexicon_id)
    if not LexiconEntry.objects.filter(pk=entry.pk).exists():
        raise LexiconError(404, "entry_not_found", "The lexicon has no entry with this id.")
    entry.index = values.get("index", entry.index)
    _write(entry, rule, enabled=values.get("enabled", entry.enabled))
    return entry


@transaction.atomic
def delete_entry(entry: LexiconEntry) -> None:
    """Delete an entry."""
    _lock(entry.lexicon_id)
    LexiconEntry.objects.filter(pk=entry.pk).delete()
    _touch(entry.lexicon_id)


@transaction.atomic
def put_entries(lexicon: Lexicon, entries: Sequence[tuple[Rule, bool]], mode: Mode) -> int:
    """Put checked rules, each with whether it is enabled, behind those that are there or in their
    place; return how many there are now.

    Raises:
        LexiconError: 409 too_many_entries, 404 lexicon_not_found; nothing is changed.
    """
    _lock(lexicon.pk)
    rows = LexiconEntry.objects.filter(lexicon_id=lexicon.pk)
    if mode == "replace":
        rows.delete()
    total = rows.count() + len(entries)
    _check_room(total)
    first = _next_index(lexicon)
    LexiconEntry.objects.bulk_create(
        [
            LexiconEntry(
                lexicon=lexicon,
                index=first + place,
                enabled=enabled,
                **{name: getattr(rule, name) for name in _RULE_FIELDS},
            )
            for place, (rule, enabled) in enumerate(entries)
        ],
        batch_size=500,
    )
    _touch(lexicon.pk)
    return total


def _rule(values: Mapping[str, Any]) -> Rule:
    try:
        return check_entry(values)
    except RuleError as error:
        raise LexiconError(400, error.code, error.message, attr=error.attr) from error


def _write(entry: LexiconEntry, rule: Rule, *, enabled: bool) -> None:
    for name in _RULE_FIELDS:
        setattr(entry, name, getattr(rule, name))
    entry.enabled = enabled
    entry.save()
    _touch(entry.lexicon_id)


def _lock(lexicon_id: uuid.UUID) -> None:
    """Hold the lexicon's row until the transaction ends: its entries are counted and numbered."""
    if not list(Lexicon.objects.select_for_update(of=("self",)).filter(pk=lexicon_id)):
        raise not_found()


def _touch(lexicon_id: uuid.UUID) -> None:
    Lexicon.objects.filter(pk=lexicon_id).update(updated_at=timezone.now())


def _next_index(lexicon: Lexicon) -> int:
    last = LexiconEntry.objects.filter(lexicon_id=lexicon.pk).aggregate(last=Max("index"))["last"]
    return 0 if last is None else int(last) + 1


def _check_room(total: int) -> None:
    if total > settings.MAX_LEXICON_ENTRIES:
        raise LexiconError(
            409,
            "too_many_entries",
            f"The lexicon would have {total} entries; at most "
            f"{settings.MAX_LEXICON_ENTRIES} are allowed (TTS_MAX_LEXICON_ENTRIES). Make a "
            "second lexicon.",
        )
