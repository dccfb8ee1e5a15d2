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
from synth.transitions.books import claimable_books, fail_book, finish_book, pause_job, resume_job
from synth.transitions.claims import (
    SegmentClaim,
    begin_takes,
    claim_segments,
    claimable_segments,
    note_claims,
    wait_for_takes,
)
from synth.transitions.files import (
    claimable_book_files,
    claimable_exports,
    fail_export,
    finish_book_file,
    finish_export,
    finish_exports,
)
from synth.transitions.jobs import (
    UNFINISHED,
    cancel_job,
    close_cancelled_jobs,
    fail_jobs_of_failed_versions,
    fail_open_segments,
    retry_job,
    stop_overdue_jobs,
    stop_silenced_jobs,
)
from synth.transitions.segments import (
    cancel_segment,
    fail_segment,
    finish_segment,
    finish_segments,
    free_lost_segments,
    reopen_segments,
)
from synth.transitions.webhooks import (
    claimable_deliveries,
    fail_deliveries_to,
    fail_delivery,
    fail_gone_delivery,
    finish_delivery,
    free_lost_deliveries,
    postpone_delivery,
    resend_delivery,
)
from ttsweb.leases import Claim

__all__ = [
    "UNFINISHED",
    "Claim",
    "SegmentClaim",
    "begin_takes",
    "cancel_batch",
    "cancel_job",
    "cancel_segment",
    "claim_segments",
    "claimable_book_files",
    "claimable_books",
    "claimable_deliveries",
    "claimable_exports",
    "claimable_segments",
    "close_cancelled_jobs",
    "fail_book",
    "fail_deliveries_to",
    "fail_delivery",
    "fail_export",
    "fail_gone_delivery",
    "fail_jobs_of_failed_versions",
    "fail_open_segments",
    "fail_segment",
    "finish_book",
    "finish_book_file",
    "finish_delivery",
    "finish_export",
    "finish_exports",
    "finish_segment",
    "finish_segments",
    "free_lost_deliveries",
    "free_lost_segments",
    "note_claims",
    "pause_job",
    "postpone_delivery",
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
    "stop_silenced_jobs",
    "wait_for_takes",
]
