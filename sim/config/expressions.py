"""Costs written as expressions in a step program, turned into costs of the profile.

``0.6 * dflash.draft.graph + 12`` means microseconds: names are costs of the profile at the same batch, ``batch``
(rows), ``tokens`` (rows × block), ``context`` (mean committed tokens a request), ``block_size`` and the program's own
``[parameters]`` are numbers. Allowed are ``+ - * /``, parentheses, ``min``, ``max`` and ``ceil``.

``at(name, rows)`` is a cost at another number of rows, ``without_context(name, rows)`` the same at context 0: what
was measured at one block size can so be asked at another with as many tokens. A name that Python would not read
goes in quotes. Nothing is ever executed: the text is parsed and its tree walked.

Every solver knows costs as tables over batch, linear in tokens and context (:class:`~sim.config.profile.Cost`), so
that is what an expression becomes: exact at every batch, refused where it is not linear in the other two.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sim.config.below_zero import ROUNDING_NS, lowest
from sim.config.checked import did_you_mean, listed, shown
from sim.config.profile import Cost, DeviceProfile, at_batch
from sim.errors import InputError, Problem
from sim.program.step_program import Operation, StepProgram
from sim.units import NS_PER_US

#: a cost at other rows than the batch's
_AT = ("at", "without_context")
VARIABLES = ("batch", "tokens", "context", "block_size")
FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max, "ceil": math.ceil}
#: from least to most trustworthy; a derived cost is as good as the worst it is made of
_TRUST = ("assumed", "published", "scaled", "fitted", "measured", "exact")
_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_LONGEST = 500
#: us; a profile takes no larger costs either
_LARGEST = 1e9
#: relative and absolute (µs) differences that count as rounding
_ROUNDING = 1e-9


def with_expressions(
    profile: DeviceProfile, program: StepProgram, block_size: int, largest_batch: int, where: str
) -> DeviceProfile:
    """``profile`` with a cost for every expression of ``program``, named by its text.

    ``largest_batch``: tables reach at least that far. Raises InputError naming operation and key.
    """
    if not any(_expressions(program, profile)):
        return profile
    problems: list[Problem] = []
    derived: dict[str, Cost] = {}
    for operation, prefill, key, text in _expressions(program, profile):
        place = f"{where}: {'prefill' if prefill else 'operations'} {shown(operation.name)}: {key}"
        if text in derived and not prefill:
            continue
        try:
            derived[text] = _Derivation(profile, program, text, place).cost(
                block_size, largest_batch, prefill
            )
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(dict.fromkeys(problems))
    return profile.model_copy(update={"costs": {**profile.costs, **derived}})


def _expressions(program: StepProgram, profile: DeviceProfile) -> Iterator[tuple[Operation, bool, str, str]]:
    """Operation, whether of the prefill, key and text of every cost that is no plain name."""
    for operations, prefill in ((program.operations, False), (program.prefill, True)):
        for operation in operations:
            for key in ("cost", "host"):
                text = getattr(operation, key)
                if text is None or text in profile.costs:
                    continue
                number = text in VARIABLES or text in program.parameters
                if number or not _NAME.fullmatch(text):
                    yield operation, prefill, key, text


@dataclass
class _Derivation:
    """One expression; values are µs."""

    profile: DeviceProfile
    program: StepProgram
    text: str
    place: str
    names: set[str] = field(default_factory=set)
    #: names asked at other numbers of rows than the batch's
    elsewhere: set[str] = field(default_factory=set)
    #: (name, rows) of the evaluation at hand
    asked: list[tuple[str, float]] = field(default_factory=list)

    def cost(self, block_size: int, largest_batch: int, prefill: bool) -> Cost:
        tree = self._tree()
        self._check(tree)
        width = self.program.speculation

        def tokens_of(batch: int) -> int:
            return batch * width.block_at(batch, block_size)

        def value(batch: float, tokens: float, context: float) -> float:
            block = float(width.block_at(round(batch), block_size))
            numbers = {"batch": batch, "tokens": tokens, "context": context, "block_size": block}
            return self._value(tree, {**self.program.parameters, **numbers})

        known = [b for name in self.names for b in self.profile.costs[name].batch or ()]
        batches = tuple(range(1, max([largest_batch, *known]) + 1))
        for batch in (batches[0], batches[-1]):
            for x in (1, 4096):
                if not _straight([value(batch, tokens_of(batch), context) for context in (0, x, 2 * x)]):
                    raise self._problem(
                        "a cost that is not linear in context", "one that is: solvers scale it"
                    )
        steps = [value(b, 1, 0) - value(b, 0, 0) for b in (batches[0], batches[-1])]
        straight = _alike(steps[0], steps[1]) and _straight([value(batches[-1], t, 0) for t in (0, 1, 2)])
        if prefill and not straight:
            raise self._problem(
                "a cost that is not linear in tokens", "one that is: a prefill has no fixed number a row"
            )
        per_token = steps[0] if straight else 0.0
        used = [self.profile.costs[name] for name in sorted(self.names)]
        table, inside = [], []
        for b in batches:
            self.asked.clear()
            table.append(value(b, tokens_of(b), 0) - per_token * tokens_of(b))
            if all(_in_range(self.profile.costs[name], rows) for name, rows in self.asked):
                inside.append(b)
        status = min((c.status for c in used), key=_TRUST.index, default="assumed")
        if self.elsewhere:
            status = min(status, "scaled", key=_TRUST.index)
        slopes = [value(b, tokens_of(b), 1) - value(b, tokens_of(b), 0) for b in batches]
        largest = max(map(abs, (*table, *slopes, per_token)))
        if not largest <= _LARGEST:
            raise self._problem(f"a cost of {largest:g} us", f"one of at most {_LARGEST:g} us")
        cost = Cost(
            value=tuple(table),
            unit="us",
            batch=batches,
            per_token=per_token,
            per_context=tuple(slopes),
            within_sd=max((c.within_sd for c in used), default=0.0),
            boot_sd=max((c.boot_sd for c in used), default=0.0),
            valid_range=self._valid_range(used, inside),
            status=status,
            source=f"expression of {self.program.algorithm}@{self.program.engine}",
        )
        return self._nonnegative(cost)

    def _nonnegative(self, cost: Cost) -> Cost:
        """The cost, refused where it is below zero though every cost it is made of is valid there."""
        least = lowest(cost)
        if least.value < -ROUNDING_NS / NS_PER_US:
            raise self._problem(
                f"{shown(self.text)}, which is {least.value:.6g} us at {least}",
                "a cost that is 0 or above wherever the costs it is made of are valid",
                "max(0, …) keeps it there.",
            )
        return cost

    def _valid_range(self, used: Sequence[Cost], inside: Sequence[int]) -> dict[str, tuple[float, float]]:
        """Where every cost is valid; of batches, where it is at the rows it is asked at."""
        common: dict[str, tuple[float, float]] = {}
        for cost in used:
            for argument, (low, high) in cost.valid_range.items():
                before = common.get(argument, (low, high))
                common[argument] = (max(low, before[0]), min(high, before[1]))
        if self.elsewhere:
            # Nowhere valid is said by a range of one row that no batch reaches.
            common["batch"] = (inside[0], inside[-1]) if inside else (0, 0)
        return {argument: (low, high) for argument, (low, high) in common.items() if low <= high}

    def _tree(self) -> ast.expr:
        if len(self.text) > _LONGEST:
            raise self._problem(f"{len(self.text)} characters", f"at most {_LONGEST}")
        try:
            return ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise self._problem(f"{shown(self.text)} ({reason})", "a name or an expression") from None

    def _check(self, node: ast.expr) -> None:
        """Refuses whatever is neither arithmetic nor a known name, before anything is computed."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            self._check(node.left)
            self._check(node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            self._check(node.operand)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _AT:
            if node.keywords or len(node.args) != 2 or _name(node.args[0]) not in self.profile.costs:
                raise self._problem(shown(ast.unparse(node)), f"{node.func.id}(a cost of the profile, rows)")
            self._check(node.args[0])
            self._check(node.args[1])
            self.elsewhere.add(str(_name(node.args[0])))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            if node.keywords or not node.args or (node.func.id == "ceil" and len(node.args) > 1):
                raise self._problem(shown(ast.unparse(node)), f"{node.func.id} of numbers")
            for argument in node.args:
                self._check(argument)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value is not True
        ):
            if not abs(node.value) < 1e300:
                raise self._problem(shown(node.value), "a finite number below 1e300")
        else:
            self._check_name(node)

    def _check_name(self, node: ast.expr) -> None:
        name = _name(node)
        if name is None:
            raise self._problem(
                shown(ast.unparse(node)),
                f"numbers, names, + - * /, parentheses and {listed(sorted([*FUNCTIONS, *_AT]))}",
            )
        if name in VARIABLES or name in self.program.parameters:
            return
        if name not in self.profile.costs:
            known = [*VARIABLES, *self.program.parameters]
            remedy = did_you_mean(name, [*known, *self.profile.costs])
            expected = f"a cost of profile {self.profile.name}, or {listed(known)}"
            raise self._problem(f"an unknown name {shown(name)}", expected, remedy)
        self.names.add(name)

    def _value(self, node: ast.expr, numbers: Mapping[str, float]) -> float:
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left, numbers), self._value(node.right, numbers)
            if isinstance(node.op, ast.Div):
                if right == 0:
                    raise self._problem("a division by 0", "a cost at every batch and context")
                return left / right
            operations: dict[type[ast.operator], float] = {
                ast.Add: left + right,
                ast.Sub: left - right,
                ast.Mult: left * right,
            }
            return operations[type(node.op)]
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, numbers)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            if node.func.id in _AT:
                return self._at(node, numbers)
            arguments = [self._value(a, numbers) for a in node.args]
            if not all(map(math.isfinite, arguments)):
                raise self._problem(shown(ast.unparse(node)), "arguments that stay finite")
            return float(FUNCTIONS[node.func.id](*arguments))
        if isinstance(node, ast.Constant) and not isinstance(node.value, str):
            return float(node.value)  # type: ignore[arg-type]
        name = _name(node)
        assert name is not None
        if name in numbers:
            return numbers[name]
        return self._cost(name, numbers)

    def _at(self, node: ast.Call, numbers: Mapping[str, float]) -> float:
        assert isinstance(node.func, ast.Name)
        rows = self._value(node.args[1], numbers)
        context = numbers["context"] if node.func.id == "at" else 0.0
        per_row = numbers["tokens"] / numbers["batch"]
        name = _name(node.args[0])
        assert name is not None
        return self._cost(name, {**numbers, "batch": rows, "tokens": rows * per_row, "context": context})

    def _cost(self, name: str, numbers: Mapping[str, float]) -> float:
        self.asked.append((name, numbers["batch"]))
        return _microseconds(self.profile.costs[name], numbers)

    def _problem(self, found: str, expected: str, remedy: str = "") -> InputError:
        return InputError(Problem(self.place, found, expected, remedy))


