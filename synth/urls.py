"""Route the REST API of this app, below /api/v1/."""

from __future__ import annotations

from django.urls import path

from synth.api import keys, lexicons, review, users, webhooks
from synth.api.batches import views as batches
from synth.api.books import file_views, plan_views
from synth.api.books import views as books
from synth.api.jobs import event_streams, segment_views, views
from synth.api.jobs import views as jobs

_BATCH = "batches/<uuid:batch_id>"
_BOOK_BATCH = "book-batches/<uuid:batch_id>"
_BOOK = "books/<uuid:book_id>"
_FILE = f"{_BOOK}/files/<uuid:file_id>"
_JOB = "jobs/<uuid:job_id>"
_SEGMENT = f"{_JOB}/segments/<int:segment_id>"
_LEXICON = "lexicons/<uuid:lexicon_id>"
_ENDPOINT = "webhooks/endpoints/<uuid:endpoint_id>"
_DELIVERY = "webhooks/deliveries/<uuid:delivery_id>"

_VIEWS = (
    ("audit", keys.AuditView, "audit"),
    ("batches", batches.BatchesView, "batches"),
    (_BATCH, batches.BatchView, "batch"),
    (f"{_BATCH}/items", batches.BatchItemsView, "batch-items"),
    (f"{_BATCH}/results", batches.BatchResultsView, "batch-results"),
    (f"{_BATCH}/events", event_streams.BatchEventsView, "batch-events"),
    ("book-batches", batches.BookBatchesView, "book-batches"),
    (_BOOK_BATCH, batches.BookBatchView, "book-batch"),
    (f"{_BOOK_BATCH}/entries", batches.BookBatchEntriesView, "book-batch-entries"),
    (f"{_BOOK_BATCH}/report", batches.BookBatchReportView, "book-batch-report"),
    (f"{_BOOK_BATCH}/events", event_streams.BookBatchEventsView, "book-batch-events"),
    ("books", books.BooksView, "books"),
    (_BOOK, books.BookView, "book"),
    (f"{_BOOK}/plan", plan_views.BookPlanView, "book-plan"),
    (f"{_BOOK}/plan/chapters/<str:chapter>", plan_views.ChapterBlocksView, "book-chapter"),
    (f"{_BOOK}/pauses", books.BookPausesView, "book-pauses"),
    (f"{_BOOK}/proof", books.BookProofView, "book-proof"),
    (f"{_BOOK}/metadata", books.BookMetadataView, "book-metadata"),
    (f"{_BOOK}/cover", file_views.BookCoverView, "book-cover"),
    (f"{_BOOK}/sample", file_views.BookSampleView, "book-sample"),
    (f"{_BOOK}/audio", file_views.BookAudioView, "book-audio"),
    (f"{_BOOK}/files", file_views.BookFilesView, "book-files"),
    (_FILE, file_views.BookFileView, "book-file"),
    (f"{_FILE}/content", file_views.BookFileContentView, "book-file-content"),
    (f"{_FILE}/plot", file_views.BookFilePlotView, "book-file-plot"),
    ("keys", keys.KeysView, "keys"),
    ("keys/<uuid:key_id>", keys.KeyView, "key"),
    ("groups", users.GroupsView, "groups"),
    ("groups/<int:group_id>", users.GroupView, "group"),
    ("permissions", users.PermissionsView, "permissions"),
    ("users", users.UsersView, "users"),
    ("users/<int:user_id>", users.UserView, "user"),
    ("review", review.ReviewView, "review"),
    ("review/approve", review.ReviewApproveManyView, "review-approve-all"),
    ("review/<int:segment_id>", review.ReviewSegmentView, "review-segment"),
    ("review/<int:segment_id>/approve", review.ReviewApproveView, "review-approve"),
    ("jobs", jobs.JobsView, "jobs"),
    (_JOB, jobs.JobView, "job"),
    (f"{_JOB}/audio", jobs.JobAudioView, "job-audio"),
    (f"{_JOB}/segments", jobs.JobSegmentsView, "job-segments"),
    (_SEGMENT, segment_views.SegmentView, "job-segment"),
    (f"{_SEGMENT}/audio", segment_views.SegmentAudioView, "job-segment-audio"),
    (f"{_SEGMENT}/render", segment_views.SegmentRenderView, "job-segment-render"),
    (f"{_JOB}/timestamps", segment_views.JobTimestampsView, "job-timestamps"),
    (f"{_JOB}/waveform", segment_views.JobWaveformView, "job-waveform"),
    (f"{_JOB}/events", event_streams.JobEventsView, "job-events"),
    ("preview", views.PreviewView, "preview"),
    ("lexicons", lexicons.LexiconsView, "lexicons"),
    ("lexicons/preview", views.LexiconPreviewView, "lexicons-preview"),
    (_LEXICON, lexicons.LexiconView, "lexicon"),
    (f"{_LEXICON}/entries", lexicons.EntriesView, "lexicon-entries"),
    (f"{_LEXICON}/entries/<int:entry_id>", lexicons.EntryView, "lexicon-entry"),
    (f"{_LEXICON}/export", lexicons.LexiconExportView, "lexicon-export"),
    (f"{_LEXICON}/import", lexicons.LexiconImportView, "lexicon-import"),
    ("webhooks/secret", webhooks.SecretView, "webhook-secret"),
    ("webhooks/secret/rotate", webhooks.SecretRotateView, "webhook-secret-rotate"),
    ("webhooks/endpoints", webhooks.EndpointsView, "webhook-endpoints"),
    (_ENDPOINT, webhooks.EndpointView, "webhook-endpoint"),
    (f"{_ENDPOINT}/test", webhooks.EndpointTestView, "webhook-endpoint-test"),
    ("webhooks/deliveries", webhooks.DeliveriesView, "webhook-deliveries"),
    (_DELIVERY, webhooks.DeliveryView, "webhook-delivery"),
    (f"{_DELIVERY}/resend", webhooks.DeliveryResendView, "webhook-delivery-resend"),
)
_ACTIONS = (
    ("job", _JOB, jobs.JOB_ACTIONS),
    ("job-segment", _SEGMENT, segment_views.SEGMENT_ACTIONS),
    ("batch", _BATCH, batches.BATCH_ACTIONS),
    ("book", _BOOK, books.BOOK_ACTIONS),
    ("book-batch", _BOOK_BATCH, batches.BOOK_BATCH_ACTIONS),
)

urlpatterns = [
    *(path(route, view.as_view(), name=name) for route, view, name in _VIEWS),
    *(
        path(f"{route}/{name}", view, name=f"{noun}-{name}")
        for noun, route, actions in _ACTIONS
        for name, view in actions.items()
    ),
]
