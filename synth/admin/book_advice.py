"""Say what a person can do about a book that went wrong."""

from __future__ import annotations

_AGAIN = "Save or download the file again, then upload it again."
_SPLIT = "Split the book, or raise TTS_BOOK_IMPORT_MEGABYTES and TTS_BOOK_IMPORT_SECONDS."
_ADVICE = {
    "book_drm": "Get a copy of the book without DRM and upload that.",
    "book_encrypted": "Save a copy without a password and upload that.",
    "book_format_unknown": "Upload EPUB, TXT, Markdown, HTML, DOCX, or PDF with text.",
    "book_not_epub": (
        "Rename the file so that its extension matches its format, then upload it again."
    ),
    "book_not_text": "Upload EPUB, TXT, Markdown, HTML, DOCX, or PDF with text.",
    "book_charset_unknown": "Save the text as UTF-8 and upload that.",
    "book_broken": _AGAIN,
    "book_package_broken": _AGAIN,
    "book_unreadable": _AGAIN,
    "book_empty": "Upload a file that has text.",
    "book_without_text": "Run OCR (text recognition) on it, or upload another format.",
    "pdf_without_text": "Run OCR (text recognition) on it, or upload another format.",
    "book_too_large": "Split the book into several files.",
    "book_archive_too_large": (
        "Check what else is packed into the file, and pack it again without that."
    ),
    "book_archive_unsafe": (
        "Check what else is packed into the file, and pack it again without that."
    ),
    "book_import_timeout": _SPLIT,
    "book_import_memory": _SPLIT,
    "book_incomplete": "Please report this file as a defect: reading it lost some of its text.",
    "book_unbalanced": "Look at the proof, and please report this book as a defect.",
    "book_segments_short": (
        "Listen to the segments that the proof lists. Render those that are wrong again, and "
        "approve the others."
    ),
    "segments_failed": "Look at the failed segments, then use Retry.",
    "voice_deleted": "Start the book with another voice.",
    "consent_withdrawn": "Start the book with another voice.",
    "voice_not_shared": "Start the book with another voice.",
    "voice_required": "Choose a voice and start the book.",
    "voice_not_found": "Choose another voice and start the book.",
    "options_invalid": "Upload the book again with other options.",
    "worker_lost": "Check that workers are running, then use Retry.",
    "storage_full": "Free some disk space; the book then continues by itself.",
}


def advice_for(code: str, *, is_started: bool) -> str:
    """Return what to do about an error; empty where there is none."""
    if not code:
        return ""
    usual = (
        "Use Retry to render the missing segments." if is_started else "Delete it, or try again."
    )
    return _ADVICE.get(code, usual)
