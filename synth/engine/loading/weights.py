"""Load the language model's weights strictly: every key used, every shape checked.

The modules are built on the meta device and each tensor is assigned as its file is read, cast once
to the wanted dtype on its device. Nothing is initialised at random, and a layer takes its final
form as soon as it is whole, so that no second copy of more than a layer exists. Files are mapped;
what stays is copied out of them, so that a file that is replaced under a running model changes
nothing.

Files are named by their content; digests are remembered, so that a restart need not read them all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import uuid
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from synth.engine.device import DeviceCopy, trim_heap
from synth.engine.errors import CheckpointError
from synth.engine.model.config import load_config
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.layers import Block
from synth.engine.model.linear import LinearForm
from synth.engine.prompt import Tokenizer

CACHE_NAME = "digests.json"
MAX_ENTRIES = 64  # in memory and in the file

_memo: OrderedDict[str, str] = OrderedDict()
_memo_lock, _file_lock = threading.Lock(), threading.Lock()


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the same folder, then put it in the place of `path`.

    Readers see the old file or the whole new one. When `write` fails, as on a full disk, the
    temporary file is removed and `path` is untouched.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    temporary.touch(exist_ok=False)  # with the mode that the process's umask leaves
    try:
        write(temporary)
        with temporary.open("rb+") as opened:
            os.fsync(opened.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def file_sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def file_identity(path: Path) -> str:
    """Return path, size and time of change (ns); CheckpointError for a file that is not there."""
    try:
        found = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} is missing or cannot be read: {error}.") from error
    return f"{path.resolve()}|{found.st_size}|{found.st_mtime_ns}"


def file_digest(path: Path, *, cache_dir: Path | None = None) -> str:
    """Return the SHA-256 of a file's content; CheckpointError where it is missing.

    A file that kept path, size and modification time is not read again.
    """
    return remembered_digest(file_identity(path), lambda: file_sha256(path), cache_dir)


def remembered_digest(key: str, compute: Callable[[], str], cache_dir: Path | None) -> str:
    """Return the digest kept under a key in this process or in a folder, or compute and keep it."""
    with _memo_lock:
        digest = _memo.get(key)
    if digest is None and cache_dir is not None:
        digest = _read_cache(cache_dir / CACHE_NAME).get(key)
    if digest is not None:
        return digest
    digest = compute()
    with _memo_lock:
        _memo[key] = digest
        while len(_memo) > MAX_ENTRIES:
            _memo.popitem(last=False)
    if cache_dir is not None:
        cache_dir.mkdir(parents=True, exist_ok=True)
        path = cache_dir / CACHE_NAME
        with _file_lock:
            entries = list(_read_cache(path).items())[1 - MAX_ENTRIES :]
            text = json.dumps(dict([*entries, (key, digest)]), indent=1)
            # Two processes that write at once lose one entry, which is then computed again.
            replace_file(path, lambda part: part.write_text(text, encoding="utf-8"))
    return digest


def _read_cache(path: Path) -> dict[str, str]:
    """Return the kept digests; none where the file is missing or damaged: they are made again."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    items = kept.items() if isinstance(kept, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, str)}


INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
PICKLE_NAME = "model.pth"
# How names begin on disk, and in memory. The codebook table is stored beside the audio decoder but
# is the slow model's input.
_PREFIXES = (
    ("audio_decoder.codebook_embeddings.", "codebook_embeddings."),
    ("audio_decoder.", "fast_"),
    ("text_model.model.", ""),
)
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_LAYER = re.compile(r"(slow|fast)\.layers\.\d+")
_SPLIT_PROJECTION = re.compile(r"(.*\.attention\.)w([qkv])\.(weight|bias)")


def load_dual_ar(
    checkpoint_dir: Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype,
    form: LinearForm = LinearForm.PLAIN,
    fast_form: LinearForm | None = None,
    tokenizer: Tokenizer | None = None,
) -> tuple[DualAR, Tokenizer]:
    """Load a checkpoint directory's language model and tokenizer.

    Args:
        dtype: what every weight is cast to; float32, bfloat16 or float16.
        form: how the matrices are held; `fast_form` those of the fast AR, None means the same.
        tokenizer: one that was read already; None reads the directory's.

    Raises:
        CheckpointError: a file is missing or unreadable, or a key is missing, unknown or of
            another shape; the sentence names it.
    """
    forms = {"slow": form, "fast": fast_form or form}
    model, tokenizer = _fill_model(checkpoint_dir, torch.device(device), dtype, forms, tokenizer)
    model.finalize(form, fast_form)
    trim_heap()
    return model, tokenizer


