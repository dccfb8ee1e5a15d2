"""Route the REST API of this app."""

from __future__ import annotations

from django.urls import path

from synth.api.accounts.group_views import GroupsView, GroupView, PermissionsView
from synth.api.accounts.key_views import KeysView, KeyView
from synth.api.accounts.user_views import UsersView, UserView
from synth.api.batches import views as batch_views
from synth.api.book_batches import views as book_batch_views
from synth.api.books import audio_views, file_views
from synth.api.books import views as book_views
from synth.api.books.block_views import ChapterBlocksView
from synth.api.books.cover_views import BookCoverView, BookMetadataView
from synth.api.jobs import views
from synth.api.jobs.event_views import BatchEventsView, BookBatchEventsView, JobEventsView
from synth.api.jobs.segment_views import (
    SegmentAudioView,
    SegmentChooseView,
    SegmentRenderView,
    SegmentView,
)
from synth.api.jobs.timestamp_views import JobTimestampsView, JobWaveformView
from synth.api.review import views as review_views

_BOOK_BATCH = "book-batches/<uuid:batch_id>"

urlpatterns = [
    path("batches", batch_views.BatchesView.as_view(), name="batches"),
    path("batches/<uuid:batch_id>", batch_views.BatchView.as_view(), name="batch"),
    path("batches/<uuid:batch_id>/items", batch_views.BatchItemsView.as_view(), name="batch-items"),
    path(
        "batches/<uuid:batch_id>/results",
        batch_views.BatchResultsView.as_view(),
        name="batch-results",
    ),
    path("batches/<uuid:batch_id>/events", BatchEventsView.as_view(), name="batch-events"),
    path("book-batches", book_batch_views.BookBatchesView.as_view(), name="book-batches"),
    path(_BOOK_BATCH, book_batch_views.BookBatchView.as_view(), name="book-batch"),
    path(
        f"{_BOOK_BATCH}/entries",
        book_batch_views.BookBatchEntriesView.as_view(),
        name="book-batch-entries",
    ),
    path(
        f"{_BOOK_BATCH}/report",
        book_batch_views.BookBatchReportView.as_view(),
        name="book-batch-report",
    ),
    path(f"{_BOOK_BATCH}/events", BookBatchEventsView.as_view(), name="book-batch-events"),
    path("books", book_views.BooksView.as_view(), name="books"),
    path("books/<uuid:book_id>", book_views.BookView.as_view(), name="book"),
    path("books/<uuid:book_id>/plan", book_views.BookPlanView.as_view(), name="book-plan"),
    path(
        "books/<uuid:book_id>/plan/chapters/<str:chapter>",
        ChapterBlocksView.as_view(),
        name="book-chapter",
    ),
    path("books/<uuid:book_id>/pauses", book_views.BookPausesView.as_view(), name="book-pauses"),
    path("books/<uuid:book_id>/proof", book_views.BookProofView.as_view(), name="book-proof"),
    path("books/<uuid:book_id>/metadata", BookMetadataView.as_view(), name="book-metadata"),
    path("books/<uuid:book_id>/cover", BookCoverView.as_view(), name="book-cover"),
    path("books/<uuid:book_id>/files", file_views.BookFilesView.as_view(), name="book-files"),
    path(
        "books/<uuid:book_id>/files/<uuid:file_id>",
        file_views.BookFileView.as_view(),
        name="book-file",
    ),
    path(
        "books/<uuid:book_id>/files/<uuid:file_id>/content",
        file_views.BookFileContentView.as_view(),
        name="book-file-content",
    ),
    path(
        "books/<uuid:book_id>/files/<uuid:file_id>/plot",
        file_views.BookFilePlotView.as_view(),
        name="book-file-plot",
    ),
    path("books/<uuid:book_id>/sample", audio_views.BookSampleView.as_view(), name="book-sample"),
    path("books/<uuid:book_id>/audio", audio_views.BookAudioView.as_view(), name="book-audio"),
    path("keys", KeysView.as_view(), name="keys"),
    path("keys/<uuid:key_id>", KeyView.as_view(), name="key"),
    path("groups", GroupsView.as_view(), name="groups"),
    path("groups/<int:group_id>", GroupView.as_view(), name="group"),
    path("permissions", PermissionsView.as_view(), name="permissions"),
    path("review", review_views.ReviewView.as_view(), name="review"),
    path("review/approve", review_views.ReviewApproveManyView.as_view(), name="review-approve-all"),
    path(
        "review/<int:segment_id>", review_views.ReviewSegmentView.as_view(), name="review-segment"
    ),
    path(
        "review/<int:segment_id>/approve",
        review_views.ReviewApproveView.as_view(),
        name="review-approve",
    ),
    path("users", UsersView.as_view(), name="users"),
    path("users/<int:user_id>", UserView.as_view(), name="user"),
    path("jobs", views.JobsView.as_view(), name="jobs"),
    path("jobs/<uuid:job_id>", views.JobView.as_view(), name="job"),
    path("jobs/<uuid:job_id>/audio", views.JobAudioView.as_view(), name="job-audio"),
    path("jobs/<uuid:job_id>/segments", views.JobSegmentsView.as_view(), name="job-segments"),
    path("jobs/<uuid:job_id>/segments/<int:segment_id>", SegmentView.as_view(), name="job-segment"),
    path(
        "jobs/<uuid:job_id>/segments/<int:segment_id>/audio",
        SegmentAudioView.as_view(),
        name="job-segment-audio",
    ),
    path(
        "jobs/<uuid:job_id>/segments/<int:segment_id>/render",
        SegmentRenderView.as_view(),
        name="job-segment-render",
    ),
    path(
        "jobs/<uuid:job_id>/segments/<int:segment_id>/choose",
        SegmentChooseView.as_view(),
        name="job-segment-choose",
    ),
    path("jobs/<uuid:job_id>/timestamps", JobTimestampsView.as_view(), name="job-timestamps"),
    path("jobs/<uuid:job_id>/waveform", JobWaveformView.as_view(), name="job-waveform"),
    path("jobs/<uuid:job_id>/events", JobEventsView.as_view(), name="job-events"),
    *(
        path(f"{one}/{name}", view, name=f"{noun}-{name}")
        for noun, one, actions in (
            ("job", "jobs/<uuid:job_id>", views.JOB_ACTIONS),
            ("batch", "batches/<uuid:batch_id>", batch_views.BATCH_ACTIONS),
            ("book", "books/<uuid:book_id>", book_views.BOOK_ACTIONS),
            ("book-batch", _BOOK_BATCH, book_batch_views.BOOK_BATCH_ACTIONS),
        )
        for name, view in actions.items()
    ),
]
