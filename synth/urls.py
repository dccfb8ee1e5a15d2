"""Route the REST API of this app."""

from __future__ import annotations

from django.urls import path

from synth import views
from synth.event_views import JobEventsView

urlpatterns = [
    path("jobs", views.JobsView.as_view(), name="jobs"),
    path("jobs/<uuid:job_id>", views.JobView.as_view(), name="job"),
    path("jobs/<uuid:job_id>/audio", views.JobAudioView.as_view(), name="job-audio"),
    path("jobs/<uuid:job_id>/segments", views.JobSegmentsView.as_view(), name="job-segments"),
    path("jobs/<uuid:job_id>/events", JobEventsView.as_view(), name="job-events"),
    path("jobs/<uuid:job_id>/cancel", views.JobCancelView.as_view(), name="job-cancel"),
    path("jobs/<uuid:job_id>/retry", views.JobRetryView.as_view(), name="job-retry"),
]
