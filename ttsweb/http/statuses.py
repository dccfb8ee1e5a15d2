"""The HTTP status of every refusal, by its code: errors of the domain know codes alone."""

from __future__ import annotations

import logging

from ttsweb.refusals import RefusedError

logger = logging.getLogger(__name__)

_CODES = {
    400: """
        archive_digest_mismatch archive_invalid archive_version_unknown
        batch_empty bit_rate_unfit block_unknown book_batch_file_missing book_empty
        character_unknown chapter_empty chapter_unknown clip_empty clip_not_audio clip_required
        codes_invalid codes_of_other_clip codes_required cover_unreadable csv_columns
        deadline_past edit_invalid file_empty file_not_utf8 file_too_slow find_empty
        given_by_entry language_invalid lexicon_too_slow live_not_possible loudness_unfit
        manifest_empty manifest_header_invalid manifest_not_utf8
        merge_mixed merge_not_adjacent merge_too_few order_incomplete
        pattern_empty pattern_invalid pattern_too_slow pls_doctype pls_invalid
        sample_rate_unfit say_invalid speaker_unknown split_invalid spoken_invalid spoken_too_long
        text_empty text_has_tags text_invalid text_not_text text_unspeakable
        title_invalid too_long too_many_clips too_many_edits too_many_entries too_many_urls
        transcript_not_text transcript_required transcript_too_long
        url_encoded url_invalid url_private_address url_redirects url_references_off url_scheme
        url_status url_timeout url_unreachable url_unresolvable
        voice_ambiguous voice_invalid voice_required voice_unfit
        segment_text_too_long
    """,
    403: "lexicon_shared",
    404: """
        book_batch_not_found book_not_found book_not_in_batch book_without_audio entry_not_found
        lexicon_not_found segment_not_found take_not_found voice_not_found
    """,
    409: """
        batch_not_ended book_batch_closed book_batch_without_hold book_failed book_not_finished
        book_not_planned book_not_started book_nothing_to_speak book_started
        clip_gone codec_unknown codes_of_other_codec consent_withdrawn credits_incomplete
        entry_ambiguous entry_has_file item_of_batch job_cancelled job_ended job_not_ended
        lexicon_disabled lexicon_name_taken nothing_to_retry options_invalid pauses_unknown
        plan_changed
        reference_gone sample_not_ready segment_cancelled segment_unfinished segment_without_audio
        take_changed too_many_book_files too_many_endpoints
        voice_ambiguous_name voice_deleted voice_failed voice_name_taken voice_not_ready
        voice_not_shared
        chapter_unspoken lexicon_full plan_unfit
    """,
    410: "book_gone clip_lost",
    413: """
        archive_too_large batch_too_long batch_too_many_items book_batch_too_many clip_too_large
        codes_too_large cover_too_large file_too_large text_too_long url_too_large
        upload_above_limit
    """,
    422: "idempotency_key_reused",
    429: "key_limit_chars key_limit_jobs key_limit_requests key_limit_stored_bytes",
    500: "book_text_lost",
    503: "checkpoint_card_invalid secret_unreadable",
}
# By code, or by case where uses of a code differ: the last line of some.
STATUSES = {code: status for status, codes in _CODES.items() for code in codes.split()}


def status_of(error: RefusedError) -> int:
    """Return the HTTP status that says what an error says."""
    code = error.case or error.code
    if code not in STATUSES:
        logger.error("no status is known for the code %s; 400 is answered", code)
    return STATUSES.get(code, 400)
