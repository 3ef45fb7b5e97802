"""An explanation as an engineer would give it. Every figure is from the explanation's JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: operations of a stretch that are named one by one
_NAMED = 3

_SIDES = {"gpu": "the GPU", "host": "the host", "exposed": "an exposed host path"}


def number(us: float) -> str:
    """Microseconds with as many digits as matter."""
    return f"{us:,.0f}" if abs(us) >= 1000 else f"{us:.1f}"


def lines(e: Mapping[str, Any]) -> list[str]:
    """Everything but the table of costs, a paragraph a line."""
    return [
        heading(e),
        "",
        verdict(e),
        rule(e),
        stream(e),
        "",
        "The critical cycle:",
        *loop(e["critical_cycle"]),
        "",
        *others(e),
        *caveats(e),
        "",
    ]


def heading(e: Mapping[str, Any]) -> str:
    """What was evaluated, and where."""
    padded = f", graphs of {e['padded_batch']}" if e["padded_batch"] != e["batch"] else ""
    return (
        f"{e['program']} on {e['device']['name']}: batch {e['batch']}{padded}, "
        f"{e['mean_context']:g} tokens a request ({e['context_from']}), central costs without noise"
    )


def verdict(e: Mapping[str, Any]) -> str:
    """Which side is critical, and what that means in figures."""
    cycle, idle = e["cycle_us"], sum(e["idle_us_per_step"].values())
    lead = f"A step takes {number(cycle)} µs. Critical is {_SIDES[e['critical_side']]}: "
    if e["critical_side"] == "gpu":
        spare = cycle - (e["host_loop_us"])
        rest = (
            "never idle"
            if idle < 0.05
            else f"idle {number(idle)} µs a step, between streams and not for the host"
        )
        return f"{lead}the forward stream is {rest}, and the host has {number(spare)} µs a step to spare."
    if e["critical_side"] == "host":
        return f"{lead}the forward stream needs {number(e['gpu_step_us'])} µs and idles the other {number(idle)}."
    on_path = e["critical_cycle"]["host_us"] / e["critical_cycle"]["turns"]
    waits = _waits(e)
    return (
        f"{lead}the host waits for {waits}, then works {number(on_path)} µs before the forward stream has what it "
        f"needs; {number(e['exposed_host_us_per_step'])} µs of that find the GPU idle."
    )


def _waits(e: Mapping[str, Any]) -> str:
    names = [name for s in e["critical_cycle"]["stretches"] if s["how"] == "sync" for name in s["on"][-1:]]
    return " and ".join(_event(name) for name in names) or "nothing"


def rule(e: Mapping[str, Any]) -> str:
    """The rule of thumb with both numbers, and whether it decides this case."""
    host, gpu = e["host_loop_us"], e["gpu_step_us"]
    sign = "<" if host < gpu else "≥"
    text = (
        "The host stays off the critical path while its loop is shorter than the GPU's step: "
        f"{number(host)} µs {sign} {number(gpu)} µs"
    )
    if e["critical_side"] == "exposed" and host < gpu:
        return (
            f"{text}. That is not enough here: the loop waits for {_waits(e)} on its way, and what follows that wait "
            "cannot start earlier, however short the loop."
        )
    return f"{text}, so it {'does' if host < gpu else 'does not'}."


def loop(cycle: Mapping[str, Any]) -> list[str]:
    """The cycle as numbered sentences; the last leads back to the first."""
    lines = []
    stretches = cycle["stretches"]
    for k, s in enumerate(stretches, start=1):
        lines.append(f"{k}. {_lane(s['lane'])}{_how(s)}: {_operations(s)} = {number(s['us'])} µs")
    turns = "one turn" if cycle["turns"] == 1 else f"{cycle['turns']} turns"
    total = sum(s["us"] for s in stretches)
    lines.append(f"   and back to 1: {number(total)} µs in {turns} of the loop")
    return lines


def _lane(lane: str) -> str:
    return "host" if lane == "host" else f"{lane} stream"


def _event(label: str) -> str:
    """An event's name; waits for all of a stream go by what they stand before."""
    tail = label.removeprefix("tail.")
    return label if tail == label else f"what was queued before {tail}"


