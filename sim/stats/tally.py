"""A weighted sample in bounded memory: exact while it is small, four significant digits once it is not."""

from __future__ import annotations

from collections import Counter

#: distinct values kept before they are rounded; a run of constant steps stays exact for ever
_EXACT = 20_000


class Tally:
    """Counts integer values; sums are always exact, quantiles to four digits beyond 20,000 distinct values."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._counts: Counter[int] = Counter()
        self._coarse = False

    def add(self, value: int, times: int = 1) -> None:
        self.count += times
        self.total += value * times
        self._counts[_four_digits(value) if self._coarse else value] += times
        if not self._coarse and len(self._counts) > _EXACT:
            self._coarse = True
            merged: Counter[int] = Counter()
            for v, c in self._counts.items():
                merged[_four_digits(v)] += c
            self._counts = merged

    def merge(self, other: Tally) -> None:
        """Adds the other's observations."""
        total, count = self.total + other.total, self.count + other.count
        for v, c in other._counts.items():
            self.add(v, c)
        self.total, self.count = total, count

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def quantile(self, q: float) -> float | None:
        """The smallest value with at least a share ``q`` of the observations at or below it; None if empty.

        For the median of an even count, the mean of the two middle values.
        """
        if not self.count:
            return None
        ordered = sorted(self._counts.items())
        if q == 0.5:
            return (self._at(ordered, (self.count + 1) // 2) + self._at(ordered, self.count // 2 + 1)) / 2
        return float(self._at(ordered, max(1, -int(-q * self.count // 1))))

    @staticmethod
    def _at(ordered: list[tuple[int, int]], rank: int) -> int:
        seen = 0
        for value, times in ordered:
            seen += times
            if seen >= rank:
                return value
        return ordered[-1][0]


def _four_digits(value: int) -> int:
    scale = 10 ** max(0, len(str(abs(value))) - 4)
    return round(value / scale) * scale
