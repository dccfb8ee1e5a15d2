"""Change the status of jobs, segments and exports; the only writer of these columns.

Each step is one conditional UPDATE, fenced by the claim's token: a late worker changes nothing.
"""

from synth.transitions.batches import (
    cancel_batch,
    remake_items,
    reopen_batch,
    retry_batch,
    settle_batch,
    settle_stalled_batches,
)
from synth.transitions.book_files import (
    claim_book_file,
    claimable_book_files,
    fail_book_file,
    finish_book_file,
    free_lost_book_files,
    release_book_file,
)
from synth.transitions.books import (
    claim_book,
    claimable_books,
    fail_book,
    finish_book,
    free_lost_books,
    pause_job,
    release_book,
    resume_job,
)
from synth.transitions.claims import Claim, SegmentClaim
from synth.transitions.deadlines import stop_overdue_jobs
from synth.transitions.enqueue import enqueue_export, enqueue_segments
from synth.transitions.exports import (
    FileFacts,
    claim_export,
    claimable_exports,
    fail_export,
    finish_export,
    free_lost_exports,
    release_export,
)
from synth.transitions.jobs import (
    UNFINISHED,
    cancel_job,
    close_cancelled_jobs,
    fail_jobs_of_failed_versions,
    fail_unfinished_segments,
    retry_job,
)
from synth.transitions.segment_claims import claim_segments, claimable_segments, note_claims
from synth.transitions.segments import (
    cancel_segment,
    fail_segment,
    finish_segment,
    finish_segments,
    free_lost_segments,
    release_segment,
    reopen_segments,
)
from synth.transitions.webhooks import (
    claim_delivery,
    claimable_deliveries,
    fail_deliveries_to,
    fail_delivery,
    fail_gone_delivery,
    finish_delivery,
    free_lost_deliveries,
    postpone_delivery,
    release_delivery,
    resend_delivery,
)

__all__ = [
    "UNFINISHED",
    "Claim",
    "FileFacts",
    "SegmentClaim",
    "cancel_batch",
    "cancel_job",
    "cancel_segment",
    "claim_book",
    "claim_book_file",
    "claim_delivery",
    "claim_export",
    "claim_segments",
    "claimable_book_files",
    "claimable_books",
    "claimable_deliveries",
    "claimable_exports",
    "claimable_segments",
    "close_cancelled_jobs",
    "enqueue_export",
    "enqueue_segments",
    "fail_book",
    "fail_book_file",
    "fail_deliveries_to",
    "fail_delivery",
    "fail_export",
    "fail_gone_delivery",
    "fail_jobs_of_failed_versions",
    "fail_segment",
    "fail_unfinished_segments",
    "finish_book",
    "finish_book_file",
    "finish_delivery",
    "finish_export",
    "finish_segment",
    "finish_segments",
    "free_lost_book_files",
    "free_lost_books",
    "free_lost_deliveries",
    "free_lost_exports",
    "free_lost_segments",
    "note_claims",
    "pause_job",
    "postpone_delivery",
    "release_book",
    "release_book_file",
    "release_delivery",
    "release_export",
    "release_segment",
    "remake_items",
    "reopen_batch",
    "reopen_segments",
    "resend_delivery",
    "resume_job",
    "retry_batch",
    "retry_job",
    "settle_batch",
    "settle_stalled_batches",
    "stop_overdue_jobs",
]
