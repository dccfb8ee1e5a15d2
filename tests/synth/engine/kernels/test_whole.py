"""Test whole frames and codec halves of kernels, and that a benchmark finds every kernel."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is not installed")

from lab.golden.case import GoldenFolder
from lab.golden.models import Loaded
from lab.gpu_check import kernel_cases
from synth.contract import Sampling
from synth.engine import kernels
from synth.engine.codec.config import TransformerConfig
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.load import use_kernels, uses_kernels
from synth.engine.errors import CheckpointError
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.decode import decode_step
from synth.engine.model.decode_state import FAILED, RUNNING, DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.linear import LinearForm, ScaledLinear, multiply_scaled
from synth.engine.model.prefill import SlotStart, start_slots
from tests.synth.engine.codec.conftest import decode_rounds, make_config, random_codes
from tests.synth.engine.kernels.compile_cases import NO_PRODUCTS, WITH_UNITS, WITHOUT_UNITS, Usage

NUM_FRAMES = 2
CHANGED = ("columns", "history", "window", "position", "frame", "active", "status")


@pytest.fixture
def state(loaded: Loaded, golden: GoldenFolder) -> DecodeState:
    return state_of(loaded.model, golden)


def state_of(model: DualAR, golden: GoldenFolder) -> DecodeState:
    """Return three slots behind prompts of different lengths, with their first frames made."""
    arrays = golden.tensors("greedy")
    state = DecodeState.allocate(model, num_slots=3, max_positions=256)
    for slot, case in enumerate(("no_voice", "one_voice", "two_voices")):
        prompt = arrays[f"{case}.prompt"]
        sampling = Sampling(seed=slot, temperature=0.9, top_p=0.95, top_k=20, max_frames=20)
        state.assign(slot, sampling, prompt_positions=prompt.shape[1])
        start_slots(model, state, [SlotStart(slot, prompt)])
    decode_step(model, state)
    return state


@pytest.mark.thorough
def test_frames_of_kernels_are_those_of_the_engine(loaded: Loaded, state: DecodeState) -> None:
    model, other = loaded.model, copy.deepcopy(state)
    other.active[1] = state.active[1] = False

    for _ in range(NUM_FRAMES):
        expected = decode_step(model, state)
        model.use_kernels()
        found = decode_step(model, other)
        model.has_kernels = False

        for name in ("columns", "made", "is_speech", "first_draw", "second_draw"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
        for name in CHANGED:
            assert torch.equal(getattr(other, name), getattr(state, name)), name
    live = int(other.position.min())
    torch.testing.assert_close(
        other.cache.keys[:, :, :, :live], state.cache.keys[:, :, :, :live], atol=1e-4, rtol=1e-4
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "fast_form", "name"),
    [
        (LinearForm.INT8_ROWS, LinearForm.INT8_ROWS, "int8"),
        (LinearForm.INT8_ROWS, LinearForm.PLAIN, "int8-slow"),
        (LinearForm.FP8_ROWS, LinearForm.FP8_ROWS, "fp8"),
    ],
)
def test_frames_in_8_bits_are_those_of_products_in_pytorch(
    golden: GoldenFolder, form: LinearForm, fast_form: LinearForm, name: str
) -> None:
    model, _ = load_dual_ar(golden.checkpoint, dtype=torch.float32, form=form, fast_form=fast_form)
    assert model.weight_format == name
    state = state_of(model, golden)
    other = copy.deepcopy(state)

    expected = decode_step(model, state)
    model.use_kernels()
    found = decode_step(model, other)

    for name in ("columns", "made", "is_speech", "first_draw", "second_draw"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    # Prompts go through the same kernels.
    product = model.slow.blocks[0].attention.wqkv
    assert isinstance(product, ScaledLinear)
    x = torch.randn(2, 20, model.config.text_config.dim, generator=torch.Generator().manual_seed(3))
    exact = multiply_scaled(x.flatten(0, 1), product.weight, None).view(2, 20, -1)
    assert product.multiply is not multiply_scaled
    torch.testing.assert_close(product(x), exact, atol=1e-4, rtol=1e-4)


@pytest.mark.thorough
def test_poisoned_slot_fails_alone_among_kernels(loaded: Loaded, state: DecodeState) -> None:
    model = loaded.model
    state.cache.values[:, 1, :, 0] = float("nan")
    model.use_kernels()
    made = decode_step(model, state)
    model.has_kernels = False
    assert state.status.tolist() == [RUNNING, FAILED, RUNNING]
    assert made.is_speech.tolist() == [True, False, True]


@pytest.mark.thorough
def test_model_of_another_form_is_refused(loaded: Loaded) -> None:
    matrix = loaded.model.slow.blocks[0].attention.wo
    assert isinstance(matrix, nn.Linear)
    weight = matrix.weight
    matrix.weight = nn.Parameter(weight.T.contiguous().T, requires_grad=False)
    with pytest.raises(CheckpointError, match="TTS_ENGINE_WITHOUT=kernels"):
        loaded.model.use_kernels()
    matrix.weight = weight
    assert not loaded.model.has_kernels


Half = TypeVar("Half", bound=nn.Module)
CONFIG = make_config(
    latent_dim=8,
    encoder_strides=(2, 4, 8),
    downsample_factors=(2,),
    decoder_dim=24,
    decoder_rates=(8, 4, 2),
    upsample_factors=(2,),
    num_residual_codebooks=2,
    encoder_transformer=TransformerConfig(16, 1, 1, 20, 64),
    pre_module=TransformerConfig(8, 1, 1, 12, 16),
    post_module=TransformerConfig(8, 2, 1, 12, 16),
)


def pair(
    half_type: type[Half],
    device: torch.device,
    dtype: torch.dtype,
    operands: torch.dtype | None = None,
) -> tuple[Half, Half]:
    generator = torch.Generator().manual_seed(5)
    plain = half_type(CONFIG).requires_grad_(False).eval()
    for name, weight in plain.named_parameters():
        fan_in = weight[0].numel() if weight.dim() > 1 else 100
        weight.normal_(std=0.6 * fan_in**-0.5, generator=generator)
        weight.add_(1.0 if name.endswith(("alpha", "norm.weight")) else 0.0)
    plain = plain.to(device, dtype)
    return plain, use_kernels(copy.deepcopy(plain), operands)


@pytest.mark.parametrize(
    ("dtype", "operands", "close"),
    [
        (torch.float32, None, 1e-5),
        (torch.float32, torch.float16, 1e-3),
        (torch.bfloat16, torch.bfloat16, 0.03),
    ],
)
def test_a_decoder_gives_the_same_audio(
    device: torch.device, dtype: torch.dtype, operands: torch.dtype | None, close: float
) -> None:
    plain, fused = pair(CodecDecoder, device, dtype, operands)
    codes = [random_codes(CONFIG, 9), random_codes(CONFIG, 4, 1)]
    found, expected = fused.decode(codes), plain.decode(codes)
    alone = fused.decode(codes[:1])[0]
    torch.testing.assert_close(alone, expected[0], atol=close, rtol=0)
    assert uses_kernels(fused) and not uses_kernels(plain)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=close, rtol=0)
    assert torch.cat(expected).std() > 0.02


@pytest.mark.thorough
def test_an_encoder_gives_the_same_latents(device: torch.device) -> None:
    plain, fused = pair(CodecEncoder, device, torch.float32)
    wave = torch.randn(1, 1, 128 * 5, generator=torch.Generator().manual_seed(1)).to(device)
    found, expected = fused.encoder(wave), plain.encoder(wave)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    codes = plain.encode(wave[0, 0])
    for piece in (1, 2, 5):  # the last one takes the whole
        assert torch.equal(fused.encode(wave[0, 0], piece_frames=piece), codes)


@pytest.mark.thorough
@pytest.mark.parametrize(("operands", "close"), [(None, 1e-5), (torch.float16, 1e-3)])
def test_chunks_of_streams_give_the_audio_of_the_whole(
    device: torch.device, operands: torch.dtype | None, close: float
) -> None:
    plain, fused = pair(CodecDecoder, device, torch.float32, operands)
    codes = [random_codes(CONFIG, 12, seed) for seed in range(2)]
    found, _ = decode_rounds(fused, codes, [(1, 1), (2, 2), (4, 4), (5, 5)])
    alone, _ = decode_rounds(fused, codes[:1], [(3,), (1,)])
    torch.testing.assert_close(alone[0], found[0][: len(alone[0])], atol=close, rtol=0)
    for audio, matrix in zip(found, codes, strict=True):
        (whole,) = plain.decode([matrix])
        torch.testing.assert_close(audio, whole, atol=close, rtol=0)


def test_every_module_with_kernels_has_cases() -> None:
    folder = Path(kernels.__file__).parent
    found = {path.stem for path in folder.glob("*.py") if "@triton.jit" in path.read_text("utf-8")}
    assert found >= {"attention", "frame", "gemv", "rowwise", "sampler"}
    assert set(kernel_cases.CASES) == found | {"snake"}


def test_random_inputs_are_the_same_in_every_run(device: torch.device) -> None:
    first, second = (
        kernel_cases.random(3, 5, device=device, dtype=torch.bfloat16, scale=0.5) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert first.shape == (3, 5) and first.dtype is torch.bfloat16


@pytest.mark.gpu
def test_every_case_is_close_to_its_torch_form_at_the_full_models_shape() -> None:
    for case in kernel_cases.kernel_cases(torch.device("cuda"), torch.bfloat16):
        found, expected = (as_tuple(form()) for form in (case.kernel, case.torch_form))
        for one, other in zip(found, expected, strict=True):
            error = (one.double() - other.double()).norm() / other.double().norm()
            assert error < 1e-2, f"{case.name} {case.shape}"


def as_tuple(tensors: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tensors if isinstance(tensors, tuple) else (tensors,)


PROJECT = Path(__file__).resolve().parents[4]
_MOST_SPILLED = 8  # bytes, which are two registers of a thread
_MOST_STACK = 32  # bytes, which a sine takes
_SPILLING_SINE = "_snake(HAS_CONTEXT=False, BLOCK_D=1, BLOCK_T=1024)"  # of long rows: a register
_MOST_SHARED = 99 * 1024  # bytes that a program may take on compute capability 8.6 and 8.9
_MOST_SHARED_OF_TURING = 64 * 1024


@pytest.mark.thorough
@pytest.mark.parametrize("capability", [80, 86, 89, 90])
def test_kernels_compile_at_the_full_models_shapes_without_spilling(capability: int) -> None:
    found = compile_for(capability)

    assert len(found) > 10
    assert_stacks_are_small(found)
    assert those(found, lambda usage: usage.spilled > _MOST_SPILLED) == {}
    assert those(found, lambda usage: usage.shared > _MOST_SHARED) == {}
    assert those(found, lambda usage: usage.products == WITHOUT_UNITS) == {}
    # A split of one block reads nothing ahead, and keeps no room for it.
    short = [found[line].shared for line in found if "_step_splits" in line and "SPLIT=64" in line]
    assert short and max(short) < 32 * 1024
    in_fp8 = [line for line in found if "multiply_tile of fp8" in line]
    assert bool(in_fp8) == (capability >= 89)


@pytest.mark.thorough
def test_kernels_compile_for_turing_but_multiply_without_its_matrix_units() -> None:
    """This is why they are not used there: what units would hold spills out of registers."""
    found = compile_for(75)

    products = those(found, lambda usage: usage.products != NO_PRODUCTS)
    others = those(found, lambda usage: usage.products == NO_PRODUCTS)
    assert len(products) > 10 < len(others)
    assert those(products, lambda usage: usage.products == WITH_UNITS) == {}
    assert max(usage.spilled for usage in products.values()) > 1000
    assert_stacks_are_small(others)
    assert those(others, lambda usage: usage.spilled > _MOST_SPILLED) == {}
    assert those(found, lambda usage: usage.shared > _MOST_SHARED_OF_TURING) == {}


def assert_stacks_are_small(found: dict[str, Usage]) -> None:
    larger = those(found, lambda usage: usage.stack > _MOST_STACK)
    assert set(larger) <= {_SPILLING_SINE}
    assert all(usage.stack <= _MOST_STACK + _MOST_SPILLED for usage in larger.values())


def those(found: dict[str, Usage], do: Callable[[Usage], bool]) -> dict[str, Usage]:
    return {line: usage for line, usage in found.items() if do(usage)}


def compile_for(capability: int) -> dict[str, Usage]:
    """Return what each kernel takes on a device of a compute capability, by its name."""
    environment = {key: os.environ[key] for key in os.environ if key != "TRITON_INTERPRET"}
    environment["OMP_NUM_THREADS"] = "1"

    run = subprocess.run(
        [sys.executable, "-m", "tests.synth.engine.kernels.compile_cases", str(capability)],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    lines = [line.rsplit(": ", 1) for line in run.stdout.splitlines()]
    return {name: Usage.read(usage) for name, usage in lines}
