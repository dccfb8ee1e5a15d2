"""Find the lexicons that somebody sees or that apply to a job; compile each once for a request."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet

from synth.models import Lexicon, LexiconEntry
from synth.text.pauses import DEFAULT_PAUSES, Pauses
from synth.text.respeaking import Layer, Speech, respeak
from synth.text.rules import KINDS, MAX_SLOW, Budget, Rule, RuleError, TooSlowError, check_rule
from synth.text.segments import Piece
from synth.text.speller import speller
from ttsweb.refusals import SubmitRejectedError

EVERYBODYS = Q(owner__isnull=True)
# Seconds that applying lexicons may take for one request: a pattern that tries for ever is found.
LEXICON_SECONDS = 2.0

MAX_LAYERS = 16  # one of 5,000 words takes about 10 MB


def find_visible_lexicons(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Lexicon]:
    """Return the user's lexicons and everybody's; a superuser's are all."""
    if not user.is_authenticated:
        return Lexicon.objects.none()
    if getattr(user, "is_superuser", False):
        return Lexicon.objects.all()
    return Lexicon.objects.filter(EVERYBODYS | Q(owner_id=user.pk))


def find_applied_lexicons(owner: AbstractBaseUser | None) -> QuerySet[Lexicon]:
    """Return what may apply to jobs of a user: own and everybody's, never another user's.

    None is the system itself, to which everybody's apply.
    """
    own = Q(owner_id=owner.pk) if owner is not None else Q(pk__in=[])
    return Lexicon.objects.filter(EVERYBODYS | own)


def find_named(lexicons: QuerySet[Lexicon], wanted: str) -> Lexicon | None:
    """Return the lexicon with this id or name, an own one before everybody's; None without one."""
    with suppress(ValueError):
        if found := lexicons.filter(pk=uuid.UUID(wanted)).first():
            return found
    if "\0" in wanted or any("\ud800" <= letter <= "\udfff" for letter in wanted):
        return None  # no database holds such a name, nor takes the question
    named = list(lexicons.filter(name__iexact=wanted)[:10])
    # Names in another case differ between databases: the exact one, and an own one, come first.
    named.sort(key=lambda lexicon: (lexicon.owner_id is None, lexicon.name != wanted))
    return named[0] if named else None


def read_layer(lexicon: Lexicon, language: str) -> Layer:
    """Return a lexicon's layer for texts in a language; the layers that were used last are kept.

    Raises:
        SubmitRejectedError: pattern_invalid, of a pattern that another release has kept.
    """
    return _read_layer(lexicon.pk, lexicon.updated_at, lexicon.name, lexicon.language, language)


@lru_cache(maxsize=MAX_LAYERS)
def _read_layer(
    lexicon_id: uuid.UUID, _updated_at: dt.datetime, name: str, own_language: str, language: str
) -> Layer:
    """Compile the entries of a lexicon.

    The key has the time of the lexicon's last change, which every change of an entry moves on, so
    that nothing here is ever out of date.
    """
    entries = LexiconEntry.objects.filter(lexicon_id=lexicon_id, enabled=True)
    rules = (
        Rule(
            entry.find,
            entry.say,
            next((kind for kind in KINDS if kind == entry.kind), "word"),
            entry.case_sensitive,
            entry.language or own_language,
        )
        for entry in entries
    )
    return compile_layer(name, rules, language)


def compile_layer(name: str, rules: Iterable[Rule], language: str) -> Layer:
    """Return rules as a layer; raises as `read_layer`."""
    try:
        return Layer(name, rules, language)
    except RuleError as error:  # a pattern that was kept by another release of the library
        message = f"An entry of the lexicon {name!r} cannot be used: {error.message}"
        raise SubmitRejectedError(error.code, message, attr="lexicons") from error


JOB_LAYER = "job"  # names the entries that a job brings along
_JOBS_PER_REQUEST = 10  # a batch may take the time of so many jobs


