"""On a real device: kernels against their definition, and tokens that depend on no policy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from scenes import ALGORITHMS, combinations, policies, safe, workload

from gpu_validation.runtime.build import Built, tokens_of
from gpu_validation.runtime.server import RunOptions
from gpu_validation.runtime.shapes import SHAPES
from gpu_validation.runtime.sizes import Sizes
from sim.capabilities import Barrier

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
BF16, I32, I64 = torch.bfloat16, torch.int32, torch.int64


@pytest.fixture(scope="module", autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def compare(name: str, arguments: list[object], outputs: list[int], tolerance: float = 1e-2) -> None:
    """Runs both functions on the same inputs, on the device; outputs start poisoned and must agree."""
    from gpu_validation.kernels import reference, triton_kernels

    def on_device(function: object) -> list[torch.Tensor]:
        given = [a.cuda().clone() if isinstance(a, torch.Tensor) else a for a in arguments]
        function(*given)  # type: ignore[operator]
        torch.cuda.synchronize()
        return [given[i] for i in outputs]  # type: ignore[misc]

    expected = on_device(getattr(reference, name))
    for got, want in zip(on_device(getattr(triton_kernels, name)), expected, strict=True):
        if want.is_floating_point():
            error = (got.double() - want.double()).norm() / want.double().norm()
            assert error < tolerance, f"{name}: relative error {error:.2e}"
        else:
            assert torch.equal(got, want), name


def test_layer_kernels() -> None:
    torch.manual_seed(1)
    for tokens, hidden in ((5, 4096), (1024, 1024)):
        x, w = torch.randn(tokens, hidden).to(BF16), torch.rand(hidden).to(BF16)
        out = torch.full((tokens, hidden), float("nan")).to(BF16)
        compare("rms_norm", [x, w, out, 1e-6], [2])
        compare("add_rms_norm", [torch.randn(tokens, hidden).to(BF16), x, w, out, 1e-6], [0, 3])
        compare("silu_mul", [torch.randn(tokens, 2 * hidden).to(BF16), out], [1])


@pytest.mark.parametrize("q_heads", [32, 16, 0])
def test_norm_rope_store(q_heads: int) -> None:
    torch.manual_seed(2)
    tokens, kv, dim, slots = 70, 8, 128, 300
    wide = torch.randn(tokens, (q_heads + 2 * kv) * dim + 64).to(BF16)
    arguments = [
        wide[:, : (q_heads + 2 * kv) * dim],
        torch.rand(dim).to(BF16),
        torch.rand(dim).to(BF16),
        torch.randn(500, dim),
        torch.randint(0, 500, (tokens,), dtype=I32),
        torch.randperm(slots)[:tokens].to(I32),
        torch.zeros(slots, kv, dim).to(BF16),
        torch.zeros(slots, kv, dim).to(BF16),
        torch.zeros(tokens, max(1, q_heads), dim).to(BF16),
        1e-6,
    ]
    compare("norm_rope_store", arguments, [6, 7, 8] if q_heads else [6, 7])


@pytest.mark.parametrize("block", [16, 4, 1])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("rows", "splits"), [(1, 16), (4, 4), (20, 1)])
def test_paged_attention(block: int, causal: bool, rows: int, splits: int) -> None:
    torch.manual_seed(3)
    q_heads, kv, dim, width = 32, 8, 128, 2048
    slots = rows * width + 1
    lengths = torch.randint(0, width - block - 4, (rows,), dtype=I32)
    lengths[0] = 0
    table = (torch.randperm(slots - 1)[: rows * width] + 1).view(rows, width).to(I32)
    pieces = rows * block * q_heads * splits
    arguments = [
        torch.randn(rows * block, q_heads, dim).to(BF16),
        torch.randn(slots, kv, dim).to(BF16),
        torch.randn(slots, kv, dim).to(BF16),
        table,
        lengths,
        3,
        block,
        causal,
        splits,
        torch.full((pieces, dim), float("nan")),
        torch.full((pieces,), float("nan")),
        torch.full((rows * block, q_heads, dim), float("nan")).to(BF16),
    ]
    compare("paged_attention", arguments, [11])


def test_bookkeeping_kernels() -> None:
    torch.manual_seed(4)
    rows, padded, block, width, pool = 5, 16, 16, 1024, 9
    table = torch.randint(1, 9999, (pool + 1, width), dtype=I32)
    table[pool] = 0
    pool_rows = torch.tensor([3, 0, 8, 1, 5] + [0] * 11, dtype=I32)
    lengths = torch.tensor([0, 17, 1000, 512, 300] + [0] * 11, dtype=I32)
    blank = [torch.zeros(padded, dtype=I32) for _ in range(2)]
    flat = [torch.zeros(padded * block, dtype=I32) for _ in range(2)]
    compare(
        "block_metadata",
        [
            pool_rows,
            lengths,
            table,
            rows,
            padded,
            block,
            width,
            *blank,
            *flat,
            torch.zeros(padded, width, dtype=I32),
        ],
        [7, 8, 9, 10, 11],
    )
    tokens = torch.randint(0, 999, (padded, 2))
    compare("block_tokens", [tokens, 2, rows, padded, block, 7, torch.zeros(padded * block, dtype=I64)], [6])
    capacity = 16
    scratch = torch.zeros(5 * capacity + capacity * 32, dtype=I32)
    scratch[:5] = torch.tensor([3, 0, 8, 1, 5])
    scratch[capacity : capacity + 5] = torch.tensor([0, 100, 7, 900, 50])
    scratch[2 * capacity : 2 * capacity + 5] = torch.tensor([32, 0, 3, 17, 1])
    scratch[3 * capacity : 3 * capacity + 5] = torch.tensor([0, 32, 32, 35, 52])
    scratch[5 * capacity :] = torch.arange(capacity * 32) + 5000
    compare("assign_slots", [scratch, capacity, table, rows, 32], [2])
    for width_, dtype in ((1, I64), (2, I64), (4096, BF16)):
        buffer = torch.randint(0, 100, (pool + 1, width_)).to(dtype)
        out = torch.zeros(padded, width_).to(dtype)
        compare("gather_rows", [buffer, pool_rows, rows, width_, out], [4])
        compare("scatter_rows", [out + 3, pool_rows, rows, width_, buffer, out], [4, 5])
    result = torch.arange(padded * (block + 1), dtype=I32).view(padded, block + 1)
    outs = [torch.zeros(pool + 1, dtype=I32), torch.zeros(padded, dtype=I32), torch.zeros_like(result)]
    compare("publish", [lengths, result, pool_rows, rows, block + 1, *outs], [5, 6, 7])


@pytest.mark.parametrize("block", [16, 4, 1])
@pytest.mark.parametrize("vocab", [5, 151936])
def test_acceptance(block: int, vocab: int) -> None:
    torch.manual_seed(5)
    rows = 40
    compare(
        "force_and_accept",
        [
            torch.randint(0, vocab, (rows * block,)),
            torch.randint(0, vocab, (rows * block,)),
            torch.arange(rows, dtype=I32),
            torch.arange(rows, dtype=I32) + 10,
            torch.full((rows + 1,), 10, dtype=I32),
            torch.randint(-1, block, (rows + 1, 64)).to(torch.int8),
            vocab,
            rows,
            block,
            torch.zeros(rows, dtype=I32),
            torch.zeros(rows, block + 1, dtype=I32),
            torch.zeros(rows, 1, dtype=I64),
        ],
        [0, 9, 10, 11],
    )


@pytest.fixture(scope="module", params=list(ALGORITHMS))
def built(request: pytest.FixtureRequest) -> Built:
    from gpu_validation.device.torch_device import TorchDevice

    with torch.no_grad():
        return Built(
            TorchDevice(),
            SHAPES["small"],
            request.param,
            Sizes(4, 16, 32, (4,)),
            block=ALGORITHMS[request.param],
        )


def served(built: Built, chosen: object, **options: object) -> list[list[int]]:
    # One request a prefill, so that no variant batches prompts differently.
    given = RunOptions(3, prefill_tokens=1, **options)  # type: ignore[arg-type]
    server, _ = built.run(chosen, workload(built.setting.block), given)  # type: ignore[arg-type]
    return list(tokens_of(server))


def test_all_safe_combinations_produce_the_same_tokens(built: Built) -> None:
    expected = served(built, policies())
    assert [len(t) for t in expected] == [14, 7, 18, 10, 14]
    for chosen in combinations(built.worker.capabilities.length_source):
        if safe(chosen):
            assert served(built, chosen) == expected, chosen
            assert served(built, chosen, debug=True) == expected, chosen


def test_a_stable_batch_needs_no_barrier(built: Built) -> None:
    """Live rows are written only past what a forward in flight reads (semantics 4.3)."""
    load = workload(built.setting.block, requests=3)
    runs = [
        built.run(policies(barrier=barrier), load, RunOptions(3))[0]
        for barrier in (Barrier.READ_DONE, Barrier.UNGUARDED)
    ]
    assert tokens_of(runs[0]) == tokens_of(runs[1])


def test_probe_finds_the_device_fit() -> None:
    from gpu_validation.device.probe import probe
    from gpu_validation.device.torch_device import TorchDevice

    found = {finding.name: finding.value for finding in probe(TorchDevice())}
    assert found["graphs"] == "yes"
    assert found["a stream wait blocks the host"] == "no"
    assert found["stream handles distinct"] == "yes"
