"""A hostile file fetches nothing, reads no other file and names none: every event is watched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.synth.books.made_epub import Epub, page
from tests.synth.books_text.made_docx import make_docx, paragraph

PROJECT = Path(__file__).resolve().parents[3]
WATCH = """
import json, sys
from pathlib import Path
path = Path(sys.argv[1])
raw = path.read_bytes()
from synth.books.book import BookRejectedError
from synth.books.detect import read_book
from synth.books.plan import plan_book
read_book(b"CHAPTER I.\\n\\nText.\\n", "warm.txt")
seen = []
def watch(event, args):
    if event.startswith(("socket.", "urllib", "subprocess", "os.system", "os.exec", "ftplib")):
        seen.append([event, repr(args)])
    elif event == "open" and isinstance(args[0], (str, bytes)):
        name = args[0] if isinstance(args[0], str) else args[0].decode()
        is_code = name.endswith((".py", ".pyc", ".so", ".zip")) or "site-packages" in name
        mode = args[1] or "r"
        if not is_code or any(letter in mode for letter in "wax+"):
            seen.append([event, name])
    elif event in {"os.mkdir", "os.remove", "os.rename", "os.symlink", "os.link"}:
        seen.append([event, repr(args)])
sys.addaudithook(watch)
try:
    plan_book(read_book(raw, sys.argv[2]))
    answer = "read"
except BookRejectedError as error:
    answer = error.code
print(json.dumps([answer, seen]))
"""
LINKS = (
    '<link rel="stylesheet" href="http://192.0.2.1/x.css"/><script src="http://192.0.2.1/x.js"/>'
    '<base href="http://192.0.2.1/"/><p>Text <img src="http://192.0.2.1/x.png" alt="x"/>'
    '<img src="file:///etc/passwd" alt=""/><object data="/etc/passwd">o</object>'
    '<iframe src="http://192.0.2.1/"/><x:include xmlns:x="http://www.w3.org/2001/XInclude" '
    'href="/etc/passwd" parse="text"/></p>'
)
ENTITIES = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://192.0.2.1/xhtml11.dtd" ['
    '<!ENTITY x SYSTEM "file:///etc/passwd"><!ENTITY % y SYSTEM "http://192.0.2.1/y"> %y;]>'
)
STYLE = '<?xml-stylesheet href="http://192.0.2.1/x.xsl" type="text/xsl"?>'


def epub() -> bytes:
    document = page(LINKS).replace("<!DOCTYPE html>", STYLE + ENTITIES).replace("Text", "&x; Text")
    manifest = (
        '<item id="r" href="http://192.0.2.1/r.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="f" href="file:///etc/passwd" media-type="application/xhtml+xml"/>'
        '<item id="u" href="../../../../etc/passwd" media-type="application/xhtml+xml"/>'
        '<item id="c" href="/etc/passwd" properties="cover-image" media-type="image/png"/>'
    )
    files = {"../../../tmp/closed-in": b"x", "/tmp/closed-in": b"x", "OPS/nul\0l": b"x"}
    spine = ["a.xhtml", "r", "f", "u"]
    return Epub({"a.xhtml": document}, manifest=manifest, spine=spine, files=files).bytes()


FILES = {
    "x.epub": epub(),
    "x.html": f"{ENTITIES}<html><body>{LINKS}&x;</body></html>".encode(),
    "x.md": f"# A\n\n![x](http://192.0.2.1/x.png) [a](file:///etc/passwd)\n\n{LINKS}".encode(),
    "x.docx": make_docx(paragraph("Text") + '<w:altChunk r:id="r9"/>'),
    "../../../../tmp/closed-in.txt": b"CHAPTER I.\n\nText.\n",
}


@pytest.mark.parametrize("name", FILES, ids=["epub", "html", "markdown", "docx", "name"])
def test_nothing_is_fetched_opened_or_written(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(FILES[name])

    ended = subprocess.run(
        [sys.executable, "-c", WATCH, str(source), name],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=True,
    )
    answer, seen = json.loads(ended.stdout)

    assert answer == "read" or name == "x.docx"
    assert seen == []
    assert not Path("/tmp/closed-in").exists()
