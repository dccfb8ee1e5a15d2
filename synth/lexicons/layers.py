"""Keep lexicons as they were compiled last, in each process."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable

from synth.jobs.rejections import SubmitRejectedError
from synth.models import Lexicon, LexiconEntry
from synth.text.replacing import Layer
from synth.text.rules import Rule, RuleError

MAX_LAYERS = 16  # one of 5,000 words takes about 10 MB

_Key = tuple[uuid.UUID, dt.datetime, str, str, str]


class LayerCache:
    """Hold the layers that were used last.

    The key has the time of the lexicon's last change, which every change of an entry moves on, so
    that nothing here is ever out of date.
    """

    def __init__(self, max_layers: int = MAX_LAYERS) -> None:
        self._max_layers = max_layers
        self._layers: OrderedDict[_Key, Layer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, lexicon: Lexicon, language: str) -> Layer:
        """Return a lexicon's layer for texts in a language; entries are read where it is not held.

        Raises:
            SubmitRejectedError: pattern_invalid, of a pattern that another release has kept.
        """
        key = (lexicon.pk, lexicon.updated_at, lexicon.name, lexicon.language, language)
        with self._lock:
            held = self._layers.get(key)
            if held is not None:
                self._layers.move_to_end(key)
                return held
        entries = lexicon.entries.filter(enabled=True)
        layer = layer_of(lexicon.name, (rule_of(row, lexicon) for row in entries), language)
        with self._lock:
            self._layers[key] = layer
            while len(self._layers) > self._max_layers:
                self._layers.popitem(last=False)
        return layer


def rule_of(entry: LexiconEntry, lexicon: Lexicon) -> Rule:
    """Return the rule of a row; without a language of its own it has its lexicon's."""
    return Rule(
        entry.find,
        entry.say,
        "regex" if entry.kind == "regex" else "literal" if entry.kind == "literal" else "word",
        entry.case_sensitive,
        entry.language or lexicon.language,
    )


def layer_of(name: str, rules: Iterable[Rule], language: str) -> Layer:
    """Return rules as a layer; raises as `LayerCache.get`."""
    try:
        return Layer(name, rules, language)
    except RuleError as error:  # a pattern that was kept by another release of the library
        raise SubmitRejectedError(
            400,
            error.code,
            f"An entry of the lexicon {name!r} cannot be used: {error.message}",
            attr="lexicons",
        ) from error
