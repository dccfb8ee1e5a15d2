"""Replace words by what is said for them: layers of rules, each place replaced once."""

from __future__ import annotations

# ruff: noqa: RUF001  # look-alikes of ASCII are what this module is about
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import regex

from synth.text.languages import base_of
from synth.text.rules import Budget, Rule, TooSlowError, compile_pattern, expand_say

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
    """Say whether text[start:end] overlaps a change, or a part of a mark."""
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
