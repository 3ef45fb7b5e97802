"""Fills what a scenario leaves open, says where each value came from, and refuses what cannot be.

Asks capabilities only; no algorithm, engine or vendor is known here by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sim.capabilities import (
    Barrier,
    HostLengthNeed,
    HostLengths,
    LengthSource,
    ReadEnd,
    Relay,
    WriteFence,
)
from sim.config import unread
from sim.config.checked import Attempts, Origin, shown
from sim.config.declarations import check_algorithm, load_profile_with_hash, load_program
from sim.config.expressions import with_expressions
from sim.config.profile import DeviceProfile
from sim.config.scenario import MatchExpected, PerPosition, Recorded, Scenario, TruncatedGeometric
from sim.errors import InputError, Problem
from sim.program.step_program import Mark, StepProgram, StreamName


@dataclass(frozen=True)
class Resolved:
    """A scenario that leaves nothing open, with the declarations it names.

    In the synchronous loop ``relay``, ``barrier`` and ``prep_stream`` stay ``None``; so do ``draft_steps``
    and ``topk`` where the program has none.
    """

    scenario: Scenario
    profile: DeviceProfile
    profile_sha256: str
    program: StepProgram
    #: dotted key -> where its value came from, for every key a scenario may leave open
    reasons: dict[str, str]
    #: what a reader of the results should know
    notes: list[str]

    @property
    def program_name(self) -> str:
        """``algorithm@engine`` as the step program itself says, however the scenario names its file."""
        return f"{self.program.algorithm}@{self.program.engine}"

    def to_json(self) -> dict[str, Any]:
        """The resolved scenario as results carry it: its keys, then ``reasons``."""
        return {**self.scenario.model_dump(mode="json"), "reasons": self.reasons}


#: reason of a value that the scenario gives itself
SCENARIO = "scenario"
#: note of a scenario whose program takes no lengths from the host
NONE_IS_BOUND = "host_lengths none and bound are the same point here: the program consumes no host lengths"


def resolve(scenario: Scenario, origin: Origin | None = None) -> Resolved:
    """Everything filled and checked. Raises InputError with every problem, located by ``origin``."""
    origin = origin or Origin("scenario")
    attempts = Attempts()
    loaded = attempts.call(load_profile_with_hash, scenario.device, origin.where("device"))
    profile, sha256 = loaded or (None, "")
    engine = scenario.engine or (profile.engine if profile else None)
    where = origin.where("algorithm")
    if engine is not None:
        program = attempts.call(load_program, scenario.algorithm, engine, where)
    else:
        program = attempts.call(check_algorithm, scenario.algorithm, where)
    problems = [*_refused_in_synchronous_loop(scenario, origin), *attempts.problems]
    if program is not None:
        problems += _refused_by_program(scenario, program, origin)
    platform = scenario.platform or (profile.platform if profile else None)
    problems += _refused_by_platform(scenario, platform, program, origin)
    if profile is not None and program is not None:
        problems += unread.beside(profile, program)
    if problems or profile is None or program is None:
        raise InputError(problems)
    return _Filling(scenario, profile, program).resolved(sha256)


class _Filling:
    """One pass over the keys a scenario may leave open; each may look at those before it."""

    def __init__(self, scenario: Scenario, profile: DeviceProfile, program: StepProgram):
        self.scenario = scenario
        self.profile = profile
        self.program = program
        self.declared = f"declared by {program.algorithm}@{program.engine}"
        self.values: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        self.notes: list[str] = []

    def resolved(self, sha256: str) -> Resolved:
        if self.profile.status == "published":
            self.notes.append(
                f"device profile {self.profile.name} is published, not measured: built from public figures, so "
                "is everything that follows from it"
            )
        self.notes += unread.notes(self.profile, self.program)
        self._fill("engine", self.program.engine, self._engine_reason())
        self._fill("platform", self.profile.platform, f"profile {self.profile.name}")
        self._fill_policies()
        self._fill_width()
        serving, reason = self._serving()
        acceptance = self._acceptance()
        self.reasons["serving.min_free_slots"] = reason
        update = {**self.values, "serving": serving, "acceptance": acceptance}
        filled = self.scenario.model_copy(update=update)
        largest = max(*serving.graph_batches, serving.max_running_requests)
        where = f"{self.program.algorithm}@{self.program.engine}"
        profile = with_expressions(self.profile, self.program, self.values["block_size"], largest, where)
        return Resolved(filled, profile, sha256, self.program, self.reasons, self.notes)

    def _fill(self, key: str, default: Any, reason: str) -> None:
        given = getattr(self.scenario, key)
        self.values[key] = default if given is None else given
        self.reasons[key] = reason if given is None else SCENARIO

    def _engine_reason(self) -> str:
        if self.program.engine == self.profile.engine:
            return f"profile {self.profile.name}"
        return f"step program {self.program.algorithm}@{self.program.engine}"

    def _fill_policies(self) -> None:
        declares = self.program.capabilities
        hip = self.values["platform"] == "hip"
        self._fill(
            "d2h_stream",
            "schedule" if hip else "private",
            "platform hip: lengths are copied on the schedule stream" if hip else "platform cuda",
        )
        self._fill("host_lengths", declares.default_host_lengths(), self.declared)
        if not self.scenario.overlap:
            for key in ("relay", "barrier", "prep_stream"):
                self.values[key] = None
                self.reasons[key] = "not used: the synchronous loop runs on one stream"
        else:
            self._fill("relay", declares.default_relay(), self.declared)
            self._fill("prep_stream", declares.decode_prep, self.declared)
            if hip and declares.write_fence is not WriteFence.SELF:
                reason = "platform hip: the scheduler's barrier is off by default"
                self._fill("barrier", Barrier.UNGUARDED, reason)
            else:
                self._fill("barrier", declares.default_barrier(), self.declared)
        lengths = self.values["host_lengths"]
        published = declares.length_source is LengthSource.PUBLISHED
        either = lengths in (HostLengths.NONE, HostLengths.BOUND)
        if published and either and not declares.consumes_host_lengths:
            self.notes.append(NONE_IS_BOUND)

    def _fill_width(self) -> None:
        width = self.program.speculation
        given = self.scenario
        block_size, draft_steps = width.block_size, width.draft_steps
        block_reason = steps_reason = self.declared
        if width.kind == "chain" and given.draft_steps is not None:
            block_size, block_reason = given.draft_steps + 1, "draft_steps + 1, as in every chain"
        if width.kind == "chain" and given.block_size is not None:
            draft_steps, steps_reason = given.block_size - 1, "block_size - 1, as in every chain"
        self._fill("block_size", block_size, block_reason)
        if self.program.status == "measured" and self.values["block_size"] != width.block_size:
            self.notes.append(
                f"block_size {self.values['block_size']}: the program's costs were measured at {width.block_size} "
                "positions a row and do not follow the block; a declared algorithm can price other blocks"
            )
        self._fill("draft_steps", draft_steps, steps_reason)
        self._fill("topk", width.topk, self.declared)
        for key in ("draft_steps", "topk"):
            if self.values[key] is None:
                self.reasons[key] = f"not used: {self.program.algorithm}@{self.program.engine} has none"

    def _serving(self) -> tuple[Any, str]:
        serving = self.scenario.serving
        if serving.min_free_slots != "auto":
            return serving, SCENARIO
        wanted = self.program.admission_min_free
        reason = self.declared
        if wanted == "refill_batching":
            wanted = refill_batching(serving.max_running_requests)
            reason += f": refill batching at max_running_requests {serving.max_running_requests}"
        return serving.model_copy(update={"min_free_slots": wanted}), reason

    def _acceptance(self) -> TruncatedGeometric | PerPosition | MatchExpected | Recorded:
        acceptance = self.scenario.acceptance
        drafts = self.values["block_size"] - 1
        if isinstance(acceptance, TruncatedGeometric | MatchExpected):
            mean = acceptance.mean_accepted_drafts
            if mean <= drafts:
                return acceptance
            if drafts:
                self.notes.append(
                    f"acceptance.mean_accepted_drafts {mean:g} is clipped to the {drafts} drafts of a step: "
                    "every draft is accepted"
                )
            self.reasons["acceptance.mean_accepted_drafts"] = f"clipped to block_size - 1 = {drafts}"
            return acceptance.model_copy(update={"mean_accepted_drafts": float(drafts)})
        if isinstance(acceptance, PerPosition) and len(acceptance.probabilities) < drafts:
            self.notes.append(
                f"acceptance.probabilities lists {len(acceptance.probabilities)} of the {drafts} drafts of a step: "
                "the later ones are never accepted"
            )
        if isinstance(acceptance, Recorded) and acceptance.values is not None:
            largest = max(max(row) for row in acceptance.values)
            if largest > drafts:
                self.notes.append(
                    f"recorded acceptances above the {drafts} drafts of a step count as {drafts}: "
                    f"the largest is {largest}"
                )
        return acceptance


def refill_batching(max_running_requests: int) -> int:
    """Free slots awaited before a prefill joins running requests (SGLang, dflash_utils.py 59-86, 0.5.14)."""
    if max_running_requests < 8:
        return 0
    return min(4, max(2, (max_running_requests + 5) // 6))


def _refused_in_synchronous_loop(scenario: Scenario, origin: Origin) -> Iterator[Problem]:
    if scenario.overlap:
        return
    for key in ("relay", "barrier", "prep_stream"):
        given = getattr(scenario, key)
        if given is not None:
            yield Problem(
                origin.where(key),
                f"{shown(given)} with overlap = false",
                f"no {key}: the synchronous loop has one stream and nothing in flight to order",
                f"Remove {key}, or set overlap = true.",
            )


def _refused_by_program(scenario: Scenario, program: StepProgram, origin: Origin) -> Iterator[Problem]:
    if scenario.engine is not None and scenario.engine != program.engine:
        yield Problem(
            origin.where("engine"),
            shown(scenario.engine),
            f"{shown(program.engine)}, the engine of the step program {shown(scenario.algorithm)}",
        )
    yield from _refused_by_capabilities(scenario, program, origin)
    yield from _refused_width(scenario, program, origin)


def _refused_by_capabilities(scenario: Scenario, program: StepProgram, origin: Origin) -> Iterator[Problem]:
    declares = program.capabilities
    name = f"{program.algorithm}@{program.engine}"
    if declares.length_source is LengthSource.HOST_KNOWN:
        reason = f"the host knows every length of {name}, so"
        if scenario.relay is Relay.DIRECT_CARRY:
            expected = f"unified: {reason} no lengths are handed on by reference"
            yield Problem(origin.where("relay"), shown(scenario.relay), expected)
        if scenario.host_lengths not in (None, HostLengths.NONE):
            expected = f"none: {reason} none are fetched"
            yield Problem(origin.where("host_lengths"), shown(scenario.host_lengths), expected)
        if scenario.barrier is Barrier.SELF_FENCE:
            expected = f"unguarded, coarse or read_done: {reason} its worker has no fence of its own"
            yield Problem(origin.where("barrier"), shown(scenario.barrier), expected)
    looks_up = program.speculation.kind == "lookup" and declares.host_length_need is HostLengthNeed.EXACT
    if looks_up and scenario.host_lengths not in (None, HostLengths.EXACT):
        expected = f"exact: {name} looks drafts up on the host, which needs exact lengths before it launches"
        yield Problem(origin.where("host_lengths"), shown(scenario.host_lengths), expected)
    refuses_coarse = scenario.barrier is Barrier.READ_DONE and not scenario.barrier_fallback
    if refuses_coarse and not provides_read_end(program):
        yield Problem(
            origin.where("barrier"),
            "read_done with barrier_fallback = false",
            f"a program that marks its last shared read: {name} does not",
            "Set barrier_fallback = true to wait for the whole forward instead, or barrier = coarse.",
        )


def provides_read_end(program: StepProgram) -> bool:
    """Whether an event for ``read_done`` can be recorded: the last shared read is known and marked."""
    marked = any(Mark.LAST_SHARED_READ in operation.marks for operation in program.operations)
    return marked and program.capabilities.read_end is not ReadEnd.UNKNOWN


def _refused_width(scenario: Scenario, program: StepProgram, origin: Origin) -> Iterator[Problem]:
    width = program.speculation
    name = f"{program.algorithm}@{program.engine}"
    takes_steps = width.kind in ("chain", "tree")
    for key in ("draft_steps", "topk"):
        given = getattr(scenario, key)
        if given is not None and not takes_steps:
            expected = f"no {key}: {name} drafts neither a chain nor a tree"
            yield Problem(origin.where(key), str(given), expected, "Use block_size.")
    if width.kind == "chain" and scenario.topk not in (None, 1):
        yield Problem(origin.where("topk"), str(scenario.topk), f"1: {name} drafts a chain")
    block, key = scenario.block_size, "block_size"
    if width.kind == "chain" and scenario.draft_steps is not None:
        if block not in (None, scenario.draft_steps + 1):
            yield Problem(
                origin.where("block_size"),
                f"{block} with draft_steps = {scenario.draft_steps}",
                f"{scenario.draft_steps + 1}: a chain verifies its drafts and one more",
                "Give one of the two.",
            )
        block, key = scenario.draft_steps + 1, "draft_steps"
    low, high = width.min_block_size, width.max_block_size
    if block is not None and not low <= block <= high:
        less = 1 if key == "draft_steps" else 0
        allowed = f"{low - less}" if low == high else f"{low - less} to {high - less}"
        yield Problem(origin.where(key), str(block - less), f"{allowed}, what {name} supports")


def _refused_by_platform(
    scenario: Scenario, platform: Literal["cuda", "hip"] | None, program: StepProgram | None, origin: Origin
) -> Iterator[Problem]:
    if platform != "hip":
        return
    reason = "the platform hip copies lengths to the host on the schedule stream"
    if scenario.d2h_stream == "private":
        yield Problem(origin.where("d2h_stream"), '"private" with platform hip', f'"schedule": {reason}')
    if program is not None and any(operation.stream is StreamName.D2H for operation in program.operations):
        yield Problem(
            origin.where("platform"),
            f"hip with {program.algorithm}@{program.engine}, which names the private D2H stream",
            f"a program that does not: {reason}",
        )
