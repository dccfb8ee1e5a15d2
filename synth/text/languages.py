"""Check language tags by the grammar of BCP 47 (RFC 5646), and write them the usual way."""

from __future__ import annotations

import re

MAX_TAG_CHARS = 35
# Also in the API's description, so without flags and names; groups 2 and 3 are script and region.
TAG_PATTERN = (
    "[A-Za-z]{2,3}(-[A-Za-z]{3}){0,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?"
    "(-([A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*(-[0-9A-WYZa-wyz](-[A-Za-z0-9]{2,8})+)*"
    "(-[Xx](-[A-Za-z0-9]{1,8})+)?"
)
_SCRIPT, _REGION = 2, 3


def language_tag(text: str) -> str | None:
    """Return a tag in its usual spelling, such as `pt-BR` or `zh-Hant`; None where it is none."""
    found = re.fullmatch(TAG_PATTERN, text) if len(text) <= MAX_TAG_CHARS else None
    if found is None:
        return None
    tag = text.lower()
    for group, spell in ((_SCRIPT, str.title), (_REGION, str.upper)):
        if found[group]:
            start, end = found.span(group)
            tag = tag[:start] + spell(tag[start:end]) + tag[end:]
    return tag


def base_of(tag: str) -> str:
    """Return the language of a tag such as `en-GB`, in lower case."""
    return tag.partition("-")[0].lower()
