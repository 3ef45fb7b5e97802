"""Intervals of means, and what one new boot would show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import stdtrit


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Student-t interval of the mean of independent replications; None below two values."""
    n = len(values)
    if n < 2:
        return None
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = float(stdtrit(n - 1, (1 + level) / 2)) * sd / math.sqrt(n)
    return mean - half, mean + half


def standard_deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 below two values."""
    n = len(values)
    if n < 2:
        return 0.0
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))


def next_run_half_width(values: Sequence[float], level: float = 0.95) -> float:
    """Half-width of the interval for one further run of the same kind: t·s·sqrt(1 + 1/n); 0 below two values.

    Source: the prediction interval of a normal sample, e.g. Hahn and Meeker, Statistical Intervals, 1991, ch. 4.
    """
    n = len(values)
    if n < 2:
        return 0.0
    return float(stdtrit(n - 1, (1 + level) / 2)) * standard_deviation(values) * math.sqrt(1 + 1 / n)


def new_boot_interval(
    mean: float, ratios: Sequence[float], relative_sd: float, luck: float, z: float = 1.959964
) -> tuple[float, float]:
    """Interval for one new boot of the machine.

    ``ratios``: the quantity at the ends of the host state's 95 % range, relative to its central value;
    ``relative_sd``: what else varies between boots or is uncertain about costs; ``luck``: relative half-width of
    one further run of the workload (:func:`next_run_half_width`). Asymmetric parts add in quadrature with the
    symmetric ones.
    """
    low, high = min([1.0, *ratios]), max([1.0, *ratios])
    other = math.hypot(z * relative_sd, luck)
    return mean * (1 - math.hypot(1 - low, other)), mean * (1 + math.hypot(high - 1, other))
