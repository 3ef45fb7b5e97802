"""The requests of a run: lengths, in submission order, keyed draws so that two policies see the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from sim.randomness import Purpose, RunKey, stream
from sim.serving.request import Request
from sim.spec.acceptance import AcceptanceModel, RequestAcceptance


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

    def of(self, key: RunKey, purpose: Purpose, request: int) -> int:
        if self.fixed is not None:
            return self.fixed
        if self.listed is not None:
            return self.listed[request % len(self.listed)]
        assert self.mean is not None
        assert self.cv is not None

        sigma2 = float(np.log1p(self.cv**2))
        z = float(ndtri(stream(key, purpose, request).random()))
        return max(1, round(self.mean * float(np.exp(np.sqrt(sigma2) * z - sigma2 / 2))))


class Workload:
    """Makes request ``index`` on demand; nothing is kept, so long runs need no memory for finished requests."""

    def __init__(
        self, requests: int, prompt: Lengths, output: Lengths, acceptance: AcceptanceModel, key: RunKey
    ):
        self.requests = requests
        self._prompt, self._output = prompt, output
        self._acceptance, self._key = acceptance, key

    def make(self, index: int) -> Request:
        return Request(
            index=index,
            prompt_tokens=self._prompt.of(self._key, Purpose.PROMPT_LENGTH, index),
            output_tokens=self._output.of(self._key, Purpose.OUTPUT_LENGTH, index),
            acceptance=RequestAcceptance(self._acceptance, self._key, index),
        )

    def interarrival_s(self, index: int, rate_per_s: float) -> float:
        """Seconds between request ``index`` − 1 and ``index`` of a Poisson stream."""
        return -float(np.log1p(-stream(self._key, Purpose.ARRIVAL, index).random())) / rate_per_s