def check_dual_ar(checkpoint_dir: Path) -> int:
    """Hold the headers of a checkpoint's weight files to its config.json; read no weight.

    Returns:
        The number of parameters.

    Raises:
        CheckpointError: as for `load_dual_ar`.
    """
    model, _ = _fill_model(checkpoint_dir, torch.device("meta"), torch.bfloat16)
    return sum(parameter.numel() for parameter in model.parameters())


def _fill_model(
    checkpoint_dir: Path,
    device: torch.device,
    dtype: torch.dtype,
    forms: Mapping[str, LinearForm] | None = None,
    tokenizer: Tokenizer | None = None,
) -> tuple[DualAR, Tokenizer]:
    config = load_config(checkpoint_dir)
    tokenizer = tokenizer or Tokenizer.from_checkpoint(checkpoint_dir)
    with torch.device("meta"):
        model = DualAR(config, tokenizer.special)
    assigner = _Assigner(model, dtype, forms)
    for path in find_weight_files(checkpoint_dir):
        for name, tensor in _read_file(path, device):
            assigner.take(name, tensor)
    assigner.check_complete()
    return model, tokenizer


def find_weight_files(checkpoint_dir: Path) -> list[Path]:
    """Return the files that hold the weights: those of the index, else the single file, else pth.

    Raises CheckpointError when there is none, or the index names one that is not there.
    """
    index = checkpoint_dir / INDEX_NAME
    if index.is_file():
        return _indexed_files(index)
    for name in (SINGLE_NAME, PICKLE_NAME):
        if (checkpoint_dir / name).is_file():
            return [checkpoint_dir / name]
    raise CheckpointError(
        f"{checkpoint_dir} contains none of {INDEX_NAME}, {SINGLE_NAME} and {PICKLE_NAME}; "
        "set TTS_CHECKPOINT to a complete checkpoint."
    )


