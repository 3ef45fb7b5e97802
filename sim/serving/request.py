"""A request and what is known of it: truth on the device, and what the host has seen. No clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.spec.acceptance import RequestAcceptance


@dataclass(slots=True, eq=False)
class Request:
    """``generated`` counts tokens the device has committed, the unfinished step's excluded; ``seen`` those whose
    results the host has processed. A finished request may go on generating for one step (the zombie forward)."""

    index: int
    prompt_tokens: int
    output_tokens: int
    acceptance: RequestAcceptance
    row: int = -1
    generated: int = 0
    seen: int = 0
    finished: bool = False
    #: simulated times set by whoever drives the run; None until they happen
    arrived_ns: int = 0
    first_token_ns: int | None = None
    last_token_ns: int = 0

    @property
    def context(self) -> int:
        """Committed tokens, prompt included: what attention reads."""
        return self.prompt_tokens + self.generated


@dataclass(slots=True, eq=False)
class Batch:
    """One iteration's rows. ``committed[i]`` are the tokens row i commits; None before the launch."""

    requests: list[Request]
    prefill: bool
    filtered: bool = False
    merged: bool = False
    #: direct carry would be valid: nothing was filtered or merged since the last decode
    carry_valid: bool = True
    committed: list[int] = field(default_factory=list)
    accepted_drafts: int = 0

    @property
    def size(self) -> int:
        return len(self.requests)

    @property
    def prompt_tokens(self) -> int:
        return sum(r.prompt_tokens for r in self.requests)

    def mean_context(self) -> float:
        """Mean committed tokens a request at launch."""
        return sum([r.prompt_tokens + r.generated for r in self.requests]) / len(self.requests)
