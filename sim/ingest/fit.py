"""Device costs that follow from unprofiled cycles: where the forward stream never idles, cycle = sum of its parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: a series leaves out the first five intervals: entry k runs from the start of `run_batch` k + 5 to the next
DROPPED = 5
#: that interval ends when the host has seen the result before: where the device is the bottleneck it shows the
#: forward one iteration back
LAG = 1


@dataclass(frozen=True)
class Line:
    """``cycle = intercept + slope·context`` of one batch (µs, µs a token), with what the fit leaves."""

    intercept: float
    slope: float
    #: relative spread of single iterations around the line
    within_sd: float
    #: half-width of 95 % at the mean context, relative
    error: float
    context: tuple[float, float]


def contexts(count: int, prompt: float, accepted_per_step: float) -> NDArray[np.float64]:
    """Mean tokens a request held in the forward that each entry of a device-bound series shows."""
    return prompt + accepted_per_step * (np.arange(count) + DROPPED - LAG)


def cycle_line(cycles: NDArray[np.float64], context: NDArray[np.float64]) -> Line:
    """Least squares after leaving out single iterations that are not like their neighbours (median ± 6 MAD)."""
    keep = np.ones(len(cycles), bool)
    slope = intercept = 0.0
    for _ in range(3):
        slope, intercept = np.polyfit(context[keep], cycles[keep], 1)
        residual = cycles - (intercept + slope * context)
        mad = float(np.median(np.abs(residual - np.median(residual))))
        keep = np.abs(residual) < 6 * max(mad, 1e-9)
    # The slope is that of usual iterations; the level is that of all of them, as a run's mean contains them all.
    intercept = float(np.mean(cycles) - slope * np.mean(context))
    residual = cycles[keep] - (intercept + slope * context[keep])
    level = float(np.mean(cycles))
    sd = float(np.std(residual, ddof=2))
    return Line(
        intercept=float(intercept),
        slope=float(slope),
        within_sd=sd / level,
        error=1.96 * sd / level / float(np.sqrt(keep.sum())),
        context=(float(context[0]), float(context[-1])),
    )


def by_shape(
    at: tuple[float, float], whole: NDArray[np.float64], first: int = 0, last: int = -1
) -> NDArray[np.float64]:
    """A part known at the first and last batch, between them in the shape of the whole.

    Layers of one shape grow alike with the batch, so ``part(b) = p0 + (p1 − p0)·s(b)`` with the normalised growth
    ``s`` of the whole.
    """
    growth = (whole - whole[first]) / (whole[last] - whole[first])
    return at[0] + (at[1] - at[0]) * growth
