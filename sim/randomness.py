"""Random streams keyed by what they are for, so that two policies see the same luck.

A run is keyed by (seed, replication); every stream adds its purpose and whatever it is drawn for (a request, a
cost and a block of iterations). No stream is shared, so drawing more of one never shifts another.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np


class Purpose(IntEnum):
    ACCEPTANCE = 1
    PROMPT_LENGTH = 2
    OUTPUT_LENGTH = 3
    ARRIVAL = 4
    COST = 5


class RunKey(NamedTuple):
    seed: int
    replication: int


def stream(key: RunKey, purpose: Purpose, *of: int) -> np.random.Generator:
    """An independent generator for ``purpose`` and the non-negative integers ``of``."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([*key, int(purpose), *of])))
