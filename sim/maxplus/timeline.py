"""The orbit as a timeline for a figure, with the critical cycle as points on it."""

from __future__ import annotations

from typing import Any

from sim.maxplus.attribution import Attribution
from sim.maxplus.durations import hand_overs
from sim.maxplus.graph import HOST, EventGraph
from sim.maxplus.steady import SteadyState
from sim.program.step_program import Phase
from sim.trace.record import HOST_LANE

#: what a row of a timeline holds; times in ns
FIELDS = ("iteration", "name", "phase", "act", "lane", "start", "end", "event", "cause")


def timeline(state: SteadyState) -> dict[str, Any]:
    """The critical cycle and as much around it as makes one turn more than it spans.

    ``rows`` hold :data:`FIELDS`; ``window`` is their span; ``loop`` is the critical cycle, one row an arc: role, lane
    and time it comes from, lane, arrival (the start, of an operation) and end there.
    """
    weighted, cycle = state.weighted, state.critical
    graph = weighted.graph
    slots, host, period = len(graph.slots), graph.slots.index(HOST), len(state.orbit)
    constants = hand_overs(graph.turn)
    attribution = Attribution()
    # Whole periods before the cycle: what still runs on the device, and causes that turns hand on.
    first = 2 * period if period > 1 else 3
    rows: list[list[Any]] = []
    turns: list[list[int]] = []
    for k in range(first + cycle.turns + 3):
        lap, phase = divmod(k + cycle.phase, period)
        values = [v + lap * state.advance for v in state.orbit[phase]]
        turns.append(values)
        starts, _ = attribution.turn(weighted, values)
        now = values[host]
        for j, node in enumerate(graph.nodes):
            end = values[slots + j]
            primitive = graph.turn.primitives[node.primitive]
            if node.lane == HOST_LANE:
                act = "synchronize" if node.sync is not None else node.act
                of = k - 1 if primitive.phase is Phase.PROCESS and graph.turn.due else k
                rows.append(
                    [of, node.name, primitive.phase, act, HOST_LANE, now, end, primitive.event or "", ""]
                )
                now = end
            elif node.act == "device":
                start, cause = starts[j]
                idle = start > weighted.time(values, node.arcs[1].source)
                why = str(cause) if idle else ""
                rows.append([k, node.name, primitive.phase, "device", node.lane, start, end, "", why])
            elif node.act == "event":
                rows.append(
                    [k, node.name, primitive.phase, "event", node.lane, end, end, primitive.event or "", ""]
                )
    loop: list[tuple[str, str, int, str, int, int]] = []
    for step in cycle.steps:
        values = turns[first + step.turn]
        source = step.arc.source
        lane = graph.nodes[source].lane if source >= 0 else _lane(graph, -1 - source)
        left = weighted.time(values, source)
        arrived = left + sum(weighted.durations[t] for t in step.terms if t >= constants)
        loop.append((str(step.arc.role), lane, left, step.node.lane, arrived, values[slots + step.number]))
    turn_ns = state.advance // period
    window = (loop[0][2] - turn_ns // 2, loop[-1][5] + turn_ns // 2)
    inside = [row for row in rows if row[5] < window[1] and row[6] > window[0]]
    return {"fields": FIELDS, "window": window, "rows": inside, "loop": loop}


def _lane(graph: EventGraph, slot: int) -> str:
    """The lane on which what a slot holds happened."""
    kind, name = graph.slots[slot]
    return graph.streams[name] if kind == "event" else name