def _indexed_files(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is not an index of weight files: {error!r}.") from error
    if not names:
        raise CheckpointError(f"{index} names no file; download the checkpoint again.")
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{index} names {name!r}, which is not a file beside it.")
        if not (index.parent / name).is_file():
            raise CheckpointError(
                f"{index} names {name}, which is missing; download the checkpoint again."
            )
    return [index.parent / name for name in names]


def _read_file(path: Path, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor of a file under its name in memory; without values on the device meta."""
    if path.name == PICKLE_NAME:
        yield from _read_pickle(path, device)
        return
    is_meta = device.type == "meta"
    copy = DeviceCopy(device) if device.type == "cuda" else None
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():  # noqa: SIM118 - the handle is no mapping
                if is_meta:
                    header = file.get_slice(name)
                    kind = torch.bfloat16 if header.get_dtype() in _FLOATS else torch.int8
                    tensor = torch.empty(header.get_shape(), dtype=kind, device=device)
                else:
                    tensor = file.get_tensor(name)
                    tensor = tensor if copy is None else copy(tensor)
                yield _memory_name(name), tensor
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error


def _read_pickle(path: Path, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Yield a pickle's tensors; it must hold the names in memory, nothing is renamed here."""
    is_meta = device.type == "meta"
    try:
        # Only the zip layout of newer files can be mapped; an older one is in memory as a whole.
        content = torch.load(
            path,
            map_location="meta" if is_meta else "cpu",
            weights_only=True,
            mmap=zipfile.is_zipfile(path) and not is_meta,
        )
    except Exception as error:  # a broken pickle raises almost anything
        raise CheckpointError(f"{path} does not contain plain tensors only: {error}.") from error
    if isinstance(content, dict) and "state_dict" in content:
        content = content["state_dict"]
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not contain a dictionary of tensors.")
    prefixed = next(iter(content), "").startswith("model.")
    for name in list(content):
        tensor = content.pop(name)
        # `audio_` marks parts of training checkpoints that this format's readers leave out.
        if "audio_" not in name:
            moved = tensor.to(device) if isinstance(tensor, Tensor) else tensor
            yield name.removeprefix("model.") if prefixed else name, moved


def _memory_name(name: str) -> str:
    """Return a name on disk as the name in memory; names in memory stay as they are."""
    for disk, memory in _PREFIXES:
        if name.startswith(disk):
            return memory + name.removeprefix(disk)
    return name


def _disk_name(name: str) -> str:
    """Return a name in memory as safetensors files spell it, for a person who looks it up there."""
    disk, memory = next(pair for pair in _PREFIXES if name.startswith(pair[1]))
    return disk + name.removeprefix(memory)


class _Assigner:
    """Put tensors into a model's meta parameters and keep account of what is still missing."""

    def __init__(
        self, model: nn.Module, dtype: torch.dtype, forms: Mapping[str, LinearForm] | None
    ) -> None:
        """Expect a model's weights; a layer that is whole is finalized, unless `forms` is None.

        `forms` are by transformer, slow and fast.
        """
        self._model, self._dtype, self._forms = model, dtype, forms
        self._expected = {_name_of(path): path for path, _ in model.named_parameters()}
        self._missing = set(self._expected)
        self._left = Counter(filter(None, map(_block_of, self._expected.values())))
        self._parts: dict[str, dict[str, Tensor]] = {}

    def take(self, name: str, tensor: Tensor) -> None:
        """Assign one tensor; wq, wk and wv wait for each other and are then joined."""
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise CheckpointError(f"Weight {name} is not a tensor of floating-point numbers.")
        # On a CPU the tensor is the file's own memory.
        tensor = tensor.to(self._dtype, copy=tensor.device.type == "cpu")
        split = _SPLIT_PROJECTION.fullmatch(name)
        if split is None:
            self._assign(name, tensor)
            return
        joined = f"{split[1]}wqkv.{split[3]}"
        parts = self._parts.setdefault(joined, {})
        parts[split[2]] = tensor
        if len(parts) == 3:
            del self._parts[joined]
            self._assign(joined, torch.cat([parts["q"], parts["k"], parts["v"]]))

    def check_complete(self) -> None:
        for joined, parts in self._parts.items():
            absent = ", ".join(f"w{part}" for part in "qkv" if part not in parts)
            raise CheckpointError(f"Weight {joined} is in parts, but {absent} is missing.")
        if self._missing:
            first = sorted(map(_disk_name, self._missing))
            raise CheckpointError(
                f"{len(first)} weights are missing, the first is {first[0]}."
                if len(first) > 1
                else f"Weight {first[0]} is missing."
            )

    def _assign(self, name: str, tensor: Tensor) -> None:
        path = self._expected.get(name)
        if path is None:
            raise CheckpointError(
                f"Weight {_disk_name(name)} is unknown to this model's configuration."
            )
        if name not in self._missing:
            raise CheckpointError(f"Weight {_disk_name(name)} is there twice.")
        owner_path, _, attribute = path.rpartition(".")
        owner = self._model.get_submodule(owner_path)
        wanted = getattr(owner, attribute).shape
        if tensor.shape != wanted:
            raise CheckpointError(
                f"Weight {_disk_name(name)} has the shape {tuple(tensor.shape)}, but the "
                f"configuration needs {tuple(wanted)}."
            )
        setattr(owner, attribute, nn.Parameter(tensor, requires_grad=False))
        self._missing.discard(name)
        block_path = _block_of(path)
        if block_path is None:
            return
        self._left[block_path] -= 1
        block = self._model.get_submodule(block_path)
        if not self._left[block_path] and self._forms is not None and isinstance(block, Block):
            block.finalize(self._forms[path.partition(".")[0]])  # this was its last weight
            trim_heap()


def _block_of(path: str) -> str | None:
    """Return the path of the layer that a parameter belongs to, None where it is in no layer."""
    found = _LAYER.match(path)
    return None if found is None else found[0]


def _name_of(path: str) -> str:
    """Return a parameter's name in memory from its path in our modules."""
    part, _, rest = path.partition(".")
    return f"fast_{rest}" if part == "fast" else rest
