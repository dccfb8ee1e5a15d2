"""Which words a lexicon finds, and in which order its rules count."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from synth.text.respeaking import Change, Layer, fold
from synth.text.rules import Budget, Rule, RuleError, TooSlowError, check_rule

# ruff: noqa: RUF001  # look-alikes of ASCII are what this is about


def said(text: str, *rules: Rule, language: str = "en") -> str:
    """Return a text as one lexicon has it spoken."""
    spoken, place = "", 0
    for change in Layer("mine", rules, language).find(text, [], Budget(5)):
        spoken += text[place : change.start] + change.said
        place = change.end
    return spoken + text[place:]


@pytest.mark.parametrize(
    ("text", "find", "language", "expected"),
    [
        ("cat concat cats cat.", "cat", "en", "X concat cats X."),
        ("café cafe CAFE cafés", "cafe", "en", "café X X cafés"),
        ("café CAFÉ cafe", "café", "en", "X X cafe"),
        ("don't Don donkey 'don'", "don", "en", "don't X donkey 'X'"),
        ("don’t", "don", "en", "don’t"),
        ("Ada's Adas Ada’s", "Ada", "en", "X's Adas X’s"),
        ("O'Neill Neill", "Neill", "en", "O'Neill X"),
        ("l'école d’école école", "école", "fr", "l'X d’X X"),
        ("dell'arte", "arte", "it", "dell'X"),
        ("New-York York", "York", "en", "New-X X"),
        ("C++ and C", "C++", "en", "X and C"),
        ("C++ and C", "C", "en", "X++ and X"),
        (".NET net", ".NET", "en", "X net"),
        ("3 and 3.5 and 13 and 3,000", "3", "en", "X and 3.5 and 13 and 3,000"),
        ("东京都和东京", "东京", "zh", "X都和X"),
        ("AIは人工知能", "AI", "ja", "Xは人工知能"),
        ("Ελλάς ΕΛΛΑΣ", "Ελλας", "el", "Ελλάς X"),
        ("naïve naive", "naive", "en", "naïve X"),
        ("snake_case case", "case", "en", "snake_case X"),
        ("STRASSE Straße", "Straße", "de", "STRASSE X"),
        ("हिन्दी हिन्दीभाषा", "हिन्दी", "hi", "X हिन्दीभाषा"),
    ],
)
def test_word_is_found_between_the_edges_of_words(
    text: str, find: str, language: str, expected: str
) -> None:
    assert said(text, Rule(find, "X"), language=language) == expected


LONGER = (Rule("New", "a"), Rule("New York", "b"), Rule("New York City", "c"))
PATTERN, WORD = Rule(r"\d+ km", "far", "regex"), Rule("5 km", "near")


@pytest.mark.parametrize(
    ("text", "rules", "expected"),
    [
        # A literal is found inside of words, and case counts only where it is asked for.
        ("concat CAT", [Rule("cat", "X", "literal")], "conX X"),
        ("IT it It", [Rule("IT", "I T", case_sensitive=True)], "I T it It"),
        ("IT it It", [Rule("it", "X")], "X X X"),
        # The longest one at a place wins whatever the order.
        ("New York City, New York, New.", LONGER, "c, b, a."),
        ("New York City, New York, New.", LONGER[::-1], "c, b, a."),
        # An earlier pattern wins over a literal, and a later one does not.
        ("5 km 7 km", [PATTERN, WORD], "far far"),
        ("5 km 7 km", [WORD, PATTERN], "near far"),
        # Groups of a pattern are filled in; one that took no part is nothing.
        ("1/2 and 3/4", [Rule(r"(\d+)/(\d+)", r"\1 over \2", "regex")], "1 over 2 and 3 over 4"),
        ("v3", [Rule(r"v(?P<n>\d+)", r"version \g<n> \\", "regex")], "version 3 \\"),
        ("x", [Rule("x", r"\1", "word")], "\\1"),
        ("ab b", [Rule("(a)?b", r"[\1]", "regex")], "[a] []"),
        # Looking around sees the text as it was.
        ("the cat", [Rule("the", "THE"), Rule(r"(?<=the )cat", "dog", "regex")], "THE dog"),
    ],
)
def test_rules_are_applied_in_their_order(text: str, rules: Sequence[Rule], expected: str) -> None:
    assert said(text, *rules) == expected


def test_marks_for_the_model_are_replaced_whole_or_not_at_all() -> None:
    text = "[laugh] laugh <|speaker:1|> speaker"
    assert said(text, Rule("laugh", "X"), Rule("speaker", "Y")) == "[laugh] X <|speaker:1|> Y"
    assert said(text, Rule("[laugh]", "")) == " laugh <|speaker:1|> speaker"


def test_what_an_earlier_layer_took_stays() -> None:
    taken = [Change(4, 8, "x", "job")]
    changes = Layer("mine", [Rule("New York", "a"), Rule("York", "b")], "en").find(
        "New York York", taken, Budget(5)
    )
    assert [(change.start, change.said) for change in changes] == [(9, "b")]


def test_rule_holds_for_its_language_and_what_is_below_it() -> None:
    for wanted, language in (("", "de"), ("en", "en"), ("en", "en-GB"), ("EN-gb", "en-GB")):
        assert said("a", Rule("a", "b", language=wanted), language=language) == "b", wanted
    for wanted, language in (("en-GB", "en"), ("e", "en"), ("de", "en")):
        assert said("a", Rule("a", "b", language=wanted), language=language) == "a", wanted


def test_folding_keeps_every_place() -> None:
    text = "İSTANBUL ß ﬁ ΣΑΣ Ǆ"
    assert len(fold(text)) == len(text)


def test_thousands_of_rules_on_a_long_text_take_seconds_at_most() -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(3, 9))) for _ in range(5000)]
    layer = Layer("mine", [Rule(word, "x") for word in words], "en")
    text = " ".join(draw.choices(words, k=30_000))
    started = time.process_time()
    changes = layer.find(text, [], Budget(60))
    assert len(changes) == 30_000
    assert time.process_time() - started < 10


def test_many_patterns_use_up_the_time_and_are_stopped() -> None:
    rules = [Rule(rf"(\w+)x{number}", "y", "regex") for number in range(3000)]
    layer = Layer("mine", rules, "en")
    with pytest.raises(TooSlowError):
        for _ in range(10_000):
            layer.find("abcdefgh " * 30, [], budget := Budget(0.05))
            assert budget.left > 0


def code_of(find: str, say: str = "x", kind: str = "regex") -> str:
    with pytest.raises(RuleError) as refused:
        check_rule(Rule(find, say, kind))  # type: ignore[arg-type]  # one of the three
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
    assert check_rule(Rule(pattern, "x", "regex")).find == pattern


@pytest.mark.parametrize(
    ("find", "say", "code"),
    [
        *((find, "x", "pattern_invalid") for find in (
            "(", "[", "a{99999999999999999999}", r"\p{Foo}", "\\", "(?R)a", "(?P<n>a)(?&n)", "*a",
            "(?<n", "(" * 400)),
        *((find, "x", "pattern_empty") for find in (
            "a*", r"\b", "(?=a)", "^", "a|", "(a?)(b?)", "$")),
        *(("(?P<n>a)", say, "say_invalid") for say in (  # of no group
            r"\2", r"\g<m>", r"\x", "\\", r"\g<", "\\\\\\")),
    ],
)  # fmt: skip
def test_pattern_and_references_that_cannot_be_used_are_refused(
    find: str, say: str, code: str
) -> None:
    assert code_of(find, say) == code


def test_references_to_groups_are_kept_and_a_backslash_of_a_word_is_only_a_backslash() -> None:
    assert check_rule(Rule("(?P<n>a)", r"\1 \g<n> \g<n> \\ \0", "regex")).say
    assert check_rule(Rule("a", r"\9")).say == r"\9"


def test_control_characters_are_refused_in_both_fields() -> None:
    for text in ("a\0", "a\ud800", "a\nb", "\x1b", "\t"):
        assert code_of(text, kind="literal") == "text_invalid", repr(text)
        assert code_of("a", text, kind="literal") == "text_invalid", repr(text)


def test_find_and_say_are_kept_as_texts_are_cleaned() -> None:
    rule = check_rule(Rule("  New   York ", " Nu  Jo\u0301rk "))
    assert (rule.find, rule.say) == ("New York", "Nu J\u00f3rk")
