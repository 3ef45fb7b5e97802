"""Predictions against measurements: a verdict a claim, as the interface's ``results.json`` has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpu_validation.configurations import SAFE
from gpu_validation.validate.claims import Cell, Claim, claims
from gpu_validation.validate.measured import Measured, MeasuredCell
from gpu_validation.validate.predict import Predictions

Verdict = Literal["holds", "fails", "cannot_tell"]
Interval = tuple[float, float]
#: a measured change larger than this must have the predicted sign
SIGNED = 0.003


@dataclass(frozen=True)
class Judged:
    claim: Claim
    predicted: float
    predicted_interval: Interval | None
    measured: Measured
    verdict: Verdict

    @property
    def error(self) -> float:
        """Predicted against measured in the unit of the tolerance."""
        return _error(self.claim, self.predicted, self.measured.mean)

    def to_json(self) -> dict[str, Any]:
        c = self.claim
        return {
            "id": c.id,
            "scenario_a": f"{c.cell.name}-{c.a}",
            "scenario_b": None if c.b is None else f"{c.cell.name}-{c.b}",
            "quantity": c.quantity,
            "predicted": _rounded(self.predicted),
            "predicted_interval": _rounded_pair(self.predicted_interval),
            "measured": _rounded(self.measured.mean),
            "measured_interval": _rounded_pair(self.measured.interval),
            "tolerance": c.tolerance,
            "source": c.source,
            "error": _rounded(self.error),
            "verdict": self.verdict,
        }


def judge(cells: Sequence[MeasuredCell], predictions: Predictions) -> list[Judged]:
    """Every claim about the measured cells."""
    by_cell = {m.cell: m for m in cells}
    out = []
    for claim in claims(by_cell, _best(cells, predictions)):
        measured = _measured(claim, by_cell[claim.cell])
        predicted, interval = _predicted(claim, predictions)
        out.append(Judged(claim, predicted, interval, measured, verdict(claim, predicted, measured)))
    return out


def verdict(claim: Claim, predicted: float, measured: Measured) -> Verdict:
    """``holds`` if the prediction is within tolerance of every value in the measured interval, ``fails`` if of none,
    else the measurement cannot tell. A change that measures beyond :data:`SIGNED` must also have the right sign."""
    ends = measured.interval or (measured.mean, measured.mean)
    if claim.quantity == "cycle_change":
        beyond = min(abs(end) for end in ends) > SIGNED and ends[0] * ends[1] > 0
        if beyond and predicted * measured.mean <= 0:
            return "fails"
    within = [abs(_error(claim, predicted, end)) <= claim.tolerance for end in ends]
    if all(within):
        return "holds"
    # Outside at both ends on the same side: no value between is near.
    same_side = (predicted - ends[0]) * (predicted - ends[1]) > 0
    return "fails" if not any(within) and same_side else "cannot_tell"


def _error(claim: Claim, predicted: float, measured: float) -> float:
    if claim.quantity in ("cycle_us", "throughput_tok_s"):
        return predicted / measured - 1
    return predicted - measured


def _best(cells: Sequence[MeasuredCell], predictions: Predictions) -> dict[Cell, str]:
    """The fastest safe configuration as measured, in cells that the model says the GPU bounds."""
    out = {}
    for m in cells:
        best = min((c for c in m.configurations if c in SAFE), key=lambda c: m.cycle_us(c).mean)
        if predictions.result(m.cell, best)["critical_side"] == "gpu":
            out[m.cell] = best
    return out


def _measured(claim: Claim, cell: MeasuredCell) -> Measured:
    if claim.quantity == "cycle_change":
        assert claim.b is not None
        return cell.cycle_change(claim.a, claim.b)
    if claim.quantity == "cycle_us":
        return cell.cycle_us(claim.a)
    if claim.quantity == "throughput_tok_s":
        return cell.throughput(claim.a)
    return cell.busy(claim.a)


def _predicted(claim: Claim, predictions: Predictions) -> tuple[float, Interval | None]:
    if claim.b is not None:
        return predictions.change(claim.cell, claim.a, claim.b)
    found = predictions.result(claim.cell, claim.a)[claim.quantity]
    if isinstance(found, dict):
        low_high = found["pi95"]
        return found["mean"], None if low_high is None else (low_high[0], low_high[1])
    return found, None


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _rounded_pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [_rounded(end) for end in interval]
