"""Put what is said in place of what is written, piece by piece; what is written stays as it is.

Words are replaced by layers of rules, each place once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import regex

from synth.text.languages import base_of
from synth.text.normalise import TextRejectedError, is_speakable
from synth.text.pauses import DEFAULT_PAUSES, Pauses
from synth.text.rules import Budget, Rule, TooSlowError, compile_pattern, expand_say
from synth.text.segments import Piece
from synth.text.sentences import cut_long
from synth.text.speller import places_inside

# ruff: noqa: RUF001  # look-alikes of ASCII are what this module is about


APOSTROPHES = "'’ʼ＇"
# Their words are written without blanks, so that every place between two letters may be an edge.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR",
             "BOPOMOFO", "TIBETAN", "JAVANESE")  # fmt: skip
# In these an apostrophe ends a word (l'école, dell'arte); elsewhere it is inside one (don't).
_ELIDING = frozenset({"fr", "it", "ca", "oc"})


def is_word(text: str, start: int, end: int, language: str) -> bool:
    """Say whether text[start:end] begins and ends where words do.

    An end that is no letter, mark, digit or underscore (`C++`, `.NET`) asks for nothing there.
    """
    return _is_start(text, start, language) and _is_end(text, end, language)


def _is_start(text: str, place: int, language: str) -> bool:
    if place == 0 or not _is_part(text[place]):
        return True
    before = text[place - 1]
    if _is_part(before):
        return _is_unspaced(before) or _is_unspaced(text[place])
    if place < 2 or not _is_part(text[place - 2]):
        return True
    if before in APOSTROPHES:
        return base_of(language) in _ELIDING
    return not _joins_digits(text[place - 2 : place + 1])


def _is_end(text: str, place: int, language: str) -> bool:
    if place == len(text) or not _is_part(text[place - 1]):
        return True
    after = text[place]
    if _is_part(after):
        is_mark = unicodedata.category(after).startswith("M")
        return not is_mark and (_is_unspaced(after) or _is_unspaced(text[place - 1]))
    if place + 1 == len(text) or not _is_part(text[place + 1]):
        return True
    if after in APOSTROPHES:  # Ada's is the word Ada
        is_last = place + 2 == len(text) or not _is_part(text[place + 2])
        return base_of(language) in _ELIDING or (text[place + 1] in "sS" and is_last)
    return not _joins_digits(text[place - 1 : place + 2])


def _joins_digits(three: str) -> bool:
    """Say whether a mark stands inside of a number: 3.5 is not 3 and 5."""
    return three[1] in ".,:" and three[0].isdigit() and three[2].isdigit()


def _is_part(character: str) -> bool:
    """Say whether a character can be inside of a word: letter, mark, digit, underscore, joiner."""
    is_plain = character.isalnum() or character in "_\u200c\u200d"
    return is_plain or unicodedata.category(character).startswith("M")


def _is_unspaced(character: str) -> bool:
    return character >= "\u0e00" and unicodedata.name(character, "").startswith(_UNSPACED)


# Marks that steer the model, such as [laugh]: no rule changes a part of one, whole ones it may.
_MARKS = regex.compile(r"<\|[^|<>\n]{0,100}\|>|\[\p{L}[^\[\]\n]{0,100}\]")
_LEAF = ""  # a key that no single character is


@dataclass(frozen=True, slots=True)
class Change:
    """Say that text[start:end] is spoken as `said`, because of the layer `by`."""

    start: int
    end: int
    said: str
    by: str


class Layer:
    """Hold the rules of one lexicon in one language, ready to be looked for.

    At each place the longest literal or word that fits is taken, before it the patterns that stand
    earlier in the lexicon; then the search goes on behind it.
    """

    def __init__(self, name: str, rules: Iterable[Rule], language: str) -> None:
        """Compile the rules that hold for a language tag.

        Raises:
            RuleError: pattern_invalid, of a pattern that has never been checked.
        """
        self.name, self.language = name, language
        self._exact: dict[str, object] = {}
        self._folded: dict[str, object] = {}
        self._patterns: list[tuple[int, Rule, regex.Pattern[str]]] = []
        self._last: Rule | None = None
        for index, rule in enumerate(rules):
            if not holds_for(rule.language, language):
                continue
            self._last = rule
            if rule.kind == "regex":
                self._patterns.append((index, rule, compile_pattern(rule)))
            else:
                tree = self._exact if rule.case_sensitive else self._folded
                _grow(tree, rule.find if rule.case_sensitive else fold(rule.find), index, rule)

    def __bool__(self) -> bool:
        return self._last is not None

    def find(self, text: str, taken: Sequence[Change], budget: Budget) -> list[Change]:
        """Return the changes of a text in order, outside of what is taken and of parts of marks.

        Raises:
            TooSlowError: the time is used up.
        """
        if self._last is None:
            return []
        budget.start()
        trees = [(self._exact, text)] + [(self._folded, fold(text))] * bool(self._folded)
        patterns = [_Search(*pattern) for pattern in self._patterns]
        marks = [match.span() for match in _MARKS.finditer(text)]

        def find_at(place: int) -> Change | None:
            best: tuple[int, int, str] | None = None  # index of the rule, end, what is said
            for tree, letters in trees:
                for end, index, rule in _walk(tree, letters, place):
                    if best is not None and (-end, index) > (-best[1], best[0]):
                        continue
                    is_whole = rule.kind != "word" or is_word(text, place, end, self.language)
                    if is_whole and not _touches(place, end, taken, marks):
                        best = (index, end, rule.say)
            for search in patterns:
                if best is not None and search.index > best[0]:
                    break
                match = search.at(text, place, budget)
                if match is not None and not _touches(place, match.end(), taken, marks):
                    best = (search.index, match.end(), expand_say(search.rule, match))
                    break
            return Change(place, best[1], best[2], self.name) if best else None

        changes: list[Change] = []
        place = 0
        while place < len(text):
            found = find_at(place)
            if found is not None:
                changes.append(found)
            place = place + 1 if found is None else max(found.end, place + 1)
            if place % 64 == 0:
                budget.spend(self._last)
        budget.spend(self._last)
        return changes


def _touches(
    start: int, end: int, taken: Sequence[Change], marks: Sequence[tuple[int, int]]
) -> bool:
    if any(start < other.end and other.start < end for other in taken):
        return True
    return any(
        start < last and first < end and not (start <= first and last <= end)
        for first, last in marks
    )


def holds_for(wanted: str, language: str) -> bool:
    """Say whether a rule for the tag `wanted` holds for a text in `language`."""
    wanted, language = wanted.lower(), language.lower()
    return not wanted or language == wanted or language.startswith(f"{wanted}-")


def fold(text: str) -> str:
    """Return a text with case folded, character by character so that places stay what they are."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    parts = (character.casefold() for character in text)
    return "".join(
        part if len(part) == 1 else character for part, character in zip(parts, text, strict=True)
    )


