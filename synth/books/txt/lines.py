"""Cut a plain text into lines and groups of lines, join hard-wrapped lines again, find speeches."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from synth.books.book import count_chars
from synth.books.documents.labels import is_eastern_label
from synth.books.documents.markup import CJK

_CJK_END, _CJK_START = re.compile(rf"[{CJK}]\Z"), re.compile(rf"[{CJK}]")
_STARS = re.compile(r"(?:\*\s*){3,}|⁂")  # between two scenes, with or without blank lines
_WORD_END = re.compile(r"([^\W\d_]+)[-\u2010]\Z")
_WORD_START = re.compile(r"([^\W\d_]+)")
_WORDS = re.compile(r"[^\W\d_]+(?:[-\u2010'\u2019][^\W\d_]+)*")
_SUSPENDED = frozenset({"und", "oder", "bis", "bzw", "and", "or", "to", "et", "ou", "y", "e"})
_TERMINAL = re.compile(r"[.!?…:;»«”\"\u2019')\]_—。！？」』）-]\Z")  # noqa: RUF001
_DASHES = re.compile(r"(?<!-)-{2,}(?!-)")
_EMPHASIS = re.compile(r"(?<![^\W_])_(?=[^\s_])([^_]*?[^\s_]|[^\s_])_(?![^\W_])")
_BOLD = re.compile(r"(?<!\w)([=~])(?=[^\s=~])([^=~]*?[^\s=~]|[^\s=~])\1(?!\w)")
# What emphasis leaves where it goes on over several paragraphs or lines of verse.
_LONE_MARK = re.compile(r"(?<!\w)_(?=[^\W_])|(?<=[^\W_])_(?!\w)|(?<=[.,;:!?])_(?!\w)")
_SPACED = re.compile(r"(?<!\w)(?:[^\W\d_] ){3,}[^\W\d_](?![^\W_])")
# A line is broken early when the next word would have ended well before the usual width.
_EARLY = 0.8
_UNWRAPPED_WIDTH = 100
_MAX_VERSE_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Line:
    """Hold one line that is not blank; `indent` counts the blanks before its text."""

    text: str
    indent: int

    @property
    def width(self) -> int:
        """Return the columns up to the end of the text."""
        return self.indent + len(self.text)


@dataclass(slots=True)
class Group:
    """Hold lines with no blank line between them, and how many blank lines come before."""

    lines: list[Line]
    blanks: int = 0

    @property
    def text(self) -> str:
        return " ".join(line.text for line in self.lines)

    @property
    def source_chars(self) -> int:
        return sum(count_chars(line.text) for line in self.lines)


@dataclass(slots=True)
class Layout:
    """Hold what a text's lines say of how it was wrapped.

    `width` is the column at which it is wrapped, or 0 where each line is a paragraph. `words` are
    those seen inside lines, lower case, by which a hyphen at a line's end is judged.
    """

    width: int
    has_blank_lines: bool = True
    soft_hyphens: bool = False  # a hyphen at a line's end is rather the typesetter's
    words: frozenset[str] = field(default_factory=frozenset)


def split_groups(text: str) -> list[Group]:
    """Return the groups of lines of a text; every character that is no blank is in one line."""
    groups: list[Group] = []
    blanks, is_open = 0, False
    for raw in text.splitlines():
        stripped = raw.strip()
        if not stripped:
            blanks, is_open = blanks + 1, False
            continue
        is_alone = _STARS.fullmatch(stripped) is not None or is_eastern_label(stripped)
        if not is_open or is_alone:
            groups.append(Group([], blanks))
            blanks, is_open = 0, not is_alone
        expanded = raw.expandtabs(8)
        groups[-1].lines.append(Line(stripped, len(expanded) - len(expanded.lstrip())))
    return groups


def measure_layout(groups: Sequence[Group]) -> Layout:
    """Return how a text is wrapped, from the widths of its lines."""
    widths = sorted(line.width for group in groups for line in group.lines)
    if not widths:
        return Layout(0)
    # The width below which 95 of 100 lines end; a text of paragraphs in one line has long tails.
    width = widths[int(0.95 * (len(widths) - 1))]
    has_blank_lines = len(groups) > 0.05 * len(widths)
    words = frozenset(
        word.lower()
        for group in groups
        for line in group.lines
        for word in _WORDS.findall(line.text)
    )
    return Layout(width if width <= _UNWRAPPED_WIDTH else 0, has_blank_lines, words=words)


def is_verse(group: Group, layout: Layout) -> bool:
    """Say whether a group's line ends are the author's: most lines end before they are full."""
    lines = group.lines
    if len(lines) < 2 or max(line.width for line in lines) > _MAX_VERSE_WIDTH:
        return False
    width = layout.width or 72
    early = sum(_ends_early(one, next_, width) for one, next_ in itertools.pairwise(lines))
    return early > 0.6 * (len(lines) - 1)


def split_paragraphs(group: Group, layout: Layout) -> list[list[Line]]:
    """Cut a group of prose into paragraphs.

    One is a group, unless the text is not wrapped at all (each line), has no blank lines (a line
    that ends early), or indents the first line of a paragraph.
    """
    if not layout.width:
        return [[line] for line in group.lines]
    base = min(line.indent for line in group.lines)
    ends = sum(bool(_TERMINAL.search(line.text)) for line in group.lines)
    # Each line may be indented as a paragraph's first line is, and end as its last.
    is_even = all(line.indent == base for line in group.lines)
    if base >= 2 and is_even and ends >= 0.8 * len(group.lines):
        return [[line] for line in group.lines]
    paragraphs = [[group.lines[0]]]
    for before, line in itertools.pairwise(group.lines):
        is_end = bool(_TERMINAL.search(before.text))
        is_indented = line.indent >= base + 2 > before.indent
        is_early = not layout.has_blank_lines and _ends_early(before, line, layout.width)
        if is_end and (is_indented or is_early):
            paragraphs.append([line])
        else:
            paragraphs[-1].append(line)
    return paragraphs


def join_lines(lines: Iterable[str], layout: Layout) -> str:
    """Return wrapped lines as one text, hyphens at line ends undone where that is safe."""
    parts: list[str] = []
    for line in lines:
        if not parts:
            parts.append(line)
            continue
        before = parts[-1]
        if (_CJK_END.search(before) and _CJK_START.match(line)) or (
            before.endswith(("--", "—")) and not line.startswith(("“", '"', "\u2018"))
        ):
            parts.append(line)
        elif (joint := _hyphen_joint(before, line, layout)) is None:
            parts.append(" " + line)
        else:
            parts[-1] = before if joint else before[:-1]
            parts.append(line)
    return "".join(parts)


def polish(text: str) -> str:
    """Return a text as it is spoken: no marks of emphasis, real dashes, no letters set apart."""
    text = _EMPHASIS.sub(r"\1", text)
    text = _LONE_MARK.sub("", text)
    text = _BOLD.sub(r"\2", text)
    text = _SPACED.sub(_close_up, text)
    return " ".join(_DASHES.sub("—", text).split())


def polish_line(text: str) -> str:
    """Return `polish` of a single line, whose wider gaps part words whose letters are set apart."""
    return polish(close_up(text))


def close_up(text: str) -> str:
    """Return a line whose letters are set apart, in capitals or as "I n h a l t", as its words."""
    letters = [token for token in text.split() if any(c.isalpha() for c in token)]
    if len(letters) < 3 or any(sum(map(str.isalpha, token)) != 1 for token in letters):
        return text
    words = [word.replace(" ", "") for word in re.split(r"\s{2,}", text.strip())]
    is_word = text.isupper() or all(word.istitle() and len(word) > 2 for word in words)
    return " ".join(words) if is_word else text


def _close_up(match: re.Match[str]) -> str:
    letters = match[0].replace(" ", "")
    # "K U R T" is one word set wide; "a b c d" may be a list of letters.
    return letters if letters.isupper() else match[0]


def _ends_early(line: Line, following: Line, width: int) -> bool:
    word = following.text.split(None, 1)[0]
    return line.width + 1 + len(word) < _EARLY * width


def _hyphen_joint(before: str, line: str, layout: Layout) -> str | None:
    """Return "-" or "" for what joins a word cut at a line's end, or None for a plain blank."""
    end, start = _WORD_END.search(before[-80:]), _WORD_START.match(line[:80])
    if end is None or start is None or start[1].lower() in _SUSPENDED:
        return None
    whole = f"{end[1]}{start[1]}".lower()
    if f"{end[1]}-{start[1]}".lower() in layout.words:
        return "-"
    if whole in layout.words:
        return ""
    if layout.soft_hyphens and start[1][0].islower():
        # "well-known" is two words of the book, "won-derful" is not.
        return "-" if {end[1].lower(), start[1].lower()} <= layout.words else ""
    # Nothing proves that the hyphen is the typesetter's: it may be the author's.
    return "-"


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
MIN_SPEAKERS = 2
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
    names = []
    for group in groups:
        for index, line in enumerate(group.lines):
            match = _match(line.text)
            if match is not None and (match["words"] or index + 1 < len(group.lines)):
                names.append(match["name"])
    often = often_named(names, 0.0 if is_play else _MIN_SHARE * len(groups))
    return frozenset(names) if often and is_play else often


def often_named(names: Iterable[str], least: float) -> frozenset[str]:
    """Return the names that return, or nothing where these are too few to make a play.

    Args:
        least: how many speeches of those who return there must be.
    """
    counts = Counter(names)
    often = frozenset(name for name, count in counts.items() if count >= _MIN_RETURNS)
    spoken = sum(counts[name] for name in often)
    return often if len(often) >= MIN_SPEAKERS and spoken >= least else frozenset()


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
