"""Say why an archive or codes from outside are not taken."""

from __future__ import annotations


class ImportRefusedError(Exception):
    """What was sent is not taken: `status` is its HTTP status, `code` its stable name."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


def invalid(message: str) -> ImportRefusedError:
    """Return the error for a file that is no archive of ours, or not a whole one."""
    return ImportRefusedError("archive_invalid", message)


def too_large(message: str) -> ImportRefusedError:
    """Return the error for an archive that holds more than is taken."""
    return ImportRefusedError("archive_too_large", message, status=413)
