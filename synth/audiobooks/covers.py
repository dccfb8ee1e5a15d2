"""Take a cover that is uploaded; what its header says is checked, a worker decodes it."""

from __future__ import annotations

import uuid

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.audiobooks.start import check_startable
from synth.books.images import image_size
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookSource
from synth.transitions.books import replace_cover
from ttsweb.http.body_limit import LimitHandler
from voices.objects import delete_objects

MAX_COVER_BYTES = 20 * 2**20
MAX_COVER_PIXELS = 25_000_000  # decoded it takes up to 100 MB
_ENDINGS = {"jpeg": "jpg", "png": "png", "webp": "webp"}


class CoverLimitHandler(LimitHandler):
    """Refuse a cover with too many bytes."""

    code = "cover_too_large"

    def max_bytes(self) -> int:
        """Return how many bytes a cover may have."""
        return MAX_COVER_BYTES

    def sentence(self) -> str:
        """Say that the cover is too large."""
        return f"The cover is too large: at most {MAX_COVER_BYTES} bytes are allowed."


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
