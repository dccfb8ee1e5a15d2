"""An archive is refused by its directory: no entry is opened, and little more than it is read."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest

from lab.bench.service.e2e import read_chapters
from synth.books.book import BookRejectedError
from synth.books.detect import read_book
from synth.books.documents.docx import read_docx
from synth.books.epub.reader import read_epub
from tests.synth.books.documents import Epub, page
from tests.synth.books_text.blocks import make_docx, paragraph
from ttsweb.client import ClientError
from ttsweb.commands.base import StepError
from ttsweb.commands.render_books import open_archive as open_shelf
from ttsweb.zips import ZipLimits, ZipRefusedError, open_zip
from voices.archives import ImportRefusedError, open_archive

MIB = 1024**2
LIMITS = ZipLimits(
    entries=50, directory_bytes=10_000, growth_bytes=20 * MIB, ratio=50, ratio_from_bytes=4 * MIB
)
DIRECTORY = b"PK\1\2"
PLACES = {"flags": (8, "<H"), "method": (10, "<H"), "packed": (20, "<L"), "size": (24, "<L"),
          "offset": (42, "<L")}  # fmt: skip


class CountedBytes(io.BytesIO):
    """Count the bytes that are read."""

    num_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.num_read += len(found)
        return found


def packed(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def stated(content: bytes, number: int = 0, **values: int) -> bytes:
    """Return an archive whose directory states other values of one of its entries."""
    changed = bytearray(content)
    place = -1
    for _ in range(number + 1):
        place = changed.index(DIRECTORY, place + 1)
    for name, value in values.items():
        offset, kind = PLACES[name]
        struct.pack_into(kind, changed, place + offset, value)
    return bytes(changed)


def with_64(content: bytes, **values: int) -> bytes:
    """Return an archive with an end record of 64 bits before its own, which states this."""
    end = content.rindex(b"PK\5\6")
    count, size, start = struct.unpack_from("<HLL", content, end + 10)
    found = {"count": count, "size": size, "start": start, "place": end} | values
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, found["count"],
                         found["count"], found["size"], found["start"])  # fmt: skip
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, found["place"], 1)
    return content[:end] + record + locator + content[end:]


MANY = packed({f"f{n}": b"" for n in range(60)})
SMALL = packed({"a": b"text " * 100, "b": b"text " * 100})
REFUSED = {
    "count": (MANY, "too_large"),
    "hidden_count": (MANY[:-14] + struct.pack("<2H", 2, 2) + MANY[-10:], "too_large"),
    "names": (packed({f"{n}" * 4000: b"" for n in range(4)}), "too_large"),
    "sum": (packed({f"f{n}": b"ab" * MIB for n in range(12)}), "too_large"),
    "ratio": (packed({"a": bytes(5 * MIB)}), "too_large"),
    "ratio_of_all": (packed({f"f{n}": bytes(MIB) for n in range(8)}), "too_large"),
    "size": (stated(SMALL, size=2**32 - 2), "too_large"),
    "same_place": (stated(SMALL, 1, offset=0), "unsafe"),
    "nested": (stated(SMALL, 1, offset=20), "unsafe"),
    "over_the_directory": (stated(SMALL, 1, packed=4000, size=4000), "unsafe"),
    "password": (stated(SMALL, flags=1), "encrypted"),
    "strong": (stated(SMALL, 1, flags=0x41), "encrypted"),
    "names_locked": (stated(SMALL, flags=0x2000), "encrypted"),
    "aes": (stated(SMALL, method=99), "encrypted"),
    "count_64": (with_64(SMALL, count=10**9), "too_large"),
    "size_64": (with_64(SMALL, size=10**12), "too_large"),
    "short_64": (with_64(SMALL, size=5000), "damaged"),
    "no_archive": (b"PK\3\4" + bytes(100), "damaged"),
    "empty": (b"", "damaged"),
}  # fmt: skip


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of all entries that are opened, as they are."""
    found: list[str] = []
    plain = zipfile.ZipFile.open

    def counted(
        self: zipfile.ZipFile, name: Any, mode: Any = "r", *args: Any, **options: Any
    ) -> IO[bytes]:
        if mode == "r":
            found.append(name if isinstance(name, str) else name.filename)
        return plain(self, name, mode, *args, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", counted)
    return found


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED)
def test_archive_is_refused_by_its_directory(content: bytes, code: str, opened: list[str]) -> None:
    source = CountedBytes(content)

    with pytest.raises(ZipRefusedError) as refused:
        open_zip(source, LIMITS)

    assert refused.value.code == code
    assert opened == []
    # The end of the file is looked at twice, by us and by zipfile, and the directory as well.
    assert source.num_read <= 2 * (65_557 + LIMITS.directory_bytes + 200)