def names_in(text: str) -> set[str]:
    """Every name an expression spells, known or not; none of a text that is no expression."""
    try:
        nodes = ast.walk(ast.parse(text, mode="eval"))
        return {name for node in nodes if isinstance(node, ast.expr) and (name := _name(node)) is not None}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _name(node: ast.expr) -> str | None:
    """The dotted or quoted name that a node spells."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute):
        head = _name(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def _microseconds(cost: Cost, at: Mapping[str, float]) -> float:
    """A profile's cost at a batch, tokens and context."""
    batch = at["batch"]
    value = at_batch(cost.value, cost.batch, batch) + cost.per_batch * batch + cost.per_token * at["tokens"]
    slope = at_batch(cost.per_context, cost.batch, batch)
    return (max(value, 0.0) + slope * at["context"]) * cost.ns_per_unit / NS_PER_US


def _alike(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


def _straight(values: Sequence[float]) -> bool:
    """Whether three values at equal distances lie on a line, within rounding."""
    scale = max(abs(v) for v in values)
    return abs(values[0] - 2 * values[1] + values[2]) <= _ROUNDING * max(scale, 1.0)


def _in_range(cost: Cost, rows: float) -> bool:
    low, high = cost.valid_range.get("batch", (rows, rows))
    return low <= rows <= high