class _Search:
    """Hold where one pattern matches next."""

    def __init__(self, index: int, rule: Rule, compiled: regex.Pattern[str]) -> None:
        self.index, self.rule, self._compiled = index, rule, compiled
        self._next: regex.Match[str] | None = None
        self._has_begun = False

    def at(self, text: str, place: int, budget: Budget) -> regex.Match[str] | None:
        """Return the match that begins at a place; places must not go back."""
        if not self._has_begun or (self._next is not None and self._next.start() < place):
            seconds = max(budget.left, 0.001)
            try:
                self._next = self._compiled.search(text, place, timeout=seconds, concurrent=True)
            except TimeoutError as error:
                budget.left = 0.0
                raise TooSlowError(self.rule) from error
            budget.spend(self.rule)
            self._has_begun = True
        match = self._next
        is_here = match is not None and match.start() == place and match.end() > place
        return match if is_here else None


def _grow(tree: dict[str, object], find: str, index: int, rule: Rule) -> None:
    """Put a rule into a tree of characters; of two with the same letters a word comes first."""
    node = tree
    for character in find:
        node = node.setdefault(character, {})  # type: ignore[assignment]  # only leaves are no dict
    rules = node.setdefault(_LEAF, [])
    assert isinstance(rules, list)
    rules.append((index, rule))