def _how(stretch: Mapping[str, Any]) -> str:
    if not stretch["on"]:
        return ""
    link = "from the launch of" if stretch["how"] == "launch" else "after"
    names = ", then ".join(_event(name) for name in stretch["on"])
    return f", {link} {names} (+{number(stretch['hand_over_us'])})"


def _operations(stretch: Mapping[str, Any]) -> str:
    operations = [o for o in stretch["operations"] if o["us"] > 0]
    if not operations:
        return "no work"
    if len(operations) <= _NAMED + 1:
        return " + ".join(f"{o['name']} {number(o['us'])}" for o in operations)
    largest = sorted(operations, key=lambda o: -o["us"])[:_NAMED]
    rest = sum(o["us"] for o in operations) - sum(o["us"] for o in largest)
    named = ", ".join(f"{o['name']} {number(o['us'])}" for o in largest)
    span = f"{operations[0]['name']} … {operations[-1]['name']}"
    return f"{span}, {len(operations)} operations ({named}, the others {number(rest)})"


def crossings(cycle: Mapping[str, Any]) -> str:
    """What a cycle waits for, on one line."""
    out = []
    for crossing in cycle["crossings"]:
        lane, waits, event = crossing.partition(" waits for ")
        out.append(f"{lane}{waits}{_event(event)}" if waits else crossing)
    return ", ".join(out)


def others(e: Mapping[str, Any]) -> list[str]:
    """The nearly critical cycles, and where the next bottleneck lies."""
    cycle = e["cycle_us"]
    lines = []
    near = [c for c in e["other_cycles"] if c["mean_us"] >= e["nearly_critical_from"] * cycle]
    if near:
        count = "One more cycle is" if len(near) == 1 else f"{len(near)} more cycles are"
        within = 100 * (1 - e["nearly_critical_from"])
        lines.append(
            f"{count} within {within:g} %; shortening the critical one alone gains no more than the gap:"
        )
    for c in near:
        shorter = number(cycle - c["mean_us"])
        lines.append(f"- {number(c['mean_us'])} µs, {shorter} shorter, {_SIDES[c['side']]}: {crossings(c)}")
    after = next((c for c in e["other_cycles"] if c not in near), None)
    if after is not None:
        lines.append(
            f"Next bottleneck{' after those' if near else ''}, {number(cycle - after['mean_us'])} µs away at "
            f"{number(after['mean_us'])} µs a step: {_SIDES[after['side']]} ({crossings(after)})."
        )
    elif not near:
        lines.append("No other cycle is longer than half of this one.")
    return lines


def stream(e: Mapping[str, Any]) -> str:
    """Idle time by cause, launch lead and run-ahead."""
    idle = {cause: us for cause, us in e["idle_us_per_step"].items() if us >= 0.05}
    causes = ", ".join(f"{cause} {number(us)}" for cause, us in sorted(idle.items(), key=lambda kv: -kv[1]))
    return (
        f"GPU busy {e['gpu_busy_fraction']:.1%}; idle µs a step: {causes or 'none'}. "
        f"Launch lead {number(e['launch_lead_us'])} µs; {e['run_ahead_fraction']:.0%} of the steps are launched "
        f"before the forward stream runs dry. The host is blocked {number(e['host_blocked_us_per_step'])} µs a step."
    )


def caveats(e: Mapping[str, Any]) -> list[str]:
    lines = []
    if not e["settled"]:
        lines.append(
            "The transient outlasted the evaluation: two cycles are so close that either may be critical."
        )
    if e["extrapolated"]:
        lines.append("Outside the range they were obtained in: " + ", ".join(e["extrapolated"]) + ".")
    relief = e["relief_not_counted"]
    if relief:
        shorter = ", ".join(f"{name} {by:.2%}" for name, by in relief.items())
        lines.append(
            "Relief is not counted here, as it is in `run`: on a device idle for this share of its time these are "
            f"shorter by {shorter}."
        )
    return lines
