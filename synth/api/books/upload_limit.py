"""Stop an upload as soon as its file is larger than a book may be, while it is still coming in."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class BookTooLargeError(RequestDataTooBig):
    """A file of an upload is above `TTS_MAX_BOOK_BYTES`; becomes a 413."""

    code = "book_too_large"


class BookLimitHandler(FileUploadHandler):
    """Count the bytes of the file; the handlers behind this one keep them."""

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Hand a chunk on.

        Raises:
            BookTooLargeError: the file has more bytes than a book may have.
        """
        if start + len(raw_data) > settings.MAX_BOOK_BYTES:
            request = self.request
            for handler in request.upload_handlers if request is not None else ():
                handler.upload_interrupted()
            raise BookTooLargeError(
                f"The book is too large: at most {settings.MAX_BOOK_BYTES} bytes are "
                "allowed. TTS_MAX_BOOK_BYTES sets the limit."
            )
        return raw_data

    def file_complete(self, file_size: int) -> UploadedFile[bytes] | None:
        """Leave the file to the handlers behind this one."""
        return None