def _walk(tree: dict[str, object], text: str, place: int) -> Iterator[tuple[int, int, Rule]]:
    """Yield (end, index, rule) of what may begin at a place."""
    node, end = tree, place
    while True:
        rules = node.get(_LEAF)
        if isinstance(rules, list):
            yield from ((end, index, rule) for index, rule in rules)
        following = node.get(text[end]) if end < len(text) else None
        if not isinstance(following, dict):
            return
        node, end = following, end + 1


# What is spoken may be longer than what is written, within reason: it is stored and rendered.
MAX_GROWTH = 10
MIN_SPOKEN_CHARS = 10_000
_SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
SPELLED = "normalise"  # names what spelling out has changed, where others have a lexicon's name


@dataclass(frozen=True, slots=True)
class SpokenPiece(Piece):
    """Hold a piece and what in it is spoken otherwise; changes count from the start of `text`."""

    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Speech:
    """Hold how one speaker's words are spoken: layers, first ones first, then spelling out."""

    layers: Sequence[Layer] = ()
    spell_out: Callable[[str], Iterable[tuple[int, int, str]]] | None = None
    language: str = ""  # says what belongs together where a piece is cut again

    def changes(self, text: str, budget: Budget) -> list[Change]:
        """Return the changes of a text in order; none overlap.

        Raises:
            TooSlowError: the time is used up.
        """
        found: list[Change] = []
        for layer in self.layers:
            found += list(layer.find(text, found, budget))
        if self.spell_out is not None:
            for start, end, said in self.spell_out(text):
                if not any(start < other.end and other.start < end for other in found):
                    found.append(Change(start, end, said, SPELLED))
        return sorted(found, key=lambda change: change.start)


def respeak(
    pieces: Sequence[Piece],
    speech_of: Callable[[int], Speech],
    *,
    max_chars: int,
    budget: Budget,
    pauses: Pauses = DEFAULT_PAUSES,
) -> list[Piece]:
    """Return the pieces as they are spoken; those without a change are returned as they came.

    A piece that has grown beyond `max_chars` is cut again. One that has nothing left to speak is
    dropped: its text joins a neighbour's, and of both pauses the longer one stays.

    Args:
        speech_of: returns how a speaker's words are spoken.
        budget: seconds for finding.
        pauses: how long the silence is where a piece is cut again.

    Raises:
        TextRejectedError: text_unspeakable, nothing is left at all; spoken_too_long;
            spoken_invalid, a speaker's tag would be spoken.
        TooSlowError: the time is used up.
    """
    allowed = max(MIN_SPOKEN_CHARS, MAX_GROWTH * sum(len(piece.spoken_text) for piece in pieces))
    spoken: list[Piece] = []
    for piece in pieces:
        speech = speech_of(piece.speaker)
        changes = speech.changes(piece.spoken_text, budget)
        parts = _apply_changes(piece, changes, max_chars, pauses, speech) if changes else [piece]
        allowed -= sum(len(part.spoken_text) for part in parts)
        if allowed < 0:
            raise TextRejectedError(
                "spoken_too_long",
                f"With the lexicons applied, the spoken text is more than {MAX_GROWTH} "
                "times as long as the text. Make the entries' replacements shorter.",
            )
        spoken += parts
    return _join_silent(spoken)


