"""Measure a book through queue, database and storage, against the engine alone.

The service is a real worker process with a database, a broker and a storage of its own; the engine
alone is fed the same segments at once. Both have warmed up before, and take turns. Counted is the
time from the first claim to the last take, and from the first request to the last audio: neither
the worker's start nor the joining of the file. Every round has another seed, so that no take of
an earlier one answers. `frames` are all that the engine made: takes that the screening rejected,
counted as `retakes`, are among them. `cpu_seconds` is the processor time of the worker's, or this
engine's, process in the same time: on a machine with other work it says more than the clock.

Of the EPUB counts what the spine lists as reading order and is not front or back matter: a document
is left out when its body or a section directly in it says so by `epub:type`, or when it holds fewer
than `FEWEST_WORDS` words. Headings and paragraphs become paragraphs.
"""

from __future__ import annotations

import posixpath
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from typing import IO, Any
from urllib.parse import unquote
from xml.etree import ElementTree

from django.conf import settings

from lab.bench.machine import make_row, run_facts
from lab.bench.models.presets import write_preset_checkpoint
from lab.bench.report import Options, Progress, Report
from lab.bench.service.own_service import own_service
from synth.books.book import BookRejectedError
from synth.books.epub.package import open_book_archive
from synth.card import read_card
from synth.engine.loading.engine_config import resolve_device
from ttsweb.commands.base import StepError

COLUMNS = (
    "path",
    "segments",
    "retakes",
    "frames",
    "seconds",
    "frames_per_second",
    "frames_per_second_low",
    "frames_per_second_high",
    "cpu_seconds",
    "ratio_to_engine",
)
JOB_COLUMNS = (
    "jobs",
    "posts",
    "files_per_second",
    "worker_cpu_seconds",
    "post_seconds_p50",
    "post_seconds_p95",
    "interactive_idle_seconds",
    "interactive_beside_seconds",
    "interactive_beside_seconds_p95",
    "interactive_ratio",
)
WARM_UP_SEGMENTS = 16
CHARS_PER_SEGMENT = 0.75  # of the most that one may have: text is cut at the ends of sentences
_WHY_NULL = {
    "ratio_to_baseline": "a service is compared with its own engine",
    "ratio_to_roofline": "a service is compared with its own engine",
}


def service_settings(options: Options, checkpoint: Path) -> dict[str, str]:
    """Return the settings of a benchmark's service: one thread for the engine unless told."""
    threads = str(options["threads"] or 1)
    return {
        "TTS_CHECKPOINT": str(checkpoint.resolve()),
        "TTS_DEVICE": options["device"] or settings.DEVICE,
        "TTS_ENGINE_SLOTS": str(options["slots"]),
        "OMP_NUM_THREADS": threads,
        "TTS_DATABASE_URL": options["database"],
        "TTS_REDIS_URL": options["broker"],
    }


def chosen_checkpoint(options: Options, progress: Progress) -> Path:
    """Return the folder of the model that is measured; a preset's is written where it is missing.

    Raises:
        StepError: checkpoint_ambiguous.
        CheckpointError: the preset's folder cannot be written.
    """
    if options["preset"] and options["checkpoint"]:
        raise StepError("checkpoint_ambiguous", "Give --preset or --checkpoint, not both.")
    if not options["preset"]:
        return Path(options["checkpoint"] or settings.CHECKPOINT)
    folder: Path = options["folder"] / f"{options['preset']}-0"
    progress(f"writing or finding {options['preset']} in {folder}")
    return write_preset_checkpoint(options["preset"], folder)


