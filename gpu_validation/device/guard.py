"""Is this device fit for the measurement? Asked before anything is built."""

from __future__ import annotations

import torch

from gpu_validation.device.backend import Backend
from gpu_validation.runtime.shapes import ModelShape
from gpu_validation.runtime.sizes import Sizes
from sim.errors import InputError, Problem

#: device memory that others may hold (contexts, a display), bytes
_OTHERS = 2 * 2**30
#: activations and graph scratch beside weights and KV, as a share of the weights, and at least this many bytes
_SCRATCH_SHARE, _SCRATCH_LEAST = 0.3, 6 * 2**30


def needed_bytes(shape: ModelShape, sizes: Sizes, block: int) -> int:
    """Device memory a worker of this shape takes, an upper estimate."""
    kv = shape.kv_bytes_per_token * sizes.rows * sizes.width(block)
    return shape.weight_bytes + kv + max(_SCRATCH_LEAST, int(_SCRATCH_SHARE * shape.weight_bytes))


def check_idle(backend: Backend) -> None:
    """Raises InputError when other processes hold the device; call before allocating."""
    if not backend.real:
        return
    free, total = torch.cuda.mem_get_info(backend.device)
    ours = torch.cuda.memory_reserved(backend.device)
    held = total - free - ours
    if held > _OTHERS:
        raise InputError(
            Problem(
                "device",
                f"{held / 2**30:.1f} GiB of {backend.name} in use by other processes",
                "a device of one's own: timings beside other work mean nothing",
                "Stop the other work, or choose another device with CUDA_VISIBLE_DEVICES.",
            )
        )


def check_memory(backend: Backend, shape: ModelShape, sizes: Sizes, block: int) -> None:
    """Raises InputError when the model does not fit."""
    if not backend.real:
        return
    free, _ = torch.cuda.mem_get_info(backend.device)
    needed = needed_bytes(shape, sizes, block)
    if needed > free:
        raise InputError(
            Problem(
                "device memory",
                f"{free / 2**30:.1f} GiB free on {backend.name}",
                f"about {needed / 2**30:.1f} GiB for the {shape.name} model",
                "Choose smaller models with --models.",
            )
        )
