"""What one iteration's work is made of, and what that leaves uncertain about a run on a new boot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.config.profile import DeviceProfile
from sim.machine.costs import CostBook
from sim.program.primitives import Act, Primitive

#: relative uncertainty a cost carries into `pi95` by its status, unless it states a boot_sd of its own. The figures
#: are judgements, stated in docs/model.md: an assumed cost may well be off by a fifth.
STATUS_SD = {"measured": 0.0, "fitted": 0.0, "exact": 0.0, "scaled": 0.05, "published": 0.1, "assumed": 0.2}
#: additional relative uncertainty of a cost used one width of its valid range outside it (less when nearer)
EXTRAPOLATION_SD = 0.1


@dataclass
class Work:
    """Nanoseconds by cost name in one iteration: device time of the forward stream, and host time."""

    device: dict[str, float] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        costs: CostBook,
        pieces: Iterable[Sequence[Primitive]],
        batch: int,
        padded: int,
        block_size: int,
        context: float,
        tokens: int | None = None,
    ) -> Work:
        """The central costs of the given primitive lists (``tokens``: prompt tokens of a prefill)."""
        work = cls()
        for primitives in pieces:
            costed = costs.compile(primitives, batch, padded, block_size, tokens)
            ns = np.maximum(costed.base + costed.slope * context, 0.0)
            n = len(primitives)
            for i, p in enumerate(primitives):
                if p.host is not None:
                    work.host[p.host] = work.host.get(p.host, 0.0) + float(ns[i])
                if p.act is Act.LAUNCH and p.stream == "forward" and p.device is not None:
                    work.device[p.device] = work.device.get(p.device, 0.0) + float(ns[n + i])
        return work

    def by_status(self, profile: DeviceProfile) -> dict[str, float]:
        """Share of the work, device and host together, by the status of its cost."""
        total = sum(self.device.values()) + sum(self.host.values())
        shares: dict[str, float] = {}
        for name, ns in [*self.device.items(), *self.host.items()]:
            status = profile.costs[name].status
            shares[status] = shares.get(status, 0.0) + (ns / total if total else 0.0)
        return {status: round(share, 6) for status, share in sorted(shares.items())}

    def relative_sd(
        self, profile: DeviceProfile, exposed_share: float, outside: Mapping[str, float]
    ) -> float:
        """Relative uncertainty that the costs put into the time of such iterations.

        Device costs count by their share of the device time that is not exposed host time, host costs by theirs
        of the exposed time (``exposed_share`` of the whole). ``outside``: how far a cost is used outside its
        valid range, in widths of it. Costs err independently of one another.
        """
        variance = 0.0
        for spent, weight in ((self.device, 1 - exposed_share), (self.host, exposed_share)):
            total = sum(spent.values())
            for name, ns in spent.items():
                cost = profile.costs[name]
                sd = cost.boot_sd or STATUS_SD[cost.status]
                sd = math.hypot(sd, EXTRAPOLATION_SD * min(outside.get(name, 0.0), 1.0))
                variance += (weight * ns / total * sd) ** 2 if total else 0.0
        return math.sqrt(variance)
