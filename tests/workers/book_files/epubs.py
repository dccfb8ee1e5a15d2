"""Check the structure of an EPUB 3 with overlays by its own rules."""

from __future__ import annotations

import posixpath
import zipfile
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from lxml import etree

from tests.synth.books.documents import Epub, page

OPF, SMIL = "{http://www.idpf.org/2007/opf}", "{http://www.w3.org/ns/SMIL}"
Clips = list[tuple[str, str, float, float]]


def seconds(value: str) -> float:
    """Return a clock value of SMIL."""
    if value.endswith("s"):
        return float(value[:-1])
    hours, minutes, rest = value.split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(rest)


def check(path: Path | IO[bytes]) -> dict[str, Clips]:
    """Assert that an EPUB is whole; return (text, audio, begin, end) of the clips by document."""
    with zipfile.ZipFile(path) as package:
        first = package.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        assert package.read("mimetype") == b"application/epub+zip"
        assert package.testzip() is None
        names = package.namelist()
        assert len(names) == len(set(names))
        container = etree.fromstring(package.read("META-INF/container.xml"))
        opf = container.find(".//{*}rootfile").get("full-path")
        root = etree.fromstring(package.read(opf))
        assert root.get("version") == "3.0"
        base = posixpath.dirname(opf)
        items = {item.get("id"): item for item in root.iter(f"{OPF}item")}
        assert len(items) == len(list(root.iter(f"{OPF}item")))
        hrefs = {
            key: posixpath.normpath(posixpath.join(base, unquote(item.get("href"))))
            for key, item in items.items()
        }
        assert len(set(hrefs.values())) == len(hrefs)
        assert set(hrefs.values()) <= set(names)
        listed = {*hrefs.values(), opf, "mimetype"}
        assert not [name for name in names if name not in listed and not name.startswith("META-")]
        assert [item for item in items.values() if "nav" in item.get("properties", "").split()]
        assert all(one.get("idref") in items for one in root.iter(f"{OPF}itemref"))
        assert len(root.findall(f".//{OPF}meta[@property='dcterms:modified']")) == 1
        assert root.find(f".//{OPF}meta[@property='media:active-class']").text
        found, total = {}, 0.0
        for item in items.values():
            overlay = item.get("media-overlay")
            if not overlay:
                continue
            assert items[overlay].get("media-type") == "application/smil+xml"
            document = posixpath.normpath(posixpath.join(base, unquote(item.get("href"))))
            clips = _clips(package, hrefs[overlay], document, set(hrefs.values()))
            said = root.find(f".//{OPF}meta[@refines='#{overlay}']").text
            length = sum(end - begin for _, _, begin, end in clips)
            assert abs(seconds(said) - length) < 1e-4
            total += length
            found[document] = clips
        whole = root.xpath(".//*[@property='media:duration' and not(@refines)]")
        assert len(whole) == 1
        assert abs(seconds(whole[0].text) - total) < 1e-3
    return found


def _clips(package: zipfile.ZipFile, name: str, document: str, listed: set[str]) -> Clips:
    """Return an overlay's clips as (text of the fragment, audio, begin, end)."""
    tree = etree.fromstring(package.read(document))
    ids = [one.get("id") for one in tree.iter() if isinstance(one.tag, str) and one.get("id")]
    assert len(ids) == len(set(ids))
    by_id = {one.get("id"): one for one in tree.iter() if isinstance(one.tag, str)}
    clips = []
    for par in etree.fromstring(package.read(name)).iter(f"{SMIL}par"):
        target, _, fragment = par.find(f"{SMIL}text").get("src").partition("#")
        folder = posixpath.dirname(name)
        assert posixpath.normpath(posixpath.join(folder, unquote(target))) == document
        audio = par.find(f"{SMIL}audio")
        source = posixpath.normpath(posixpath.join(folder, unquote(audio.get("src"))))
        assert source in listed
        begin, end = seconds(audio.get("clipBegin")), seconds(audio.get("clipEnd"))
        assert 0 <= begin < end
        clips.append((" ".join("".join(by_id[fragment].itertext()).split()), source, begin, end))
    assert clips
    return clips


def small_epub(path: Path, documents: dict[str, str], *, version: str = "3.0") -> None:
    """Write an EPUB with these bodies of XHTML by file name, below the folder `OPS/text`."""
    kind = 'html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd"'
    pages = {
        f"text/{name}": page(body).replace("<!DOCTYPE html>", f"<!DOCTYPE {kind}>")
        for name, body in documents.items()
    }
    path.write_bytes(Epub(pages, version=version).bytes())
