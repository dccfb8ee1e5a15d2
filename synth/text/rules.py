"""Check the rules of a lexicon: what is found, what is said for it, and how long finding takes."""

from __future__ import annotations

import time
import unicodedata
from dataclasses import dataclass, replace
from typing import Literal

import regex

Kind = Literal["literal", "word", "regex"]
KINDS: tuple[Kind, ...] = ("literal", "word", "regex")
MAX_RULE_CHARS = 500

# What a pattern is tried against before it is kept. A segment is seldom longer than the probes.
PROBE_CHARS = 1000
PROBE_SECONDS = 0.2
MAX_SLOW = 3  # patterns that are too slow; then a request has had its time, and no more are tried
_TRIED_CHARACTERS = "a0A _-.,!é漢"
_MAX_TRIED = 24
# Recursion has no use in a text's words, and no bound that a trial could find.
_RECURSION = regex.compile(r"\(\?(?:R|[0-9]+|&\w+|P>\w+)\)")
_REFERENCE = regex.compile(r"\\(?:(?P<number>[0-9]{1,2})|g<(?P<name>\w{1,100})>|(?P<slash>\\)|)")


class RuleError(Exception):
    """A rule that cannot be used: `attr` is its field, `code` stable, the text says what to do."""

    def __init__(self, attr: str, code: str, message: str) -> None:
        super().__init__(message)
        self.attr, self.code, self.message = attr, code, message


class TooSlowError(Exception):
    """The time for applying rules is used up; `rule` is the one that was being applied."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.find)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Rule:
    """Say that `say` is spoken where `find` stands.

    `language` is a tag; the rule then holds for it and what is below it (`en` for `en-GB`), and
    for every language where it is empty.
    """

    find: str
    say: str
    kind: Kind = "word"
    case_sensitive: bool = False
    language: str = ""


class Budget:
    """Hold the seconds that may still be spent on finding; several texts may share one."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self._since = 0.0

    def start(self) -> None:
        """Begin to count."""
        self._since = time.monotonic()

    def spend(self, rule: Rule) -> None:
        """Take off the time since the last call of `start` or `spend`.

        Raises:
            TooSlowError: nothing is left.
        """
        now = time.monotonic()
        self.left -= now - self._since
        self._since = now
        if self.left <= 0:
            raise TooSlowError(rule)


def check_rule(rule: Rule) -> Rule:
    """Return a rule as it is kept, in NFC like the texts that it is held against.

    Raises:
        RuleError: find_empty, say_invalid, text_invalid, too_long, pattern_invalid (with the
            position), pattern_empty (it matches nothing at all), pattern_too_slow.
    """
    find, say = _clean("find", rule.find), _clean("say", rule.say)
    if rule.kind != "regex":
        find = " ".join(find.split())
    say = " ".join(say.split())
    if not find.strip():
        raise RuleError("find", "find_empty", "This is empty; write the text to find.")
    if "<|" in say:
        raise RuleError(
            "say", "say_invalid", "The replacement cannot contain tags such as <|speaker:1|>."
        )
    kept = replace(rule, find=find, say=say)
    if kept.kind == "regex":
        compiled = compile_pattern(kept)
        _check_references(compiled, say)
        try:
            _try_out(compiled, find)
        except TimeoutError as error:
            raise RuleError(
                "find",
                "pattern_too_slow",
                f"The pattern took more than {PROBE_SECONDS:g} seconds for {PROBE_CHARS} "
                "characters, as it can match the same text in too many ways. Do not repeat a "
                "repetition, as (a+)+ does; a+ matches the same.",
            ) from error
    return kept


def compile_pattern(rule: Rule) -> regex.Pattern[str]:
    """Return the compiled pattern of a rule of kind `regex`.

    Raises:
        RuleError: pattern_invalid, with the position of the fault.
    """
    cause: Exception | None = None
    message = "A pattern cannot call itself or its groups; write it without recursion."
    if not _RECURSION.search(rule.find):
        flags = regex.V0 if rule.case_sensitive else regex.V0 | regex.IGNORECASE
        try:
            return regex.compile(rule.find, flags)
        except regex.error as error:
            place = f" (at character {error.pos + 1})" if error.pos is not None else ""
            message = f"The pattern is not valid: {error.msg or 'it cannot be read'}{place}."
            cause = error
        except (RecursionError, OverflowError, MemoryError, ValueError, TypeError) as error:
            message = "The pattern is not valid: it is nested too deeply; make it simpler."
            cause = error
    raise RuleError("find", "pattern_invalid", message) from cause


def expand_say(rule: Rule, found: regex.Match[str] | None) -> str:
    """Return what is said for one finding; group references are filled in for patterns alone."""
    if found is None or "\\" not in rule.say:
        return rule.say

    def fill(part: regex.Match[str]) -> str:
        return "\\" if part["slash"] else str(found[part["name"] or int(part["number"])] or "")

    return str(_REFERENCE.sub(fill, rule.say))


def _clean(attr: str, text: str) -> str:
    """Return a text in NFC, or refuse what no text holds."""
    if len(text) > MAX_RULE_CHARS:
        message = f"This has {len(text)} characters; at most {MAX_RULE_CHARS} are allowed."
        raise RuleError(attr, "too_long", message)
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        message = "This contains a control character, or half of a surrogate pair; remove it."
        raise RuleError(attr, "text_invalid", message)
    return unicodedata.normalize("NFC", text)


def _check_references(compiled: regex.Pattern[str], say: str) -> None:
    """Refuse references to groups that the pattern has not."""
    for part in _REFERENCE.finditer(say):
        number, name = part["number"], part["name"]
        if number is None and name is None and not part["slash"]:
            raise RuleError(
                "say",
                "say_invalid",
                f"The backslash at character {part.start() + 1} does not begin a reference "
                "such as \\1 or \\g<name>; write \\\\ for a backslash.",
            )
        is_group = number is None or int(number) <= compiled.groups
        if not is_group or (name is not None and name not in compiled.groupindex):
            message = f"{part[0]} refers to no group; the pattern has {compiled.groups}."
            raise RuleError("say", "say_invalid", message)


def _try_out(compiled: regex.Pattern[str], pattern: str) -> None:
    """Refuse a pattern that matches nothing at all, and let careless ones try every way to match.

    They do with long runs of what the pattern may take, then something that it does not take, then
    what it waits for: without that it would be given up before it begins.

    Raises:
        TimeoutError: the pattern is too slow.
    """
    for text in ("", "a b"):
        found = compiled.search(text, timeout=PROBE_SECONDS, concurrent=True)
        if found is not None and not found[0]:
            message = "The pattern matches an empty text; let it match at least one character."
            raise RuleError("find", "pattern_empty", message)
    own = [character for character in dict.fromkeys(pattern) if character not in r"\()[]{}|*+?^$"]
    tried = list(dict.fromkeys([*_TRIED_CHARACTERS, *own]))[:_MAX_TRIED]
    waited_for = "".join(own)
    words = "".join(part for part in regex.split(r"[^\w\s]+", pattern) if part)[:20]
    runs = [character * PROBE_CHARS for character in tried]
    runs += [(one * 3 + two) * (PROBE_CHARS // 4) for one, two in (("a", " "), ("0", "."))]
    runs += [part * (PROBE_CHARS // len(part)) for part in (words, waited_for) if part]
    for run in runs:
        for text in (f"{run}\x01{waited_for}", f"{waited_for}{run}\x01"):
            # All findings, as in a text; the lock that all Python code needs is let go.
            for _ in compiled.finditer(text, timeout=PROBE_SECONDS, concurrent=True):
                pass
