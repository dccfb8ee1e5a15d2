"""A hub with a tiny model, and the library pointed at it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from tests.workers.local.hub import Hub, serve
from workers.local.model_source import S2_PRO, ModelSource

CODEC = bytes(range(256)) * 4096  # 1 MiB, so that it can break off in the middle
WEIGHTS = b"weights" * 1000


@pytest.fixture
def hub() -> Hub:
    files = {
        "config.json": b'{"model_type": "fish_qwen3_omni"}',
        "tokenizer.json": b"{}",
        "model-00001-of-00001.safetensors": WEIGHTS,
        "codec.pth": CODEC,
        "LICENSE.md": b"The licence.",
        "README.md": b"Not wanted.",
        "eval/more.json": b"Not wanted either.",
    }
    return Hub(files, lfs={"model-00001-of-00001.safetensors", "codec.pth"})


@pytest.fixture
def source() -> ModelSource:
    """The published model with the tiny codec's digest."""
    return replace(S2_PRO, digests={"codec.pth": hashlib.sha256(CODEC).hexdigest()})


@pytest.fixture
def hub_url(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Serve the hub, and let the library use it without a token or anything of this machine's."""
    with serve(hub) as url:
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        close_session()
        yield url
        close_session()
