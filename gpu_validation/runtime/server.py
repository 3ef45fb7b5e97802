"""The engine of the suite: shared serving state, buffers and policies, as the phases of one iteration.

The loops put the phases in order; each phase is one screen and ends its host sections with the names of the
step program's operations. The host decides from what it has seen (results already copied), never from what
the device knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_validation.barrier import BarrierPolicy
from gpu_validation.device.backend import Backend
from gpu_validation.host_lengths import HostLengthsPolicy
from gpu_validation.observe.sections import RUN_BATCH, Lap
from gpu_validation.relay import RelayPolicy
from gpu_validation.runtime.future_map import FutureMap
from gpu_validation.runtime.host_work import NO_WORK, Holder, HostWork
from gpu_validation.runtime.pool import RequestPool, SlotAllocator
from gpu_validation.runtime.scratch import Group, ScratchRing
from gpu_validation.runtime.step import Step
from gpu_validation.runtime.streams import Streams
from gpu_validation.spec.base import Prompts, Setting, Worker
from sim.capabilities import LengthSource
from sim.program.policies import Policies
from sim.serving.request import Batch, Request
from sim.serving.scheduler import BatchScheduler
from sim.serving.workload import Workload

#: purpose key of prompt tokens and sampling draws, beside those of sim.serving.workload
PROMPT_IDS, SAMPLING, PREFIX_IDS = 11, 12, 13


@dataclass(frozen=True)
class RunOptions:
    """``concurrency`` clients send ``workload``'s requests one after the other.

    ``forced``: take acceptance from the workload's table (keyed by request and token position) instead of
    the drafts.
    ``prefill_tokens``: prompt tokens one prefill takes. ``debug``: poison what was read. ``poll``: look at the
    result until it is there instead of blocking, so that no section follows a wake; ``roomy``: run in the next larger
    graph than needed, with as many more empty rows (both for calibration only).
    """

    concurrency: int
    forced: bool = True
    prefill_tokens: int = 8192
    work: HostWork = NO_WORK
    debug: bool = False
    poll: bool = False
    roomy: bool = False
    #: prompt tokens that all longer prompts have in common and whose keys and values only the first computes
    shared_prefix: int = 0


@dataclass(slots=True)
class Launched:
    """What the books keep of one launch."""

    number: int
    requests: tuple[int, ...]
    #: their pool rows
    rows: tuple[int, ...]
    prefill: bool
    #: mean committed tokens a request at launch, prompt included; filled when the result is known
    context: float = 0.0


class Server:
    """One run of a workload under fixed policies. The worker's graphs and weights come from outside and
    stay.
    """

    def __init__(
        self,
        worker: Worker,
        policies: Policies,
        workload: Workload,
        options: RunOptions,
        streams: Streams,
        lap: Lap,
    ):
        setting = worker.setting
        self.worker, self.policies, self.workload, self.options, self.lap = (
            worker,
            policies,
            workload,
            options,
            lap,
        )
        self.setting: Setting = setting
        self.backend: Backend = setting.backend
        self.pool: RequestPool = setting.pool
        self.streams = streams if policies.overlap else streams.merged()
        self.backend.set_stream(self.streams.schedule)
        self.scheduler = BatchScheduler(self.pool.rows, 0, options.prefill_tokens, setting.block - 1)
        self.allocator = SlotAllocator(setting.slots, self.pool.rows)
        block = setting.block
        self.scratch = ScratchRing(self.backend, setting.batch, 2 * block, policies.pinned)
        self.prompt_scratch = ScratchRing(self.backend, 1, self.pool.width, policies.pinned)
        capabilities = worker.capabilities
        self.future = FutureMap(
            self.backend,
            setting.kernels,
            worker.fields,
            self.pool.rows,
            setting.batch,
            block + 1,
            policies.pinned,
            options.debug,
        )
        self.barrier = BarrierPolicy(policies, self.backend, self.streams, lap)
        self.relay = RelayPolicy(policies, capabilities.length_source, self.future, self.streams, lap)
        self.lengths = HostLengthsPolicy(
            policies, capabilities, self.backend, self.future, self.streams, block, self.pool.width, lap
        )
        self._publishes = capabilities.length_source is LengthSource.PUBLISHED
        self._copy_done = [self.backend.event(), self.backend.event()]
        self._results: list[NDArray[np.int32]] = [t.numpy() for t in self.future.results_on_host]
        graphs = setting.graph_batches
        fitting = [next(i for i, g in enumerate(graphs) if g >= n) for n in range(1, setting.batch + 1)]
        self._padded = [graphs[min(i + options.roomy, len(graphs) - 1)] for i in fitting]
        #: tokens each pool row has committed as far as the host has seen, prompt excluded, not cut at the end
        self._known = [0] * self.pool.rows
        self._prefix: list[int] = []
        self._number = 0
        self._inbox: deque[Request] = deque()
        self._next_request = 0
        self.tokens: dict[int, list[int]] = {}
        #: output tokens of the requests sent so far, when the first of them was complete
        self.tokens_at_first_finish: list[list[int]] = []
        self.launches: list[Launched] = []
        self.holder = Holder()
        #: turns of the loop so far
        self.turns = 0
        #: the turn in which a request finished last
        self.last_finish = 0
        worker.bind(lap, self)
        # Buffers are zeroed on one stream and used on all.
        self.backend.synchronize()
        for _ in range(min(options.concurrency, workload.requests)):
            self._send()

    # -- clients -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        """A client sends its next request, if any is left."""
        if self._next_request < self.workload.requests:
            self._inbox.append(self.workload.make(self._next_request))
            self._next_request += 1

    @property
    def exhausted(self) -> bool:
        """Everything that will ever be sent has been received, and nothing waits or runs."""
        return not self._inbox and self.scheduler.idle

    # -- phases, in order --------------------------------------------------------------------------------

    def receive(self) -> None:
        inbox = self._inbox
        while inbox:
            self.scheduler.submit(inbox.popleft())
        self.turns += 1
        self.holder.hold(self.options.work.receive_us)
        self.lap("receive")

    def schedule(self) -> Batch | None:
        batch = self.scheduler.next_batch()
        self.lap("schedule")
        return batch

    def launch(self, batch: Batch) -> Step:
        """From decode preparation to the copy of the result."""
        step = self._prefill(batch) if batch.prefill else self._decode(batch)
        self._copy_result(step)
        self._number += 1
        self.lap("queue")
        self.barrier.after_launch()
        return step

    def process(self, step: Step) -> None:
        """Wait for a result, then go through its rows."""
        if self.options.poll:
            while not step.copy_done.query():
                pass
            self.lap("result.poll")
        step.copy_done.synchronize()
        self.lap("result.synchronize")
        batch, work = step.batch, self.options.work
        table = self._results[step.number % 2][: step.rows].tolist()
        known, context = self._known, 0
        # Lengths the host knew in advance were counted at the launch.
        counts = self._publishes and not batch.prefill
        for request, row, host_row in zip(batch.requests, table, step.host_rows, strict=True):
            n = row[-1]
            context += request.prompt_tokens + request.generated
            request.generated += n
            if not request.finished:
                if counts:
                    known[host_row] += n
                self.tokens[request.index] += row[:n]
        batch.committed = [row[-1] for row in table]
        self.launches[step.number].context = context / step.rows
        _, finished = self.scheduler.process(batch)
        if finished and not self.tokens_at_first_finish:
            self.tokens_at_first_finish = [self.tokens[i].copy() for i in sorted(self.tokens)]
        for request in finished:
            self._finish(request)
        self.holder.hold(work.process_us + work.per_row_us * step.rows)
        self.lap("process")
        if finished:
            self.last_finish = self.turns - 1

    def _finish(self, request: Request) -> None:
        del self.tokens[request.index][request.output_tokens :]
        self.allocator.give_back(request.row)
        self._send()

    # -- decode ------------------------------------------------------------------------------------------

    def _decode(self, batch: Batch) -> Step:
        step = self._prepare(batch)
        self.lap(RUN_BATCH)
        self.relay.resolve(step)
        self.lengths.resolve(step, self.relay)
        if self.options.debug and self._publishes and self.policies.overlap and self.relay.gathers(step):
            self.future.poison_lengths(step.pool_rows, step.rows, self.streams.schedule)
        self.holder.hold(self.options.work.enter_us)
        self.lap("enter.isolate")
        self._enter_forward()
        self.relay.enter(step)
        self.worker.forward(step)
        self._stash(step)
        return step

    def _prepare(self, batch: Batch) -> Step:
        """Reserve slots for the tokens this step and the one in flight can commit, and tell the device.

        With at most one verification in flight, a row that the host knows at m positions is at most at m +
        B, and its forward touches positions below m + 2B (semantics 4.3).
        """
        self.barrier.before_preparation()
        requests, rows = batch.requests, len(batch.requests)
        group = self.scratch.group(self._number, rows)
        host_rows, bound = self._fill(group, requests)
        self.lap("prepare.rows")
        self.barrier.enter_preparation()
        self._upload(group, rows, 2 * self.setting.block)
        self.barrier.leave_preparation()
        self.barrier.launching()
        step = Step(
            self._number,
            batch,
            rows,
            self._padded[rows - 1],
            group,
            group.pool_rows,
            group.lengths,
            bound=bound,
            host_rows=host_rows,
        )
        self._launching(step, requests)
        return step

    def _launching(self, step: Step, requests: Sequence[Request]) -> None:
        """Into the books."""
        indices = tuple(r.index for r in requests)
        self.launches.append(
            Launched(step.number, indices, tuple(r.row for r in requests), step.batch.prefill)
        )

    def _fill(self, group: Group, requests: Sequence[Request]) -> tuple[list[int], int]:
        """Write the group's lists; returns pool rows and the longest length a row may have."""
        two_blocks = 2 * self.setting.block
        allocator, known = self.allocator, self._known
        host_rows, first, counts, offsets, lengths = [], [], [], [], []
        slots: list[int] = []
        for request in requests:
            row = request.row
            held = allocator.held(row)
            # One generated token is not in the cache yet: it is the first of the block.
            length = request.prompt_tokens + known[row] - 1
            count = max(0, length + two_blocks - held)
            host_rows.append(row)
            first.append(held)
            counts.append(count)
            offsets.append(len(slots))
            lengths.append(length)
            if count:
                slots += allocator.extend(row, count)
        n = len(host_rows)
        lists = group.lists
        lists[0, :n], lists[1, :n], lists[2, :n] = host_rows, first, counts
        lists[3, :n], lists[4, :n] = offsets, lengths
        group.slots[: len(slots)] = slots
        if not self._publishes:
            for row in host_rows:
                known[row] += 1
        return host_rows, max(lengths) + self.setting.block

    def _upload(self, group: Group, rows: int, widest: int) -> None:
        """One copy to the device and one launch that writes ``req_to_token``, on the current stream."""
        self.backend.copy(group.on_device, group.host)
        if not self.policies.pinned:
            self.lap("prepare.copy.stage")
        self.lap("prepare.copy")
        self.backend.launch(
            self.setting.kernels.assign_slots,
            group.on_device,
            group.rows,
            self.pool.req_to_token,
            rows,
            widest,
        )
        self.lap("prepare.assign")

    def _enter_forward(self) -> None:
        streams = self.streams
        if self.policies.overlap:
            streams.forward.wait_stream(streams.schedule)
            self.backend.set_stream(streams.forward)
            self.lap("enter.wait")

    def _stash(self, step: Step) -> None:
        relayed = self.worker.relayed()
        for field in self.worker.fields:
            self.future.stash(field, relayed[field.name], step.pool_rows, step.rows, step.number)
            self.lap(f"stash.{field.name}")

    def _copy_result(self, step: Step) -> None:
        streams, at = self.streams, step.number % 2
        if self.policies.overlap:
            stream = streams.copy if self.policies.platform.result_copy_stream else streams.forward
            if stream is not streams.forward:
                stream.wait_stream(streams.forward)
            self.backend.set_stream(stream)
            self.lap("result.wait")
        else:
            stream = streams.forward
        self.backend.copy(self.future.results_on_host[at], self.future.results[at])
        self.lap("result.copy")
        step.copy_done = self._copy_done[at]
        step.copy_done.record(stream)
        self.backend.set_stream(streams.schedule)
        self.lap("result.record")

    # -- places a worker passes (gpu_validation.runtime.step.Places) ----------------------------------------

    def first_use_of_host_lengths(self, step: Step) -> None:
        self.lengths.first_use(step)

    def last_shared_read(self, step: Step) -> None:
        self.barrier.last_shared_read()

    def publish(self, step: Step, new_lengths: torch.Tensor, result: torch.Tensor) -> None:
        self.future.publish(new_lengths, result, step.pool_rows, step.rows, step.number)
        self.lap("publish")
        if self._publishes:
            self.future.publish_ready.record(self.streams.forward)
            self.lap("publish.record")

    def self_fence(self, step: Step) -> None:
        self.barrier.self_fence()

    # -- prefill -----------------------------------------------------------------------------------------

    def _prefill(self, batch: Batch) -> Step:
        """Whole prompts: slots, facts of the requests, target and drafter over the prompts."""
        requests, rows = batch.requests, len(batch.requests)
        longest = max(r.prompt_tokens for r in requests)
        group = self.prompt_scratch.group(self._number, rows, sum(r.prompt_tokens for r in requests))
        n = group.rows
        offset = 0
        slots: list[list[int]] = []
        cached: list[int] = []
        for i, request in enumerate(requests):
            self._known[request.row] = 1
            self.tokens[request.index] = []
            cached.append(self._share_prefix(request))
            self.allocator.extend(request.row, request.prompt_tokens - self.allocator.held(request.row))
            slots.append(self.allocator.positions(request.row))
            group.lists[:, i] = request.row, 0, request.prompt_tokens, offset, request.prompt_tokens
            group.slots[offset : offset + request.prompt_tokens] = slots[-1]
            offset += request.prompt_tokens
        facts = self._facts(requests, slots, cached, longest)
        self.lap("prefill.rows")
        self.backend.copy(group.on_device, group.host)
        if not self.policies.pinned:
            self.lap("prefill.copy.stage")
        self.lap("prefill.copy")
        self.backend.launch(
            self.setting.kernels.assign_slots, group.on_device, n, self.pool.req_to_token, rows, longest
        )
        self.lap("prefill.assign")
        step = Step(
            self._number,
            batch,
            rows,
            self._padded[rows - 1],
            group,
            group.pool_rows,
            group.lengths,
            host_rows=[r.row for r in requests],
        )
        self._launching(step, requests)
        self.barrier.launching()
        self.lap(RUN_BATCH)
        self._enter_forward()
        self.backend.launch(self._run_prefill, facts, step.pool_rows, step.lengths, rows)
        self.lap("prefill")
        self.publish(step, self.worker.new_lengths, self.worker.result)
        self._stash(step)
        return step

    def _share_prefix(self, request: Request) -> int:
        """Let a prompt longer than the shared prefix begin with it; how many of its tokens are cached already."""
        length = self.options.shared_prefix
        if not length or request.prompt_tokens <= length:
            return 0
        cached = len(self._prefix)
        self._prefix = self._prefix or self.allocator.take(length)
        self.allocator.share(request.row, self._prefix)
        return cached

    def _facts(
        self, requests: Sequence[Request], slots: list[list[int]], cached: list[int], longest: int
    ) -> dict[str, torch.Tensor]:
        """Host tensors of a prefill: prompt ids, their slots, and what verification looks up by row."""
        n, outputs = len(requests), self.pool.outputs
        pin = self.policies.pinned
        ids = self.backend.host_buffer((n, longest), torch.int64, pin)
        where = self.backend.host_buffer((n, longest), torch.int32, pin)
        reads = self.backend.host_buffer((n, longest), torch.int32, pin)
        seed, vocab, prefix = self.setting.seed, self.setting.shape.vocab, self.options.shared_prefix
        forced = self.backend.host_buffer((n, outputs), torch.int8, pin)
        draws = self.backend.host_buffer((n, outputs), torch.float32, pin)
        sampled = self.setting.temperature > 0
        for i, r in enumerate(requests):
            ids[i, : r.prompt_tokens] = prompt_ids(r, seed, vocab)
            if 0 < prefix < r.prompt_tokens:
                ids[i, :prefix] = prefix_ids(prefix, seed, vocab)
            reads[i, : r.prompt_tokens] = torch.tensor(slots[i], dtype=torch.int32)
            where[i, cached[i] : r.prompt_tokens] = reads[i, cached[i] : r.prompt_tokens]
            forced[i] = accepted_drafts(r, outputs) if self.options.forced else -1
            if sampled:
                draws[i] = sampling_draws(r, self.setting.seed, outputs)
        return {"ids": ids, "slots": where, "reads": reads, "forced": forced, "uniforms": draws}

    def _run_prefill(
        self, facts: dict[str, torch.Tensor], pool_rows: torch.Tensor, lengths: torch.Tensor, rows: int
    ) -> None:
        """Device side, on the forward stream."""
        device = self.backend.device
        on_device = {name: t.to(device, non_blocking=True) for name, t in facts.items()}
        row = pool_rows[:rows].long()
        self.pool.prompt_lengths[row] = lengths[:rows]
        self.pool.forced[row] = on_device["forced"]
        self.pool.uniforms[row] = on_device["uniforms"]
        n, longest = on_device["ids"].shape
        positions = torch.arange(longest, dtype=torch.int32, device=device).repeat(n)
        last = torch.arange(n, device=device) * longest + lengths[:rows].long() - 1
        prompts = Prompts(
            n,
            on_device["ids"].view(-1),
            positions,
            on_device["slots"].view(-1),
            on_device["reads"].view(-1),
            last,
            pool_rows[:rows],
            lengths[:rows],
        )
        self.worker.prefill(prompts)


def prompt_ids(request: Request, seed: int, vocab: int) -> torch.Tensor:
    """The prompt of a request, keyed by (seed, request)."""
    return _ids([seed, PROMPT_IDS, request.index], vocab, request.prompt_tokens)


def prefix_ids(length: int, seed: int, vocab: int) -> torch.Tensor:
    """What long prompts begin with, keyed by the seed."""
    return _ids([seed, PREFIX_IDS], vocab, length)


def _ids(key: list[int], vocab: int, count: int) -> torch.Tensor:
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
    return torch.from_numpy(generator.integers(0, vocab - 1, count))


def accepted_drafts(request: Request, positions: int) -> torch.Tensor:
    """Drafts accepted by a step that starts at each token position, from the workload's table; int8."""
    return torch.tensor([request.acceptance.at(p) for p in range(positions)], dtype=torch.int8)


def sampling_draws(request: Request, seed: int, positions: int) -> torch.Tensor:
    """One uniform for each generated token, keyed by (seed, request, position)."""
    key = np.random.SeedSequence([seed, SAMPLING, request.index])
    return torch.from_numpy(np.random.Generator(np.random.Philox(key)).random(positions, dtype=np.float32))
