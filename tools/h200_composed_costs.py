"""Costs of the composed step programs (:mod:`h200_composed`): measured ones scaled by layers, tokens and vocabulary.

Every cost here has status ``assumed`` and says why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.config.profile import Cost
from sim.ingest.assemble import BATCHES

#: positions a request verifies, where the scenario does not say (SGLang's defaults: chain of three drafts and the
#: bonus; lookup of eight)
CHAIN_BLOCK, LOOKUP_BLOCK = 4, 8
#: layers of a small standalone drafter and its hidden size (Qwen3-0.6B) against the target's 36 and 4096
SMALL_LAYERS, SMALL_HIDDEN, TARGET_HIDDEN = 28, 1024, 4096
#: reduced vocabulary of an EAGLE3 drafter against the target's
EAGLE3_VOCABULARY, VOCABULARY = 32_000, 151_936
DRAFT_LAYERS = 5
#: device time of one graph node, µs (primitives_us.json: 400 nodes in 441 µs), and nodes of one transformer layer
NODE, NODES_A_LAYER = 1.1, 15


@dataclass(frozen=True)
class Measured:
    """What the composition draws on, over :data:`BATCHES` (µs)."""

    #: target graph at block 16 and its slope over the context
    target: np.ndarray
    target_context: np.ndarray
    #: drafter of five layers without a head
    draft: np.ndarray
    #: projection onto the vocabulary and its argmax, 16 rows a request
    head: np.ndarray
    #: all seam kernels of one metadata build
    metadata: np.ndarray
    argmax: np.ndarray
    #: µs a call of a launch, through the framework
    launch: float


def costs(m: Measured) -> dict[str, Cost]:
    """Costs that only composed programs use."""
    batches = np.array(BATCHES, dtype=float)

    def at_tokens(values: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """A table over the batch at block 16, read at other token counts; flat below its first entry."""
        return np.interp(tokens, 16 * batches, values)

    def cost(value: np.ndarray, source: str, context: np.ndarray | None = None) -> Cost:
        return Cost(
            value=tuple(round(float(v), 2) for v in value),
            batch=BATCHES,
            per_context=0.0 if context is None else tuple(round(float(v), 5) for v in context),
            valid_range={"batch": (BATCHES[0], BATCHES[-1])},
            status="assumed",
            source=source,
        )

    layer = at_tokens(m.draft, batches) / DRAFT_LAYERS
    head = at_tokens(m.head, batches)
    small_head = head * SMALL_HIDDEN / TARGET_HIDDEN
    reduced_head = head * EAGLE3_VOCABULARY / VOCABULARY
    small = np.maximum(
        SMALL_LAYERS * NODES_A_LAYER * NODE, SMALL_LAYERS * layer * (SMALL_HIDDEN / TARGET_HIDDEN) ** 2
    )
    passes = CHAIN_BLOCK - 2  # the first draft comes with the previous step's extension
    # One query a row reads 36 layers × 8 heads × 128 × 2 (K, V) × 2 bytes a token, at 60 % of 4.8 TB/s.
    decode_context = batches * 36 * 8 * 128 * 2 * 2 / (0.6 * 4.8e12) * 1e6
    target = "graph.target read at the same number of tokens, flat below 16"
    return {
        "graph.decode": cost(
            at_tokens(m.target, batches),
            f"{target}; context slope: KV read at 60 % of the memory's bandwidth",
            decode_context,
        ),
        "graph.target.chain": cost(
            at_tokens(m.target, CHAIN_BLOCK * batches),
            f"{target}; the verify kernel pads queries to 16, so the context slope is the measured one",
            m.target_context,
        ),
        "graph.target.lookup": cost(
            at_tokens(m.target, LOOKUP_BLOCK * batches),
            f"{target}; context slope as measured",
            m.target_context,
        ),
        "graph.draft.eagle": cost(
            passes * (layer + head),
            f"{passes} passes of one layer (a fifth of the measured five-layer drafter) and the full head",
        ),
        "graph.draft.eagle3": cost(
            passes * (layer + reduced_head),
            f"{passes} passes of one layer and a head of {EAGLE3_VOCABULARY} words",
        ),
        "graph.draft.standalone": cost(
            (passes + 1) * (small + small_head),
            f"{passes + 1} passes of a drafter of {SMALL_LAYERS} layers and "
            f"hidden size {SMALL_HIDDEN}: bound by {NODES_A_LAYER} graph nodes a layer",
        ),
        "graph.extend.eagle": cost(layer + head, "one layer over the accepted tokens and the full head"),
        "graph.extend.eagle3": cost(layer + reduced_head, "one layer and the reduced head"),
        "graph.extend.standalone": cost(small + small_head, "one pass of the small drafter"),
        "seam.metadata": cost(m.metadata, "sum of the measured verify metadata kernels"),
        "seam.argmax": cost(m.argmax, "the measured argmax over 16 rows a request, read at one"),
        "seam.tree": Cost(value=8.0, status="assumed", source="four small kernels that build the tree"),
        "seam.accept": Cost(
            value=15.0,
            per_batch=2.0,
            status="assumed",
            source="argmax and accept kernels over a few rows a request",
        ),
        "seam.move": Cost(
            value=10.0,
            per_batch=0.3,
            status="assumed",
            source="moves the accepted tokens' KV: two small kernels over all layers",
        ),
        "seam.mask": Cost(
            value=2.0, per_batch=8.0, status="assumed", source="four small kernels a request (semantics 1.9)"
        ),
        "seam.copy": Cost(value=2.0, status="assumed", source="a small pinned copy, as the traced ones"),
        "host.ngram.lookup": Cost(
            value=30.0,
            per_batch=15.0,
            status="assumed",
            source="corpus lookup and tree build in C++ for each request; no measurement, order of magnitude",
        ),
        "host.ngram.mask": Cost(
            value=0.0,
            per_batch=round(4 * m.launch, 2),
            status="assumed",
            source="four launches a request at call.launch (semantics 1.9)",
        ),
        "host.ngram.update": Cost(
            value=20.0, per_batch=10.0, status="assumed", source="corpus insertion; no measurement"
        ),
    }
