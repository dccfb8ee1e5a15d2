"""The admin's pages of jobs, batches, books, lexicons, webhooks and workers; Django looks here."""

from synth.admin import jobs as jobs
