"""Keep lexicons and their entries: every write is here, each under the lexicon's lock."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from synth.models import Lexicon, LexiconEntry
from synth.text.rules import Rule, RuleError, check_rule
from ttsweb.refusals import RefusedError

MAX_LEXICON_ENTRIES = 5000  # of one lexicon; a layer of them takes about 10 MB of memory


def may_change(user: AbstractBaseUser | AnonymousUser, lexicon: Lexicon) -> bool:
    """Return whether a user who sees a lexicon may also change it."""
    is_own = user.pk is not None and lexicon.owner_id == user.pk
    return is_own or bool(getattr(user, "is_superuser", False))


Mode = Literal["append", "replace"]
MODES: tuple[Mode, ...] = ("append", "replace")
MAX_INDEX = 10**9
_RULE_FIELDS = ("find", "say", "kind", "case_sensitive", "language")


class LexiconError(RefusedError):
    """A change of a lexicon is refused."""


def not_found() -> LexiconError:
    """Return the error for a lexicon that does not exist, or that the user may not see."""
    return LexiconError("lexicon_not_found", "No lexicon that you may use has this id.")


def check_may_change(user: AbstractBaseUser | AnonymousUser, lexicon: Lexicon) -> None:
    """Refuse a change of what a user sees and does not own.

    Raises:
        LexiconError: 403 lexicon_shared.
    """
    if not may_change(user, lexicon):
        raise LexiconError(
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
    if lexicon.scope != Lexicon.Scope.VOICE:
        if values.get("voice") is not None:
            message = "Leave the voice out: only a lexicon of the scope `voice` has one."
            raise LexiconError("voice_unfit", message, attr="voice")
        lexicon.voice = None
    elif lexicon.voice is None:
        message = "Choose a voice: a lexicon of the scope `voice` needs one."
        raise LexiconError("voice_required", message, attr="voice")
    try:
        with transaction.atomic():
            if not lexicon._state.adding:
                _lock(lexicon.pk)
            lexicon.save()
    except IntegrityError as error:
        message = f"There is already a lexicon named {lexicon.name!r}; choose another name."
        raise LexiconError("lexicon_name_taken", message, attr="name") from error
    return lexicon


def delete_lexicon(lexicon: Lexicon) -> None:
    """Delete a lexicon; jobs that were made with it stay as they are."""
    Lexicon.objects.filter(pk=lexicon.pk).delete()


def check_entry(values: Mapping[str, Any]) -> Rule:
    """Return the rule of an entry's values, as it is kept; raises RuleError as `check_rule`."""
    return check_rule(Rule(**{name: values[name] for name in _RULE_FIELDS if name in values}))


@transaction.atomic
def add_entry(lexicon: Lexicon, values: Mapping[str, Any]) -> LexiconEntry:
    """Add an entry, at the end unless it has an `index`.

    Raises:
        LexiconError: 409 too_many_entries; lexicon_not_found; those of a rule (see check_rule).
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
        raise LexiconError("entry_not_found", "The lexicon has no entry with this id.")
    entry.index = values.get("index", entry.index)
    _write(entry, rule, enabled=values.get("enabled", entry.enabled))
    return entry


@transaction.atomic
def delete_entry(entry: LexiconEntry) -> None:
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
    made = (
        LexiconEntry(lexicon=lexicon, index=index, enabled=enabled, **asdict(rule))
        for index, (rule, enabled) in enumerate(entries, first)
    )
    LexiconEntry.objects.bulk_create(made, batch_size=500)
    _touch(lexicon.pk)
    return total


def _rule(values: Mapping[str, Any]) -> Rule:
    try:
        return check_entry(values)
    except RuleError as error:
        raise LexiconError(error.code, error.message, attr=error.attr) from error


def _write(entry: LexiconEntry, rule: Rule, *, enabled: bool) -> None:
    for name, value in asdict(rule).items():
        setattr(entry, name, value)
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
    if total > MAX_LEXICON_ENTRIES:
        raise LexiconError(
            "too_many_entries",
            f"The lexicon would have {total} entries; at most {MAX_LEXICON_ENTRIES} are allowed. "
            "Make a second lexicon.",
            case="lexicon_full",
        )