class LexiconBook:
    """Hold the lexicons of one user for one request; do not keep it longer.

    Their order is: the job's own entries, the lexicons that it names, those of the speaker's voice,
    global ones; among the last two the user's own before everybody's.
    """

    def __init__(self, owner: AbstractBaseUser | None) -> None:
        """Gather for a user; None is the system itself."""
        self._owner = owner
        self._left = LEXICON_SECONDS * _JOBS_PER_REQUEST
        self._slow = 0  # patterns so far that were refused for their time
        self._named: dict[str, Lexicon] = {}
        self._applying: list[Lexicon] | None = None
        self._layers: dict[tuple[uuid.UUID, str], Layer] = {}
        self._own_layer: tuple[object, Layer] | None = None  # of the last job, and its entries

    def speak(
        self,
        pieces: Sequence[Piece],
        *,
        language: str,
        max_chars: int,
        voice_ids: Mapping[int, uuid.UUID | None],
        named: Sequence[str] = (),
        entries: Sequence[Mapping[str, Any]] = (),
        normalise: bool = False,
        pauses: Pauses = DEFAULT_PAUSES,
    ) -> list[Piece]:
        """Return the pieces as they are spoken.

        Args:
            language: tag of the text's language.
            max_chars: most characters of a piece's spoken text.
            voice_ids: the voice of each speaker; None for a clip that came with the job.
            named: names or ids of lexicons, first ones first.
            entries: the job's own, each with `find`, `say`, `kind`, `case_sensitive`, `language`.
            normalise: whether numbers and the like are spelled out after all lexicons.

        Raises:
            SubmitRejectedError: lexicon_not_found, lexicon_disabled, lexicon_too_slow, pattern_*,
                find_empty, say_invalid, text_invalid, text_unspeakable, spoken_too_long.
        """
        first = self.first_layers(entries, named, language)
        spell_out = speller(language) if normalise else None
        known: dict[int, Speech] = {}

        def speech_of(speaker: int) -> Speech:
            if speaker not in known:
                rest = self._last_layers(voice_ids.get(speaker), named, language)
                known[speaker] = Speech([*first, *rest], spell_out, language)
            return known[speaker]

        return self._run_in_time(
            partial(respeak, pieces, speech_of, max_chars=max_chars, pauses=pauses)
        )

    def speak_by(
        self, pieces: Sequence[Piece], layers: Sequence[Layer], *, max_chars: int
    ) -> list[Piece]:
        """Return the pieces as these layers alone have them spoken.

        Raises:
            SubmitRejectedError: lexicon_too_slow, text_unspeakable, spoken_too_long.
        """
        speech = Speech(layers)
        return self._run_in_time(partial(respeak, pieces, lambda _: speech, max_chars=max_chars))

    def named(self, wanted: str) -> Lexicon:
        """Return the lexicon with this id or name.

        Raises:
            SubmitRejectedError: 404 lexicon_not_found, 409 lexicon_disabled.
        """
        if wanted not in self._named:
            found = find_named(find_applied_lexicons(self._owner), wanted)
            if found is None:
                message = f"There is no lexicon with the id or name {wanted[:100]!r}."
                raise SubmitRejectedError("lexicon_not_found", message, attr="lexicons")
            if not found.enabled:
                off = f"The lexicon {found.name!r} is switched off; switch it on, or leave it out."
                raise SubmitRejectedError("lexicon_disabled", off, attr="lexicons")
            self._named[wanted] = found
        return self._named[wanted]

    def layer(self, lexicon: Lexicon, language: str) -> Layer:
        key = (lexicon.pk, language)
        if key not in self._layers:
            self._layers[key] = read_layer(lexicon, language)
        return self._layers[key]

    def first_layers(
        self, entries: Sequence[Mapping[str, Any]], named: Sequence[str], language: str
    ) -> list[Layer]:
        """Return what comes before the lexicons of voices: the job's entries, named lexicons.

        Raises:
            SubmitRejectedError: as `speak`, of what is wrong with entries and names.
        """
        layers = []
        if entries:
            key = ([dict(entry) for entry in entries], language)
            if self._own_layer is None or self._own_layer[0] != key:
                rules = self._check_entries(entries)
                self._own_layer = (key, compile_layer(JOB_LAYER, rules, language))
            layers.append(self._own_layer[1])
        chosen = dict.fromkeys(map(self.named, named))
        return layers + [self.layer(lexicon, language) for lexicon in chosen]

    def _check_entries(self, entries: Sequence[Mapping[str, Any]]) -> list[Rule]:
        """Return the rules of a job's own entries; the time that checking takes counts as well."""
        rules: list[Rule] = []
        until = time.monotonic() + LEXICON_SECONDS
        for place, entry in enumerate(entries):
            started = time.monotonic()
            rule = Rule(**entry)
            if self._left <= 0 or started > until or self._slow >= MAX_SLOW:
                raise _too_slow(rule, LEXICON_SECONDS)
            try:
                rules.append(check_rule(rule))
            except RuleError as error:
                self._slow += error.code == "pattern_too_slow"
                raise SubmitRejectedError(
                    error.code, error.message, attr=f"lexicon.{place}.{error.attr}"
                ) from error
            finally:
                self._left -= time.monotonic() - started
        return rules

    def _last_layers(
        self, voice_id: uuid.UUID | None, named: Sequence[str], language: str
    ) -> list[Layer]:
        if self._applying is None:
            scopes = (Lexicon.Scope.GLOBAL, Lexicon.Scope.VOICE)
            rows = find_applied_lexicons(self._owner).filter(enabled=True, scope__in=scopes)
            self._applying = sorted(
                rows, key=lambda row: (row.scope != "voice", row.owner_id is None, row.name)
            )
        before = set(map(self.named, named))
        return [
            self.layer(lexicon, language)
            for lexicon in self._applying
            if lexicon not in before
            and (lexicon.scope == Lexicon.Scope.GLOBAL or lexicon.voice_id == voice_id)
            and (lexicon.scope != Lexicon.Scope.VOICE or voice_id is not None)
        ]

    def _run_in_time(self, work: Callable[..., list[Piece]]) -> list[Piece]:
        allowed = min(LEXICON_SECONDS, self._left)
        budget = Budget(allowed)
        try:
            return work(budget=budget)
        except TooSlowError as error:
            raise _too_slow(error.rule, allowed) from error
        finally:
            self._left -= allowed - budget.left


def _too_slow(rule: Rule, seconds: float) -> SubmitRejectedError:
    return SubmitRejectedError(
        "lexicon_too_slow",
        f"Applying lexicons took more than {seconds:g} seconds, at the entry "
        f"{rule.find[:100]!r}. Make this entry simpler, or switch it off.",
        attr="text",
    )
