"""Host times at one pace of the host: what calibration states and what validation measures mean the same host.

The pace (:func:`gpu_validation.runtime.host_work.pace_ns`) is timed in every turn by code that is the same in every
run, and the host's own sections follow it. A time taken at another pace is moved to the reference along the straight
line that all times of its kind share; where the host does not matter, that line is flat and moves nothing. Which
times count is decided by their pace alone, never by what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: how far from the reference, relatively, the pace of a time that counts may be: near it a line will do for what a
#: change of sides between host and device bends
WINDOW = 0.25
#: the pace that costs are stated at: this share of a calibration's turns is faster. A host beside a busy neighbour is
#: twice as slow, so that this is one of a quiet host however often it had one
REFERENCE = 0.25


def reference_ns(paces: Sequence[int]) -> float:
    """The pace to state costs at, from those of all turns; 0 where nothing was held."""
    known = sorted(p for p in paces if p > 0)
    return float(known[int(REFERENCE * len(known))]) if known else 0.0


def near(paces: ArrayLike, reference: float, window: float = WINDOW) -> NDArray[np.bool_]:
    """Which paces are near the reference; all of them where there is none."""
    at = np.asarray(paces, dtype=np.float64)
    if not reference:
        return np.isfinite(at)
    return np.abs(at / reference - 1) <= window


def at_pace(
    values: Sequence[NDArray[np.float64]], paces: Sequence[NDArray[np.float64]], reference: float
) -> list[NDArray[np.float64]]:
    """``values``, an array a group, moved to the reference pace; NaN stays NaN.

    The slope is common to all groups and taken within them, so that a difference between groups is none of it.
    """
    if not reference:
        return [v.copy() for v in values]
    along = across = 0.0
    for v, p in zip(values, paces, strict=True):
        both = np.isfinite(v) & np.isfinite(p)
        if both.sum() > 1:
            dp = p[both] - p[both].mean()
            along += float(dp @ (v[both] - v[both].mean()))
            across += float(dp @ dp)
    slope = along / across if across else 0.0
    return [v - slope * (p - reference) for v, p in zip(values, paces, strict=True)]
