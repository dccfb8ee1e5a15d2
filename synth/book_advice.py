"""Say what a person can do about a book that went wrong."""

from __future__ import annotations

_AGAIN = "Save or download the file again, then upload it once more."
_SPLIT = "Split the book, or raise TTS_BOOK_IMPORT_MEGABYTES and TTS_BOOK_IMPORT_SECONDS."
_ADVICE = {
    "book_drm": "Get a copy of the book without DRM and upload that.",
    "book_encrypted": "Save a copy without a password and upload that.",
    "book_format_unknown": "Upload EPUB, TXT, Markdown, HTML, DOCX, or PDF with text.",
    "book_not_epub": "Upload the file as what it is: give it the ending of its format.",
    "book_not_text": "Upload EPUB, TXT, Markdown, HTML, DOCX, or PDF with text.",
    "book_charset_unknown": "Save the text as UTF-8 and upload that.",
    "book_broken": _AGAIN,
    "book_package_broken": _AGAIN,
    "book_unreadable": _AGAIN,
    "book_empty": "Upload a file that has text.",
    "book_without_text": "Run OCR over it, or upload another format.",
    "pdf_without_text": "Run OCR over it, or upload another format.",
    "book_too_large": "Split the book into several files.",
    "book_archive_too_large": "Look at what is packed into the file; repack it without the rest.",
    "book_archive_unsafe": "Look at what is packed into the file; repack it without the rest.",
    "book_import_timeout": _SPLIT,
    "book_import_memory": _SPLIT,
    "book_incomplete": "Please report the file: the reader lost a character of it.",
    "book_unbalanced": "Look at the proof, and please report the book.",
    "book_segments_short": "Listen to the segments that the proof names; render them again, or "
    "choose their takes if they are right.",
    "segments_failed": "Look at the segments that failed, then use Retry.",
    "voice_deleted": "Start the book with another voice.",
    "voice_required": "Choose a voice and start the book.",
    "voice_not_found": "Choose another voice and start the book.",
    "options_invalid": "Upload the book again with other options.",
    "worker_lost": "Look at the workers, then use Retry.",
    "storage_full": "Free some space; the book goes on by itself.",
}


def advice_for(code: str, *, is_started: bool) -> str:
    """Return what to do about an error; empty where there is none."""
    if not code:
        return ""
    usual = "Use Retry to render what is missing." if is_started else "Delete it, or try again."
    return _ADVICE.get(code, usual)
