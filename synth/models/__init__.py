"""Store what is rendered: jobs, batches, books, lexicons, keys, webhooks."""

from synth.models.books import Batch as Batch
from synth.models.books import BatchEntry as BatchEntry
from synth.models.books import BookBatch as BookBatch
from synth.models.books import BookFile as BookFile
from synth.models.books import BookSource as BookSource
from synth.models.books import TextBatch as TextBatch
from synth.models.jobs import PRIORITIES as PRIORITIES
from synth.models.jobs import Chapter as Chapter
from synth.models.jobs import Export as Export
from synth.models.jobs import ExportCues as ExportCues
from synth.models.jobs import JobVoice as JobVoice
from synth.models.jobs import LaneTurn as LaneTurn
from synth.models.jobs import LiveChunk as LiveChunk
from synth.models.jobs import RenderedDay as RenderedDay
from synth.models.jobs import RenderJob as RenderJob
from synth.models.jobs import Segment as Segment
from synth.models.jobs import SweepTurn as SweepTurn
from synth.models.jobs import Take as Take
from synth.models.jobs import WorkerStatus as WorkerStatus
from synth.models.keys import ApiKey as ApiKey
from synth.models.keys import default_scopes as default_scopes
from synth.models.lexicons import Lexicon as Lexicon
from synth.models.lexicons import LexiconEntry as LexiconEntry
from synth.models.webhooks import WebhookDelivery as WebhookDelivery
from synth.models.webhooks import WebhookEndpoint as WebhookEndpoint
from synth.models.webhooks import WebhookSecret as WebhookSecret
