"""Make small Word documents, by hand: parts in an archive."""

from __future__ import annotations

import io
import zipfile

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_RELS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"

_TYPES = f"""<?xml version="1.0"?><Types xmlns="{_PACKAGE}/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/></Types>"""
_PACKAGE_RELS = f"""<?xml version="1.0"?><Relationships xmlns="{_PACKAGE}/relationships">
<Relationship Id="r1" Type="{_RELS}/officeDocument" Target="word/document.xml"/></Relationships>"""
_DOCUMENT_RELS = f"""<?xml version="1.0"?><Relationships xmlns="{_PACKAGE}/relationships">
<Relationship Id="r1" Type="{_RELS}/styles" Target="styles.xml"/>
<Relationship Id="r2" Type="{_RELS}/footnotes" Target="footnotes.xml"/></Relationships>"""
_STYLE = '<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{name}"/></w:style>'
_STYLES = f"""<?xml version="1.0"?><w:styles {_W}><w:docDefaults><w:rPrDefault><w:rPr>
<w:lang w:val="de-DE"/></w:rPr></w:rPrDefault></w:docDefaults>
{_STYLE.format(id="berschrift1", name="heading 1")}{_STYLE.format(id="Titel", name="Title")}
{_STYLE.format(id="Verzeichnis1", name="toc 1")}</w:styles>"""
_CORE = """<?xml version="1.0"?><cp:coreProperties
xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"
xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Die Uhr</dc:title>
<dc:creator>Jana Doe; Hans Roe</dc:creator></cp:coreProperties>"""


def paragraph(text: str, style: str = "", *, note: int = 0) -> str:
    """Return a paragraph, with the mark of a footnote at its end if one is given."""
    kind = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    mark = f'<w:r><w:footnoteReference w:id="{note}"/></w:r>' if note else ""
    return f'<w:p>{kind}<w:r><w:t xml:space="preserve">{text}</w:t></w:r>{mark}</w:p>'


def make_docx(body: str, *, notes: dict[int, str] | None = None, start: str = "") -> bytes:
    """Return a document with this body.

    Args:
        start: what stands in document.xml before its root, such as a document type.
    """
    told = "".join(
        f'<w:footnote w:id="{number}">{paragraph(text)}</w:footnote>'
        for number, text in (notes or {}).items()
    )
    parts = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _PACKAGE_RELS,
        "docProps/core.xml": _CORE,
        "word/_rels/document.xml.rels": _DOCUMENT_RELS,
        "word/styles.xml": _STYLES,
        "word/footnotes.xml": f'<?xml version="1.0"?><w:footnotes {_W}>{told}</w:footnotes>',
        "word/document.xml": (
            f'<?xml version="1.0"?>{start}<w:document {_W}><w:body>{body}</w:body></w:document>'
        ),
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()
