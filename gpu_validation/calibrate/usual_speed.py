"""The speed of the host that a calibration states its costs at, and which of its turns were near it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: how far from the reference, relatively, the witness of a turn may be from which costs are taken
WINDOW = 0.25
#: costs are stated at the witness that this share of a calibration's turns stays below
REFERENCE = 0.5


def reference_us(found: Sequence[float]) -> float:
    """The witness to state costs at, from those of all turns of a batch; 0 where there is none."""
    known = sorted(w for w in found if w > 0)
    return known[int(REFERENCE * len(known))] if known else 0.0


def near(found: ArrayLike, reference: float) -> NDArray[np.bool_]:
    """Which turns count by their witness; all where there is none."""
    at = np.asarray(found, dtype=np.float64)
    return np.abs(at / reference - 1) <= WINDOW if reference else np.ones(at.shape, dtype=np.bool_)
