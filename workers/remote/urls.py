"""Route the steps of remote workers, below the root that `messages` names."""

from __future__ import annotations

from django.urls import path

from workers.remote.views import WorkerCallView

urlpatterns = [path("<slug:call>", WorkerCallView.as_view(), name="worker-call")]
