"""Devices: the backend the loops run on, and what is known about it."""

from __future__ import annotations

from typing import Literal

from gpu_validation.device.backend import Backend

BackendName = Literal["torch", "cpu"]


def open_backend(name: BackendName) -> Backend:
    """The device of this process, or the stand-in. Raises InputError when there is no device."""
    if name == "cpu":
        from gpu_validation.device.stand_in import StandIn

        return StandIn()
    from gpu_validation.device.torch_device import TorchDevice

    return TorchDevice()