def test_archive_that_is_as_it_says_is_opened() -> None:
    for content in (SMALL, with_64(SMALL), SMALL[:-2] + b"\3\0abc"):
        assert open_zip(io.BytesIO(content), LIMITS).read("b") == b"text " * 100


# Small bombs that fit every bound of one file: none is 8 MiB, none is packed 200 to 1.
PART = b"".join(b"<p>%d %s</p>" % (n % 31, b"a" * 300) for n in range(26_000))
PARTS = {f"p{n}.xhtml": PART for n in range(17)}


def test_bomb_is_small() -> None:
    assert len(bomb()) < 1_300_000
    assert len(PART) < 8 * MIB
    assert len(PART) * len(PARTS) > 128 * MIB


def voice(content: bytes) -> None:
    with open_archive(io.BytesIO(content), max_bytes=100 * MIB):
        pass


@cache
def bomb() -> bytes:
    return packed(PARTS)


@cache
def book() -> bytes:
    return Epub({name: PART.decode() for name in PARTS}).bytes()


@cache
def docx() -> bytes:
    """Return a document with the bomb beside what is in it."""
    made = io.BytesIO(make_docx(paragraph("A word.")))
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, part in PARTS.items():
            archive.writestr(f"OPS/{name}", part)
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (book, read_epub),
        (book, lambda raw: read_book(raw, "a.epub")),
        (docx, lambda raw: read_docx(raw, "a.docx")),
        (docx, lambda raw: read_book(raw, "a.docx")),
        (bomb, lambda raw: read_book(raw, "a.zip")),
        (bomb, voice),
    ],
    ids=["epub", "book", "docx", "docx_as_book", "zip", "voice"],
)
def test_every_reader_refuses_a_bomb_without_opening_an_entry(
    content: Callable[[], bytes], read: Callable[[bytes], Any], opened: list[str]
) -> None:
    with pytest.raises((BookRejectedError, ImportRefusedError)) as refused:
        read(content())

    assert getattr(refused.value, "code", "") in {"book_archive_too_large", "archive_too_large"}
    assert opened == []


@pytest.mark.parametrize(
    "read", [open_shelf, lambda path: read_chapters(path, count=1)], ids=["shelf", "bench"]
)
def test_commands_refuse_a_bomb_without_opening_an_entry(
    read: Callable[[Path], Any], opened: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "book.epub"
    path.write_bytes(book())
    with pytest.raises((ClientError, StepError)):
        read(path)
    assert opened == []


def test_directory_that_is_a_lie_is_found_out_while_it_is_read() -> None:
    text = page("<p>" + "".join(f"{n} " for n in range(100_000)) + "</p>")
    content = Epub({"a.xhtml": text, "b.xhtml": page("<p>Text.</p>")}).bytes()
    size = len(text.encode())
    lying = content.replace(struct.pack("<L", size), struct.pack("<L", 200))

    book = read_epub(lying)

    assert [document.path for document in book.documents] == ["OPS/b.xhtml"]
    assert any("a.xhtml" in warning for warning in book.warnings)
