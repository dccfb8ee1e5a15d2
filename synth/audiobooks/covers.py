"""Take a cover that is uploaded; what its header says is checked, a worker decodes it."""

from __future__ import annotations

import uuid

from django.core.exceptions import RequestDataTooBig
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler

from synth.audiobooks.start import check_startable
from synth.books.images import image_size
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookSource
from synth.transitions.books import replace_cover
from voices.objects import delete_objects

MAX_COVER_BYTES = 20 * 2**20
MAX_COVER_PIXELS = 25_000_000  # decoded it takes up to 100 MB
_ENDINGS = {"jpeg": "jpg", "png": "png", "webp": "webp"}


class CoverTooLargeError(RequestDataTooBig):
    """The file of a cover has too many bytes; becomes a 413."""

    code = "cover_too_large"


class CoverLimitHandler(FileUploadHandler):
    """Count the bytes of the file; the handlers behind this one keep them."""

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Hand a chunk on.

        Raises:
            CoverTooLargeError: the file has more bytes than a cover may have.
        """
        if start + len(raw_data) > MAX_COVER_BYTES:
            request = self.request
            for handler in request.upload_handlers if request is not None else ():
                handler.upload_interrupted()
            raise CoverTooLargeError(
                f"The cover is too large: at most {MAX_COVER_BYTES} bytes are allowed."
            )
        return raw_data

    def file_complete(self, file_size: int) -> UploadedFile[bytes] | None:
        """Leave the file to the handlers behind this one."""
        return None


def change_cover(book: BookSource, content: bytes | None) -> None:
    """Give a book that was read another cover; None takes it away.

    Raises:
        SubmitRejectedError: cover_unreadable, cover_too_large, book_not_planned, book_failed,
            book_not_found.
        OSError: it cannot be stored; nothing is changed.
    """
    if book.state != BookSource.State.PLANNED:
        check_startable(book)
    key, media_type = "", ""
    if content is not None:
        form = checked_format(content)
        media_type = f"image/{form}"
        name = f"books/{book.pk}/{uuid.uuid4().hex}.{_ENDINGS[form]}"
        key = default_storage.save(name, ContentFile(content))
    try:
        if not replace_cover(book.pk, key=key, media_type=media_type):
            raise SubmitRejectedError("book_not_found", "No book that you may see has this id.")
    except BaseException:
        delete_objects([key] if key else [])
        raise


def checked_format(content: bytes) -> str:
    """Return the format of an image that may be a cover: jpeg, png or webp.

    Raises:
        SubmitRejectedError: cover_unreadable or cover_too_large, told by the header.
    """
    size = image_size(content)
    if size is None or size.width == 0 or size.height == 0:
        raise SubmitRejectedError(
            "cover_unreadable",
            "The file is not a JPEG, PNG or WebP image; send the cover as JPEG.",
            attr="file",
        )
    if size.width * size.height > MAX_COVER_PIXELS:
        raise SubmitRejectedError(
            "cover_too_large",
            f"The cover has {size.width} x {size.height} pixels; at most {MAX_COVER_PIXELS} "
            "pixels are allowed. Send a smaller image.",
            attr="file",
        )
    return size.format
