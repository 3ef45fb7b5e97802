"""Which drafts are accepted: one uniform per (seed, request, token position), whatever the policy.

A draft at draft position j (1 is the first after the bonus token) of a step that starts at token position t is
accepted while u[t + j] < p_j; the step commits the accepted drafts and one bonus token. Two policies, block sizes
or schedules therefore see the same luck. Positions count generated tokens of the request, prompt excluded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from sim.randomness import Purpose, RunKey, stream

#: token positions drawn at a time
_WINDOW = 1024


def geometric_probability(mean_accepted_drafts: float, max_drafts: int) -> float:
    """The p with p + p² + … + p^max_drafts = mean_accepted_drafts (a geometric clipped at ``max_drafts``).

    Raises ValueError when no p in [0, 1] gives that mean.
    """
    if not 0 <= mean_accepted_drafts <= max_drafts:
        raise ValueError(
            f"a mean of {mean_accepted_drafts} accepted drafts cannot come from {max_drafts} drafts a step"
        )
    if mean_accepted_drafts in (0, max_drafts):
        return float(mean_accepted_drafts == max_drafts and max_drafts > 0)
    powers = np.arange(1, max_drafts + 1)
    return float(brentq(lambda p: float(np.sum(p**powers)) - mean_accepted_drafts, 0.0, 1.0, xtol=1e-14))


class AcceptanceModel(ABC):
    """Turns a window of uniforms into accepted drafts by start position."""

    #: most drafts a step can accept (block_size − 1)
    max_drafts: int

    @abstractmethod
    def accepted(self, request: int, first: int, u: NDArray[np.float64]) -> NDArray[np.int16]:
        """Accepted drafts of a step starting at token position ``first + i``, for each i.

        ``u`` holds the uniforms of positions first … first + n + max_drafts; the answer has n entries.
        """

    def mean(self) -> float | None:
        """Expected accepted drafts a step (without the bonus token), None where only data can tell."""
        return None


class PerPositionAcceptance(AcceptanceModel):
    """Draft j is accepted with probability ``p[j − 1]``, given that the ones before it were."""

    def __init__(self, probabilities: Sequence[float], max_drafts: int):
        self.max_drafts = max_drafts
        p = list(probabilities)[:max_drafts]
        self.p = np.array(p + [0.0] * (max_drafts - len(p)))

    def accepted(self, request: int, first: int, u: NDArray[np.float64]) -> NDArray[np.int16]:
        n = len(u) - self.max_drafts
        run = np.zeros(n, dtype=np.int16)
        alive = np.ones(n, dtype=bool)
        for j, p in enumerate(self.p, start=1):
            alive &= u[j : j + n] < p
            run += alive
        return run

    def mean(self) -> float:
        return float(np.sum(np.cumprod(self.p)))


class MatchExpectedAcceptance(AcceptanceModel):
    """Two-point distribution on the integers around the mean (SGLang's ``match-expected``, semantics 8)."""

    def __init__(self, mean_accepted_drafts: float, max_drafts: int):
        self.max_drafts = max_drafts
        self.low = min(int(mean_accepted_drafts), max_drafts)
        self.fraction = min(mean_accepted_drafts - self.low, 1.0)
        self._mean = mean_accepted_drafts

    def accepted(self, request: int, first: int, u: NDArray[np.float64]) -> NDArray[np.int16]:
        n = len(u) - self.max_drafts
        ahead = u[1 : 1 + n] if self.max_drafts else u[:n]
        return np.minimum(self.low + (ahead < self.fraction), self.max_drafts).astype(np.int16)

    def mean(self) -> float:
        return self._mean


class RecordedAcceptance(AcceptanceModel):
    """Accepted drafts by (request, token position) from a recording, cut at the block.

    Requests and positions beyond the recording start over: request r uses recording r mod (number recorded).
    """

    def __init__(self, accepted_by_request: Mapping[int, Sequence[int]], max_drafts: int):
        self.max_drafts = max_drafts
        self.rows = [
            np.array([min(n, max_drafts) for n in accepted_by_request[k]], dtype=np.int16)
            for k in sorted(accepted_by_request)
        ]

    def accepted(self, request: int, first: int, u: NDArray[np.float64]) -> NDArray[np.int16]:
        row = self.rows[request % len(self.rows)]
        n = len(u) - self.max_drafts
        positions = (first + np.arange(n)) % len(row)
        return np.minimum(row[positions], self.max_drafts).astype(np.int16)

    def mean(self) -> float:
        return float(np.minimum(np.concatenate(self.rows), self.max_drafts).mean())


class RequestAcceptance:
    """The accepted drafts of one request, made window by window so that memory does not grow with its length."""

    def __init__(self, model: AcceptanceModel, key: RunKey, request: int):
        self._model = model
        self._request = request
        self._random = stream(key, Purpose.ACCEPTANCE, request)
        self._tail = self._random.random(model.max_drafts)
        #: token position of the window's first entry
        self.first = 0
        self._fill()

    def _fill(self) -> None:
        u = np.concatenate([self._tail, self._random.random(_WINDOW)])
        self._tail = u[_WINDOW:]
        self.window: list[int] = self._model.accepted(self._request, self.first, u).tolist()

    def at(self, position: int) -> int:
        """Accepted drafts of a step that starts at ``position``; positions may only grow."""
        i = position - self.first
        while i >= _WINDOW:
            self.first += _WINDOW
            self._fill()
            i -= _WINDOW
        return self.window[i]
