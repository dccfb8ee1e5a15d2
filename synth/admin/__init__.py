"""The admin's pages of jobs, batches, books, lexicons, webhooks and workers; Django looks here."""

from synth.admin import batches as batches
from synth.admin import books as books
from synth.admin import jobs as jobs
from synth.admin import lexicons as lexicons
from synth.admin import operation as operation