def run(options: Options, progress: Progress) -> Report:
    """Render the text by both ways in turns.

    Raises:
        StepError: the book cannot be read, the database is in use, a job failed, or a process did.
    """
    checkpoint = chosen_checkpoint(options, progress)
    if options["jobs"]:
        return _many_jobs(options, checkpoint, progress)
    text = "\n\n".join(read_chapters(options["book"], count=options["chapters"]))
    segment_chars = read_card(checkpoint).segment_chars * CHARS_PER_SEGMENT
    if options["segments"]:
        text = text[: round(options["segments"] * segment_chars)]
    warm_up = text[: round(WARM_UP_SEGMENTS * segment_chars)]
    plan = {"text": text, "warm_up": warm_up, "repeat": options["repeat"]}
    with own_service(**service_settings(options, checkpoint)) as service:
        answer = service.run("lab.bench.service.e2e_rounds", plan, progress)
    facts = _facts(options, checkpoint) | {
        "book": options["book"].name,
        "chapters": options["chapters"],
        "characters": len(text),
        "repeat": options["repeat"],
        "ratio_to_engine": _ratio(answer["rounds"]),
        "ratios_to_engine": [_ratio([one]) for one in answer["rounds"]],
    }
    rows = [_row(path, answer, facts, options) for path in ("queue", "engine")]
    return Report("e2e", facts, rows, COLUMNS)


def _many_jobs(options: Options, checkpoint: Path, progress: Progress) -> Report:
    """Send many jobs of one sentence, and see how long requests and interactive jobs take then."""
    plan = {"jobs": options["jobs"], "posts": options["posts"]}
    with own_service(**service_settings(options, checkpoint)) as service:
        found = service.run("lab.bench.service.many_jobs", plan, progress)
    why_null = dict.fromkeys((*_WHY_NULL, "frames_per_second"), "jobs are counted, not frames")
    row = make_row(_facts(options, checkpoint), found | {"batch": 1}, why_null=why_null)
    return Report("e2e", _facts(options, checkpoint), [row], JOB_COLUMNS)


def _facts(options: Options, checkpoint: Path) -> dict[str, Any]:
    device = resolve_device(options["device"] or settings.DEVICE)
    return run_facts(device, seed=0, preset=options["preset"]) | {
        "threads": options["threads"] or 1,
        "checkpoint": checkpoint.name,
        "database": options["database"].partition(":")[0] or "sqlite",
        "broker": options["broker"].partition(":")[0] or "files",
    }


def _row(
    path: str, answer: dict[str, Any], facts: dict[str, Any], options: Options
) -> dict[str, Any]:
    """Return what one way took: the median round, and the slowest and fastest one's speed."""
    rounds = [one[path] for one in answer["rounds"]]
    speeds = [one["frames"] / one["seconds"] for one in rounds]
    engine = answer["engine"]
    values = {
        "path": path,
        "dtype": engine["dtype"],
        "batch": options["slots"],
        "cache_length": engine["max_positions"],
        "segments": rounds[0]["segments"],
        "retakes": median(one["retakes"] for one in rounds),
        "retake_frames": median(one["retake_frames"] for one in rounds),
        "frames": median(one["frames"] for one in rounds),
        "audio_seconds": median(one["audio_seconds"] for one in rounds),
        "seconds": median(one["seconds"] for one in rounds),
        "wall_seconds": median(one["wall_seconds"] for one in rounds),
        "frames_per_second": median(speeds),
        "frames_per_second_low": min(speeds),
        "frames_per_second_high": max(speeds),
        "cpu_seconds": _median_or_none([one["cpu_seconds"] for one in rounds]),
        "ratio_to_engine": facts["ratio_to_engine"] if path == "queue" else 1.0,
    }
    return make_row(facts, values, why_null=_WHY_NULL)


def _median_or_none(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if len(known) == len(values) else None


def _ratio(rounds: list[dict[str, Any]]) -> float:
    """Return the queue's speed as a share of the engine's, the median of neighbouring pairs."""
    speeds = [
        [one[path]["frames"] / one[path]["seconds"] for path in ("queue", "engine")]
        for one in rounds
    ]
    return float(median(queue / engine for queue, engine in speeds))


FEWEST_WORDS = 50
MOST_BYTES = 20_000_000  # of one document; a larger one is no chapter
_DAMAGE = (
    BookRejectedError,
    zipfile.BadZipFile,
    ElementTree.ParseError,
    OSError,
    KeyError,
    ValueError,
)
_CONTAINER = "META-INF/container.xml"
_OPF = "{http://www.idpf.org/2007/opf}"
_ROOTFILE = "{urn:oasis:names:tc:opendocument:xmlns:container}rootfile"
_PARAGRAPHS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "blockquote", "div", "br"})
_SILENT = frozenset({"head", "script", "style", "svg", "nav", "title"})
_LEFT_OUT = frozenset(
    {"frontmatter", "backmatter", "titlepage", "halftitlepage", "imprint", "colophon", "toc"}
    | {"copyright-page", "dedication", "endnotes", "footnotes", "loi"}
)


