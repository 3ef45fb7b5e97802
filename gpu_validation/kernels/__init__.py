"""Device functions of the suite, twice: in plain torch (the definition) and in Triton (what a real device
runs).

Both modules have the same functions with the same arguments and write the same tensors.
:func:`for_device` chooses. Shapes, with b rows, B positions a row, T = b·B tokens:

- ``req_to_token`` [pool rows + 1, width] int32: KV slot of every position of every pool row; the last row
  belongs to padding and always names slot 0, which nobody reads;
- page table [b, width] int32: a graph's private copy of the rows it works on;
- K and V of a layer [slots, kv heads, head dim].
"""

from __future__ import annotations

from types import ModuleType


def for_device(real: bool) -> ModuleType:
    """The Triton functions on a real device, else the torch ones."""
    if real:
        from gpu_validation.kernels import triton_kernels

        return triton_kernels
    from gpu_validation.kernels import reference

    return reference
