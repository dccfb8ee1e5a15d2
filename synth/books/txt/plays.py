"""Find who speaks in the text of a play: names in capitals, or names that return, and a stop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from synth.books.txt.lines import Group, Line

_CAPITAL = r"[^\W\d_a-zß-öø-ÿ]"
_WORD = rf"{_CAPITAL}(?:{_CAPITAL}|['\u2019])*"
_NAME = rf"{_WORD}(?:[ .'\u2019-]{{1,2}}{_WORD}){{0,4}}"
_SPEAKER = re.compile(
    rf"_?(?P<name>{_NAME})_?(?P<aside>\s*[,(\[][^.:\]]{{0,80}}[)\]]?)?\s*[.:]_?"
    r"(?:(?:\s*[—–-]{1,3}\s*|\s+)(?P<words>\S.*))?\Z",  # noqa: RUF001
    re.DOTALL,
)
# Words before a colon that name a place or a time, and nobody.
_NOBODY = frozenset(
    {"SCENE", "SCENES", "SCÈNE", "SZENE", "ACT", "ACTE", "TIME", "PLACE", "NOTE", "P.S"}
)
_MIN_SPEAKERS = 2
_MIN_RETURNS = 3
_MIN_SHARE = 0.25
_MAX_NAME = 30


@dataclass(frozen=True, slots=True)
class Speech:
    """Hold what one person says; without a name it is a direction or goes on from before."""

    speaker: str
    aside: str
    lines: list[Line]
    first: str  # the words after the name in its line


def find_speakers(groups: Sequence[Group], *, is_play: bool) -> frozenset[str]:
    """Return the names of those who speak, or nothing where the text is no play.

    Args:
        groups: those that are no headings.
        is_play: whether the headings name acts or scenes; otherwise names must be all over it.
    """
    counts: Counter[str] = Counter()
    for group in groups:
        for index, line in enumerate(group.lines):
            match = _match(line.text)
            if match is not None and (match["words"] or index + 1 < len(group.lines)):
                counts[match["name"]] += 1
    often = {name for name, count in counts.items() if count >= _MIN_RETURNS}
    spoken = sum(counts[name] for name in often)
    if len(often) < _MIN_SPEAKERS or (not is_play and spoken < _MIN_SHARE * len(groups)):
        return frozenset()
    return frozenset(counts if is_play else often)


def split_speeches(group: Group, speakers: frozenset[str]) -> list[Speech]:
    """Cut a group at the lines in which somebody begins to speak."""
    speeches: list[Speech] = []
    for line in group.lines:
        match = _match(line.text)
        if match is not None and match["name"] in speakers:
            aside = (match["aside"] or "").strip(" ,([)]_")
            speeches.append(Speech(match["name"], aside, [line], match["words"] or ""))
        elif speeches:
            speeches[-1].lines.append(line)
        else:
            speeches.append(Speech("", "", [line], line.text))
    return speeches


def leading_name(text: str) -> str:
    """Return the name in capitals that a text begins with and a mark sets off, or nothing."""
    match = _match(text)
    return match["name"] if match is not None and match["words"] else ""


def _match(line: str) -> re.Match[str] | None:
    match = _SPEAKER.match(line[:200]) if line[:1].isupper() or line[:1] == "_" else None
    if match is None or len(match["name"]) > _MAX_NAME or not match["name"].isupper():
        return None
    if len(match["name"]) < 2 or match["name"] in _NOBODY:
        return None
    if re.fullmatch(r"[IVXLC]+", match["name"]):
        return None
    return _SPEAKER.match(line)