def read_chapters(path: Path, *, count: int) -> list[str]:
    """Return the text of the first `count` chapters of an EPUB, paragraphs parted by blank lines.

    Raises:
        StepError: book_not_read, when the file is no EPUB that can be read; book_too_short, when it
            has fewer chapters.
    """
    try:
        with path.open("rb") as file, open_book_archive(file, "EPUB", damaged="") as book:
            chapters: list[str] = []
            for name in _spine(book):
                if len(chapters) == count:
                    break
                text = _document(_read(book, name))
                if len(text.split()) >= FEWEST_WORDS:
                    chapters.append(text)
    except _DAMAGE as error:
        raise StepError("book_not_read", f"{path} is not a readable EPUB: {error}.") from error
    if len(chapters) < count:
        raise StepError(
            "book_too_short",
            f"{path} has only {len(chapters)} chapters, not {count}; give a smaller number.",
        )
    return chapters


def _spine(book: zipfile.ZipFile) -> list[str]:
    """Return the names of the documents in reading order."""
    rootfile = _xml(book, _CONTAINER).find(f".//{_ROOTFILE}")
    if rootfile is None:
        raise ValueError("its container names no package")
    package_name = rootfile.attrib["full-path"]
    package = _xml(book, package_name)
    folder = posixpath.dirname(package_name)
    items = {item.attrib["id"]: item.attrib["href"] for item in package.iter(f"{_OPF}item")}
    return [
        posixpath.normpath(posixpath.join(folder, unquote(items[row.attrib["idref"]])))
        for row in package.iter(f"{_OPF}itemref")
        if row.attrib.get("linear", "yes") != "no"
    ]


def _xml(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    return ElementTree.fromstring(_read(book, name))


def _read(book: zipfile.ZipFile, name: str) -> bytes:
    """Return a member's bytes, counted while they are unpacked: headers may lie."""
    member: IO[bytes]
    with book.open(name) as member:
        content = member.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} is larger than {MOST_BYTES} bytes")
    return content


def _document(content: bytes) -> str:
    """Return a document's text, or "" when it is front or back matter."""
    reader = _TextReader()
    reader.feed(content.decode("utf-8"))
    reader.close()
    return "" if reader.is_left_out else reader.text


class _TextReader(HTMLParser):
    """Gather the paragraphs of one XHTML document."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.is_left_out = False
        self._paragraphs: list[list[str]] = [[]]
        self._silent_depth = 0

    @property
    def text(self) -> str:
        """Return the paragraphs, blanks collapsed."""
        lines = (" ".join("".join(parts).split()) for parts in self._paragraphs)
        return "\n\n".join(line for line in lines if line)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a paragraph, or note what kind of matter this is."""
        if tag in ("body", "section"):
            kinds = (dict(attrs).get("epub:type") or "").split()
            self.is_left_out = self.is_left_out or bool(_LEFT_OUT & set(kinds))
        if tag in _SILENT:
            self._silent_depth += 1
        elif tag in _PARAGRAPHS:
            self._paragraphs.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Heed an empty element without opening anything that nothing would close."""
        if tag in _PARAGRAPHS:
            self._paragraphs.append([])

    def handle_endtag(self, tag: str) -> None:
        """End a paragraph or a silent part."""
        if tag in _SILENT:
            self._silent_depth = max(0, self._silent_depth - 1)
        elif tag in _PARAGRAPHS:
            self._paragraphs.append([])

    def handle_data(self, data: str) -> None:
        """Keep what is read aloud."""
        if not self._silent_depth:
            self._paragraphs[-1].append(data)
