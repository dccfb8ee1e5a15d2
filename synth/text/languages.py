"""Check language tags by the grammar of BCP 47 (RFC 5646), and write them the usual way."""

from __future__ import annotations

import re

MAX_TAG_CHARS = 35
# The same grammar without names of groups and flags, for the API's description.
TAG_PATTERN = (
    "[A-Za-z]{2,3}(-[A-Za-z]{3}){0,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?"
    "(-([A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*(-[0-9A-WYZa-wyz](-[A-Za-z0-9]{2,8})+)*"
    "(-[Xx](-[A-Za-z0-9]{1,8})+)?"
)
_TAG = re.compile(
    r"(?P<language>[a-z]{2,3})(-[a-z]{3}){0,3}"
    r"(-(?P<script>[a-z]{4}))?"
    r"(-(?P<region>[a-z]{2}|[0-9]{3}))?"
    r"(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"  # variants
    r"(-[0-9a-wy-z](-[a-z0-9]{2,8})+)*"  # extensions
    r"(-x(-[a-z0-9]{1,8})+)?",  # private use
    re.IGNORECASE | re.ASCII,
)


def language_tag(text: str) -> str | None:
    """Return a tag in its usual spelling, such as `pt-BR` or `zh-Hant`; None where it is none."""
    found = _TAG.fullmatch(text) if len(text) <= MAX_TAG_CHARS else None
    if found is None:
        return None
    tag = text.lower()
    for name, spell in (("script", str.title), ("region", str.upper)):
        if found[name]:
            start, end = found.span(name)
            tag = tag[:start] + spell(tag[start:end]) + tag[end:]
    return tag


def base_of(tag: str) -> str:
    """Return the language of a tag such as `en-GB`, in lower case."""
    return tag.partition("-")[0].lower()
