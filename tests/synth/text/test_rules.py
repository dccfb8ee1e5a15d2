"""What a lexicon keeps, and what it refuses: patterns above all."""

from __future__ import annotations

import time

import pytest

from synth.text.rules import Rule, RuleError, checked_rule


def code_of(find: str, say: str = "x", kind: str = "regex") -> str:
    with pytest.raises(RuleError) as refused:
        checked_rule(Rule(find, say, kind))  # type: ignore[arg-type]  # one of the three
    return refused.value.code


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$", r"(a|aa)+$", r"(a|a)*$b", r"(x+x+)+y", r"^(([a-z])+.)+[A-Z]([a-z])+$",
        r"(.*?,){12}P", r"(\d+)+%", r"([a-zA-Z]+)*\d", "(\u00e9+)+$", "(\u6f22+)+!",
        r"(\s+\s+)+x", r"(?:-+-+)+>", r"(((a{1,500}){1,500}){1,500})b", r"(a?){300}a{300}",
        r"(\w+\d+\w+)+=", r"(q|qq|qqq)+z",
    ],
)  # fmt: skip
def test_pattern_that_backtracks_for_ever_is_refused_and_soon(pattern: str) -> None:
    started = time.process_time()

    code = code_of(pattern)

    assert code in ("pattern_too_slow", "pattern_empty")
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d+ ?km", r"(\w+) (\w+)", r"\bDr\.", r"[A-Z]{2,5}\d*", r"(?i)foo(bar)?", r"https?://\S+",
        r".+", r"\w+ing\b", r"(?<=\$)\d+(\.\d+)?", r"(\d{1,3}(,\d{3})*)(\.\d+)?", r"\p{Lu}+",
        r"colou?r|grey|gray", r"(?<!\w)St\. (?=\p{Lu})", "[\u4e00-\u9fff]+",
    ],
)  # fmt: skip
def test_plain_pattern_is_kept(pattern: str) -> None:
    assert checked_rule(Rule(pattern, "x", "regex")).find == pattern


@pytest.mark.parametrize("pattern", ["(", "[", "a{99999999999999999999}", r"\p{Foo}", "\\", "(?R)a",
                                     "(?P<n>a)(?&n)", "*a", "(?<n", "(" * 400])  # fmt: skip
def test_pattern_that_cannot_be_read_is_refused(pattern: str) -> None:
    assert code_of(pattern) == "pattern_invalid"


@pytest.mark.parametrize("pattern", ["a*", r"\b", "(?=a)", "^", "a|", "(a?)(b?)", "$"])
def test_pattern_that_matches_nothing_at_all_is_refused(pattern: str) -> None:
    assert code_of(pattern) == "pattern_empty"


@pytest.mark.parametrize("say", [r"\2", r"\g<m>", r"\x", "\\", r"\g<", "\\\\\\"])
def test_reference_to_no_group_is_refused(say: str) -> None:
    assert code_of("(?P<n>a)", say) == "say_invalid"


def test_references_to_groups_are_kept() -> None:
    assert checked_rule(Rule("(?P<n>a)", r"\1 \g<n> \g<n> \\ \0", "regex")).say


def test_backslash_of_a_word_is_only_a_backslash() -> None:
    assert checked_rule(Rule("a", r"\9")).say == r"\9"


@pytest.mark.parametrize("text", ["a\0", "a\ud800", "a\nb", "\x1b", "\t"])
def test_control_characters_are_refused_in_both_fields(text: str) -> None:
    assert code_of(text, kind="literal") == "text_invalid"
    assert code_of("a", text, kind="literal") == "text_invalid"


def test_find_and_say_are_kept_as_texts_are_cleaned() -> None:
    rule = checked_rule(Rule("  New   York ", " Nu  Jo\u0301rk "))

    assert (rule.find, rule.say) == ("New York", "Nu J\u00f3rk")
