"""Read the bodies that are a lexicon's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, ClassVar

from django.core.exceptions import RequestDataTooBig
from rest_framework.parsers import BaseParser

from synth.lexicons.files import max_file_bytes


@dataclass(frozen=True)
class LexiconFile:
    """Hold a file that came as a request's body, and its format by its media type."""

    content: bytes
    format: str


class _FileParser(BaseParser):
    format: ClassVar[str]

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the body.

        Raises:
            RequestDataTooBig: it is longer than a lexicon's file may be (a 413).
        """
        limit = max_file_bytes()
        content = stream.read(limit + 1)
        if len(content) > limit:
            raise RequestDataTooBig(f"The file is too large: at most {limit} bytes are allowed.")
        return LexiconFile(content, self.format)


class CsvParser(_FileParser):
    """Take CSV."""

    media_type = "text/csv"
    format = "csv"


class PlsParser(_FileParser):
    """Take PLS."""

    media_type = "application/pls+xml"
    format = "pls"


class XmlParser(PlsParser):
    """Take PLS that is called XML."""

    media_type = "application/xml"


class TextXmlParser(PlsParser):
    """Take PLS that is called XML, the other way."""

    media_type = "text/xml"


FILE_PARSERS = (CsvParser, PlsParser, XmlParser, TextXmlParser)
