"""Route the REST API of batches of books."""

from __future__ import annotations

from django.urls import path

from synth.api.book_batches import action_views as actions
from synth.api.book_batches import views
from synth.api.jobs.event_views import BookBatchEventsView

_ONE = "book-batches/<uuid:batch_id>"

urlpatterns = [
    path("book-batches", views.BookBatchesView.as_view(), name="book-batches"),
    path(_ONE, views.BookBatchView.as_view(), name="book-batch"),
    path(f"{_ONE}/entries", views.BookBatchEntriesView.as_view(), name="book-batch-entries"),
    path(f"{_ONE}/report", views.BookBatchReportView.as_view(), name="book-batch-report"),
    path(f"{_ONE}/events", BookBatchEventsView.as_view(), name="book-batch-events"),
    path(f"{_ONE}/close", actions.BookBatchCloseView.as_view(), name="book-batch-close"),
    path(f"{_ONE}/pause", actions.BookBatchPauseView.as_view(), name="book-batch-pause"),
    path(f"{_ONE}/resume", actions.BookBatchResumeView.as_view(), name="book-batch-resume"),
    path(f"{_ONE}/cancel", actions.BookBatchCancelView.as_view(), name="book-batch-cancel"),
    path(f"{_ONE}/retry", actions.BookBatchRetryView.as_view(), name="book-batch-retry"),
    path(f"{_ONE}/approve", actions.BookBatchApproveView.as_view(), name="book-batch-approve"),
    path(f"{_ONE}/priority", actions.BookBatchPriorityView.as_view(), name="book-batch-priority"),
    path("books/<uuid:book_id>/approve", actions.BookApproveView.as_view(), name="book-approve"),
    path("books/<uuid:book_id>/sample", actions.BookSampleView.as_view(), name="book-sample"),
]
