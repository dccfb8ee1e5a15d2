"""What tests of workers share: a worker process in miniature, clips, and pairs of services.

`process` runs claimed work in the test's own thread on the real engine with the tiny checkpoint.
`pair` is a database and a broker of their own, with real worker processes to start and to kill.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_django import Settings

from synth.engine import Engine, EngineConfig
from tests.workers.clips import wav_bytes
from tests.workers.pairs import Pair, logs_of, new_voice, service_pair
from ttsweb.work import Kind
from voices.models import Voice
from workers.audio.clips import decode_clip
from workers.process.claiming import take, take_segments
from workers.process.held_claims import HeldClaim, RenderedQueue
from workers.process.worker_process import WorkerProcess
from workers.rendering.render import settle_rendered
from workers.site.protocol import Site

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
TINY = GOLDEN / "tiny-s2"
WAIT_SECONDS = 180.0


class MiniatureProcess(WorkerProcess):
    """A worker process without threads: claimed work waits until the test runs it."""

    def __init__(
        self,
        engine: Engine | None,
        *,
        name: str = "mini",
        role: str = "all",
        site: Site | None = None,
    ) -> None:
        super().__init__(name=name, role=role, site=site)
        self.host._engine = engine
        self.waiting: queue.Queue[tuple[Callable[..., None], tuple[Any, ...]]] = queue.Queue()

    def run(self, claims: Sequence[HeldClaim], work: Callable[..., None], *arguments: Any) -> None:
        """Keep the work for `run_next`."""
        self.waiting.put((work, arguments))

    def _settle_soon(self, queue: RenderedQueue) -> None:
        """Keep the settling for `run_next`; the engine calls this from its own thread."""
        self.waiting.put((settle_rendered, (queue,)))

    def run_next(self) -> None:
        """Do one piece of waiting work here and now."""
        work, arguments = self.waiting.get(timeout=WAIT_SECONDS)
        work(self, *arguments)

    def run_all(self) -> None:
        """Work until no claim is held any more."""
        while len(self.held):
            self.run_next()

    def encode_all(self) -> None:
        """Encode the versions that wait."""
        take(self, Kind.VERSION)
        self.run_all()

    def render_all(self) -> None:
        """Render the segments that can be claimed."""
        take_segments(self)
        self.run_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show how the worker processes of a test that failed ended, and the ends of their logs."""
    report = yield
    if report.failed and call.when == "call":
        report.sections += logs_of(getattr(item, "funcargs", {}).values())
    return report


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The real engine on the tiny checkpoint with random weights."""
    engine = Engine.load(EngineConfig(checkpoint=TINY, device="cpu", slots=4, threads=1))
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, settings: Settings) -> None:
    """Give each test folders of its own; workers that it starts get them by `pair`."""
    settings.DATA_DIR = tmp_path / "data"
    settings.STORAGE_DIR = tmp_path / "data" / "storage"
    settings.STORAGES = settings.STORAGES | {
        "default": {
            "BACKEND": "ttsweb.storage.AtomicFileSystemStorage",
            "OPTIONS": {"location": settings.STORAGE_DIR},
        }
    }
    settings.CHECKPOINT = TINY
    settings.MIN_FREE_BYTES = 0


@pytest.fixture(autouse=True, scope="session")
def clips_decoded_once() -> Iterator[None]:
    """Decode equal clips once for all tests: each time it takes a process of its own."""
    known: dict[bytes, Any] = {}

    def decode_once(content: bytes, **how: Any) -> Any:
        if content not in known:
            known[content] = decode_clip(content, **how)
        return known[content]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.rendering.uploads.decode_clip", decode_once)
        yield


@pytest.fixture
def make_process(engine: Engine) -> Callable[..., MiniatureProcess]:
    """Make miniature worker processes that share the tiny engine."""
    return lambda **options: MiniatureProcess(options.pop("engine", engine), **options)


@pytest.fixture
def process(make_process: Callable[..., MiniatureProcess]) -> MiniatureProcess:
    return make_process()


@pytest.fixture
def clip_bytes() -> bytes:
    """A clip that can be used: 1.5 seconds of a tone with noise."""
    return wav_bytes(seconds=1.5)


@pytest.fixture
def voice(transactional_db: None, clip_bytes: bytes) -> Voice:
    return new_voice(content=clip_bytes)


@pytest.fixture
def ready(process: MiniatureProcess, voice: Voice) -> Voice:
    process.encode_all()
    return voice


@pytest.fixture(
    params=["files", pytest.param("services", marks=[pytest.mark.redis, pytest.mark.postgres])]
)
def pair(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clean_env: dict[str, str],
    settings: Settings,
    django_db_blocker: Any,
) -> Iterator[Pair]:
    """SQLite with files as messages, or PostgreSQL with Redis; the ORM here looks into it."""
    urls: dict[str, str] = {}
    if request.param == "services":
        urls["postgres_url"] = request.getfixturevalue("migrated_postgres_url")
        urls["redis_url"] = request.getfixturevalue("redis_url")
    opened = service_pair(clean_env | {"TTS_CHECKPOINT": str(TINY)}, tmp_path / "data", **urls)
    with django_db_blocker.unblock(), opened.entered(settings):
        try:
            yield opened
        finally:
            opened.kill_workers()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Leave a core to the workers that tests start."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
