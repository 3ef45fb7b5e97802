"""Predictions against measurements: a verdict a claim, as the interface's ``results.json`` has it.

The two meet in each process start: what was measured there, and what the model says for the speed that the host had
in the runs it comes from. What is left over, start by start, is the error; its interval covers what changes between
starts, the speed of the host excepted, which the prediction contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from gpu_validation.configurations import SAFE
from gpu_validation.validate.claims import Cell, Claim, claims
from gpu_validation.validate.measured import MeasuredCell
from gpu_validation.validate.predict import Predictions
from sim.stats.intervals import mean_interval

Verdict = Literal["holds", "fails", "cannot_tell"]
Interval = tuple[float, float]
#: a measured change larger than this must have the predicted sign
SIGNED = 0.003
#: quantities whose error is a share of the measured value; that of the others is a difference
RELATIVE = ("cycle_us", "throughput_tok_s")


@dataclass(frozen=True)
class Compared:
    """Predicted and measured values of all process starts, in their order.

    ``relative``: errors are shares of the measured value. ``stated``: the prediction at the calibrated speed of the
    host; where given, it is what is shown, and the measured value as it would be at that speed (two policies seldom
    met a host of one speed, and what that alone does to their difference is nobody's question).
    """

    predicted: tuple[float, ...]
    measured: tuple[float, ...]
    relative: bool
    stated: float | None = None

    @property
    def errors(self) -> list[float]:
        pairs = zip(self.predicted, self.measured, strict=True)
        return [p / m - 1 if self.relative else p - m for p, m in pairs]

    @property
    def error(self) -> float:
        return fmean(self.errors)

    @property
    def error_interval(self) -> Interval | None:
        """Student's t over the starts; None for one."""
        return mean_interval(self.errors)

    @property
    def shown_predicted(self) -> float:
        return fmean(self.predicted) if self.stated is None else self.stated

    @property
    def shown_measured(self) -> float:
        """Of a relative error nearly the plain mean, and always inside its interval."""
        if self.relative and self.error <= -1:
            return fmean(self.measured)
        return self._less(self.error)

    @property
    def measured_interval(self) -> Interval | None:
        """Of the measured mean, as far as the host's speed does not explain it; None where starts differ so much that
        it has no end."""
        if self.error_interval is None:
            return None
        low, high = self.error_interval
        if self.relative and low <= -1:
            return None
        return self._less(high), self._less(low)

    def _less(self, error: float) -> float:
        """The measured value at which the shown prediction has this error."""
        return self.shown_predicted / (1 + error) if self.relative else self.shown_predicted - error


@dataclass(frozen=True)
class Judged:
    claim: Claim
    compared: Compared
    #: what one new boot would show, at whatever speed its host is
    predicted_interval: Interval | None
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        c, found = self.claim, self.compared
        return {
            "id": c.id,
            "scenario_a": f"{c.cell.name}-{c.a}",
            "scenario_b": None if c.b is None else f"{c.cell.name}-{c.b}",
            "quantity": c.quantity,
            "predicted": _rounded(found.shown_predicted),
            "predicted_interval": _rounded_pair(self.predicted_interval),
            "measured": _rounded(found.shown_measured),
            "measured_interval": _rounded_pair(found.measured_interval),
            "as_measured": _rounded(fmean(found.measured)),
            "tolerance": c.tolerance,
            "source": c.source,
            "error": _rounded(found.error),
            "error_interval": _rounded_pair(found.error_interval),
            "verdict": self.verdict,
        }


def judge(cells: Sequence[MeasuredCell], predictions: Predictions) -> list[Judged]:
    """Every claim about the measured cells."""
    by_cell = {m.cell: m for m in cells}
    out = []
    for claim in claims(by_cell, _best(cells, predictions)):
        cell = by_cell[claim.cell]
        compared = Compared(
            _predicted(claim, cell, predictions),
            _measured(claim, cell),
            claim.quantity in RELATIVE,
            _at_calibrated_speed(claim, predictions),
        )
        out.append(Judged(claim, compared, _new_boot(claim, predictions), verdict(claim, compared)))
    return out


def verdict(claim: Claim, compared: Compared) -> Verdict:
    """``holds`` if the whole interval of the error is within the tolerance, ``fails`` if it is beyond it on one side,
    else the measurement cannot tell; nor can one start. A change that measures beyond :data:`SIGNED` must also have
    the right sign."""
    errors, measured = compared.error_interval, compared.measured_interval
    if errors is None or measured is None:
        return "cannot_tell"
    if claim.quantity == "cycle_change":
        beyond = min(abs(end) for end in measured) > SIGNED and measured[0] * measured[1] > 0
        if beyond and compared.shown_predicted * measured[0] <= 0:
            return "fails"
    low, high = errors
    if max(abs(low), abs(high)) <= claim.tolerance:
        return "holds"
    return "fails" if low > claim.tolerance or high < -claim.tolerance else "cannot_tell"


def _best(cells: Sequence[MeasuredCell], predictions: Predictions) -> dict[Cell, str]:
    """The fastest safe configuration as measured, in cells that the model says the GPU bounds."""
    out = {}
    for m in cells:
        best = min((c for c in m.configurations if c in SAFE), key=lambda c: fmean(m.cycle_us(c)))
        if predictions.result(m.cell, best)["critical_side"] == "gpu":
            out[m.cell] = best
    return out


def _measured(claim: Claim, cell: MeasuredCell) -> tuple[float, ...]:
    if claim.quantity == "cycle_change":
        assert claim.b is not None
        return tuple(cell.cycle_change(claim.a, claim.b))
    if claim.quantity == "cycle_us":
        return tuple(cell.cycle_us(claim.a))
    if claim.quantity == "throughput_tok_s":
        return tuple(cell.throughput(claim.a))
    return tuple(cell.busy(claim.a))


def _predicted(claim: Claim, cell: MeasuredCell, predictions: Predictions) -> tuple[float, ...]:
    def of(name: str, quantity: str) -> list[float]:
        return [
            fmean(predictions.at_speed(claim.cell, name, quantity, speed) for speed in runs)
            for runs in cell.speeds(name)
        ]

    if claim.b is None:
        return tuple(of(claim.a, claim.quantity))
    pairs = zip(of(claim.a, "cycle_us"), of(claim.b, "cycle_us"), strict=True)
    return tuple(b / a - 1 for a, b in pairs)


def _at_calibrated_speed(claim: Claim, predictions: Predictions) -> float | None:
    """Of a change."""
    if claim.b is None:
        return None
    a, b = (predictions.at_speed(claim.cell, name, "cycle_us", 1.0) for name in (claim.a, claim.b))
    return b / a - 1


def _new_boot(claim: Claim, predictions: Predictions) -> Interval | None:
    if claim.b is not None:
        return predictions.change_of_a_new_boot(claim.cell, claim.a, claim.b)
    found = predictions.result(claim.cell, claim.a)[claim.quantity]
    low_high = found["pi95"] if isinstance(found, dict) else None
    return None if low_high is None else (low_high[0], low_high[1])


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _rounded_pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [_rounded(end) for end in interval]
