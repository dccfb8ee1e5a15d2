"""Name the languages that can be spelled out, and their words."""

from __future__ import annotations

from collections.abc import Mapping

from synth.text.spelling.forms import Words
from synth.text.spelling.germanic import DE, EN, NL
from synth.text.spelling.romance import ES, FR, IT, PT

WORDS: Mapping[str, Words] = {
    "en": EN, "de": DE, "fr": FR, "es": ES, "it": IT, "nl": NL, "pt": PT,
}  # fmt: skip