def _apply_changes(
    piece: Piece, changes: Sequence[Change], max_chars: int, pauses: Pauses, speech: Speech
) -> list[Piece]:
    """Return a piece with its changes, in as many parts as its length asks for."""
    said, origins, spelled = _apply(piece.spoken_text, changes)
    if _SPEAKER_TAG.search(said):  # put together of a group and what stands beside it
        raise TextRejectedError(
            "spoken_invalid",
            "A lexicon's replacement contains a speaker tag; only the text itself may "
            "contain such tags.",
        )
    offset = max(0, piece.text.rfind(piece.spoken_text))
    is_number = places_inside(said, speech.language)  # as such; the others were spelled out

    def inside(place: int) -> bool:
        return any(start < place < end for start, end in spelled) or is_number(place)

    spans = list(cut_long(said, 0, len(said), max_chars, pauses, inside=inside))
    parts: list[Piece] = []
    begin = 0  # in the piece's text
    for number, (start, end, pause_ms) in enumerate(spans, 1):
        is_last = number == len(spans)
        finish = len(piece.text) if is_last else offset + origins[end - 1]
        text = piece.text[begin:finish]
        blanks = len(text) - len(text.lstrip()) if len(spans) > 1 else 0
        own = [
            change
            for change in changes
            if begin <= offset + change.start and (is_last or offset + change.start < finish)
        ]
        parts.append(
            SpokenPiece(
                text=text.strip() if len(spans) > 1 else text,
                spoken_text=said[start:end].rstrip(),
                pause_after_ms=piece.pause_after_ms if is_last else pause_ms,
                speaker=piece.speaker,
                changes=_move(own, offset - begin - blanks),
            )
        )
        begin = finish
    return parts


def _move(changes: Iterable[Change], by: int) -> tuple[Change, ...]:
    return tuple(replace(one, start=one.start + by, end=one.end + by) for one in changes)


def _apply(text: str, changes: Sequence[Change]) -> tuple[str, list[int], list[tuple[int, int]]]:
    """Return what is said, with single blanks, and for each character where its source ends.

    Last come the places of what was spelled out.
    """
    letters: list[str] = []
    origins: list[int] = []
    spelled: list[tuple[int, int]] = []

    def add(said: str, ends: Iterable[int]) -> None:
        for letter, end in zip(said, ends, strict=True):
            if letter == " " and (not letters or letters[-1] == " "):
                continue
            letters.append(letter)
            origins.append(end)

    place = 0
    for change in changes:
        add(text[place : change.start], range(place + 1, change.start + 1))
        first = len(letters)
        add(change.said, [change.end] * len(change.said))
        if change.by == SPELLED:
            spelled.append((first, len(letters)))
        place = change.end
    add(text[place:], range(place + 1, len(text) + 1))
    while letters and letters[-1] == " ":
        letters.pop()
        origins.pop()
    return "".join(letters), origins, spelled


def _join_silent(pieces: Sequence[Piece]) -> list[Piece]:
    """Give the texts of pieces that have nothing to speak to a neighbour.

    Raises:
        TextRejectedError: text_unspeakable, there is no other piece.
    """
    kept: list[Piece] = []
    before = ""  # the first piece that is spoken
    for piece in pieces:
        if is_speakable(piece.spoken_text):
            kept.append(_prepend(piece, before) if before else piece)
            before = ""
        elif kept:
            pause_ms = max(kept[-1].pause_after_ms, piece.pause_after_ms)
            text = _join(kept[-1].text, piece.text)
            kept[-1] = replace(kept[-1], text=text, pause_after_ms=pause_ms)
        else:
            before = _join(before, piece.text)
    if not kept:
        raise TextRejectedError(
            "text_unspeakable", "With the lexicons applied, no letter or digit is left to speak."
        )
    if kept[-1].pause_after_ms:
        kept[-1] = replace(kept[-1], pause_after_ms=0)
    return kept


def _prepend(piece: Piece, before: str) -> Piece:
    text = _join(before, piece.text)
    if not isinstance(piece, SpokenPiece):
        return replace(piece, text=text)
    moved = _move(piece.changes, len(text) - len(piece.text))
    return replace(piece, text=text, changes=moved)


def _join(*texts: str) -> str:
    return " ".join(text for text in texts if text)
