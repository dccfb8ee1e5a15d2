"""Stop an upload as soon as a file is larger than a clip may be, while it is still coming in."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler

from voices.clip_checks import too_large


class ClipTooLargeError(RequestDataTooBig):
    """A file of an upload is above `TTS_MAX_CLIP_BYTES`; becomes a 413."""

    code = "clip_too_large"


class ClipLimitHandler(FileUploadHandler):
    """Count the bytes of each file; the handlers behind this one keep them."""

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Hand a chunk on.

        Raises:
            ClipTooLargeError: the file has more bytes than a clip may have.
        """
        if start + len(raw_data) > settings.MAX_CLIP_BYTES:
            self._drop_temporary_files()
            raise ClipTooLargeError(str(too_large()))
        return raw_data

    def file_complete(self, file_size: int) -> UploadedFile[bytes] | None:
        """Leave the file to the handlers behind this one."""
        return None

    def _drop_temporary_files(self) -> None:
        """Let the other handlers remove what they wrote: Django leaves that to a later moment."""
        request = self.request
        for handler in request.upload_handlers if request is not None else ():
            handler.upload_interrupted()
