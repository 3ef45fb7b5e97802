"""The requests of a run: lengths, in submission order, keyed draws so that two policies see the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from sim.serving.request import Request
from sim.spec.acceptance import AcceptanceModel, RequestAcceptance

#: purposes of random streams; acceptance uses 1 (sim.spec.acceptance)
PROMPT, OUTPUT, ARRIVAL = 2, 3, 4


def uniform(seed: int, purpose: int, request: int) -> float:
    """One uniform draw keyed by (seed, purpose, request)."""
    return float(np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, purpose, request]))).random())


class Lengths:
    """Token counts by request: fixed, listed (starting over at the end) or lognormal with given mean and cv."""

    def __init__(
        self,
        fixed: int | None = None,
        listed: Sequence[int] | None = None,
        mean: float | None = None,
        cv: float | None = None,
    ):
        self.fixed, self.listed, self.mean, self.cv = fixed, listed, mean, cv

    def of(self, seed: int, purpose: int, request: int) -> int:
        if self.fixed is not None:
            return self.fixed
        if self.listed is not None:
            return self.listed[request % len(self.listed)]
        assert self.mean is not None
        assert self.cv is not None


        sigma2 = float(np.log1p(self.cv**2))
        z = float(ndtri(uniform(seed, purpose, request)))
        return max(1, round(self.mean * float(np.exp(np.sqrt(sigma2) * z - sigma2 / 2))))


class Workload:
    """Makes request ``index`` on demand; nothing is kept, so long runs need no memory for finished requests."""

    def __init__(self, requests: int, prompt: Lengths, output: Lengths, acceptance: AcceptanceModel, seed: int):
        self.requests = requests
        self._prompt, self._output = prompt, output
        self._acceptance, self._seed = acceptance, seed

    def make(self, index: int) -> Request:
        return Request(
            index=index,
            prompt_tokens=self._prompt.of(self._seed, PROMPT, index),
            output_tokens=self._output.of(self._seed, OUTPUT, index),
            acceptance=RequestAcceptance(self._acceptance, self._seed, index),
        )

    def interarrival_s(self, index: int, rate_per_s: float) -> float:
        """Seconds between request ``index`` − 1 and ``index`` of a Poisson stream."""
        return -float(np.log1p(-uniform(self._seed, ARRIVAL, index))) / rate_per_s
