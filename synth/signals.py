"""What happens to jobs, sent inside the transaction that does it.

Batches and webhooks listen. A listener that raises undoes the transaction.
"""

from django.dispatch import Signal

jobs_ended = Signal()  # jobs: rows with batch_id, kind, owner_id and webhook_url
job_reopened = Signal()  # job_id
job_approved = Signal()  # job: a book that was partial is whole, since its takes were approved
item_deleted = Signal()  # batch_id: one of its items is gone
batch_ended = Signal()  # batch_id
