"""Which batch runs next: the engine's batch selection, free of time.

Order of one call (semantics 1.2 and 1.10): the last prefill joins the running batch; a new prefill has priority
and leaves the running batch alone; otherwise finished requests are filtered and the rest decodes. The host knows
of a finish only when the result is processed, one iteration late, so a finished request rides along once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from sim.serving.request import Batch, Request
from sim.serving.slots import RowPool


class BatchScheduler:
    """State of the request side of an engine.

    ``min_free_rows``: a prefill waits until this many rows are free while something runs.
    ``prefill_token_budget``: prompt tokens one prefill iteration may take (a longer prompt runs alone).
    ``max_drafts``: drafts a step verifies (block_size − 1), or those of a batch of a given size; acceptance is cut
    there.
    """

    def __init__(
        self,
        rows: int,
        min_free_rows: int,
        prefill_token_budget: int,
        max_drafts: int | Callable[[int], int],
    ):
        self.pool = RowPool(rows)
        self.min_free_rows = min_free_rows
        self.prefill_token_budget = prefill_token_budget
        self.max_drafts = max_drafts
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._joining: list[Request] = []
        self._carry_valid = True
        self._finished_in_running = False
        self._merged = False

    @property
    def idle(self) -> bool:
        """Nothing waits, joins or runs (a finished request that was not filtered yet does not count)."""
        return not self.waiting and not self._joining and all(r.finished for r in self.running)

    def submit(self, request: Request) -> None:
        self.waiting.append(request)

    def next_batch(self) -> Batch | None:
        """The batch of this iteration, None when there is nothing to do."""
        if self._joining:
            if self.running:
                self._carry_valid = False
                self._merged = True
            self.running = self.running + self._joining
            self._joining = []
        admitted = self._admit()
        if admitted:
            self._joining = admitted
            return Batch(admitted, prefill=True)
        filtered = False
        if self._finished_in_running:
            alive = [r for r in self.running if not r.finished]
            filtered = len(alive) < len(self.running)
            self._finished_in_running = False
            if filtered:
                self.running = alive
                self._carry_valid = False
        if not self.running:
            self._carry_valid = True
            self._merged = False
            return None
        batch = Batch(self.running, False, filtered, self._merged, self._carry_valid)
        self._merged = False
        self._carry_valid = True
        return batch

    def _admit(self) -> list[Request]:
        if not self.waiting:
            return []
        something_runs = any(not r.finished for r in self.running)
        if something_runs and self.pool.free < self.min_free_rows:
            return []
        admitted: list[Request] = []
        budget = self.prefill_token_budget
        while self.waiting and self.pool.free:
            need = self.waiting[0].prompt_tokens
            if admitted and need > budget:
                break
            request = self.waiting.popleft()
            request.row = self.pool.take()
            admitted.append(request)
            budget -= need
        return admitted

    def launch(self, batch: Batch) -> None:
        """The device's truth: every row commits its accepted drafts and a bonus (a prefill one token)."""
        if batch.prefill:
            for r in batch.requests:
                r.generated = 1
            batch.committed = [1] * len(batch.requests)
            return
        committed = []
        limit = self.max_drafts if isinstance(self.max_drafts, int) else self.max_drafts(batch.size)
        for r in batch.requests:
            # The window at hand answers nearly always; `at` moves it on. Rows × steps come through here.
            acceptance, at = r.acceptance, r.generated
            i = at - acceptance.first
            accepted = acceptance.window[i] if i < len(acceptance.window) else acceptance.at(at)
            tokens = (accepted if accepted < limit else limit) + 1
            committed.append(tokens)
            r.generated = at + tokens
        batch.committed = committed
        batch.accepted_drafts = sum(committed) - len(committed)

    def process(self, batch: Batch) -> tuple[list[tuple[Request, int]], Sequence[Request]]:
        """The host sees a result: (request, new output tokens) of live rows, and the requests that finished.

        Output is cut at the requested length; a zombie row yields nothing. Rows of finished requests are free
        from here on, although a forward that still holds them may be running.
        """
        delivered: list[tuple[Request, int]] = []
        finished: list[Request] = []
        for r, tokens in zip(batch.requests, batch.committed, strict=True):
            if r.finished:
                continue
            left = r.output_tokens - r.seen
            new = tokens if tokens < left else left
            r.seen += new
            delivered.append((r, new))
            if new == left:
                r.finished = True
                self.pool.give_back(r.row)
                finished.append(r)
                self._finished_in_running = True
        return delivered, finished
