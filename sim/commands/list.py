"""``overlapsim list``: what can be named, and the declaration behind a name."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sim import barrier, relay
from sim.capabilities import Barrier, Relay
from sim.config import paths
from sim.config.checked import did_you_mean, listed
from sim.config.declarations import load_profile, load_program, parse_toml, read_bytes
from sim.console import print_table
from sim.errors import InputError, Problem
from sim.program.step_program import StepProgram


class Listable(StrEnum):
    ALGORITHMS = "algorithms"
    DEVICES = "devices"
    SCENARIOS = "scenarios"
    STUDIES = "studies"
    RELAYS = "relays"
    BARRIERS = "barriers"


def command(
    kind: Annotated[Listable, typer.Argument(help="What to list.")],
    show: Annotated[str | None, typer.Option(metavar="NAME", help="Print the declaration of one.")] = None,
) -> None:
    """List what can be named; --show prints a declaration."""
    if kind in (Listable.RELAYS, Listable.BARRIERS):
        _policies(kind, show)
    elif show is not None:
        _show_file(kind, show)
    elif kind is Listable.ALGORITHMS:
        _algorithms()
    elif kind is Listable.DEVICES:
        _devices()
    else:
        _described(kind)


def _programs() -> dict[str, StepProgram]:
    return {name: load_program(name, "") for name in paths.names("algorithms")}


def _views(program: StepProgram) -> dict[str, bool]:
    """SGLang's two flags, as it would read them off the capabilities."""
    declares = program.capabilities
    return {
        "needs_war_barrier": declares.needs_war_barrier,
        "needs_cpu_seq_lens": declares.needs_cpu_seq_lens,
    }


def _algorithms() -> None:
    rows = [
        [name, program.status, *(_yes(view) for view in _views(program).values()), program.description]
        for name, program in _programs().items()
    ]
    print_table(
        ["algorithm@engine", "status", "needs_war_barrier", "needs_cpu_seq_lens", "description"], rows
    )


def _devices() -> None:
    profiles = {name: load_profile(name) for name in paths.names("devices")}
    rows = [[name, p.status, p.platform, p.engine, p.description] for name, p in profiles.items()]
    print_table(["device", "status", "platform", "engine", "description"], rows)


def _described(kind: Listable) -> None:
    """Scenarios and studies: their ``description``, else the comment at the head of the file."""
    rows = []
    for name in paths.names(kind.value):
        content = read_bytes(paths.locate(name, kind.value, "--show"))
        described = parse_toml(content, name).get("description")
        rows.append([name, described if isinstance(described, str) else _head_comment(content.decode())])
    print_table([kind.value, "description"], rows)


def _head_comment(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def _show_file(kind: Listable, name: str) -> None:
    path = paths.locate(name, kind.value, "--show")
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError:
        raise InputError(Problem("--show", f'"{path}", which is no text', "a TOML file")) from None
    if kind is Listable.ALGORITHMS:
        print("# Views of the capabilities below, as SGLang names them:")
        for flag, value in _views(load_program(name, "")).items():
            print(f"#   {flag} = {_yes(value)}")
    print(text, end="")


def _policies(kind: Listable, show: str | None) -> None:
    descriptions: dict[str, str] = {
        policy.value: text
        for policy, text in (relay.DESCRIPTIONS if kind is Listable.RELAYS else barrier.DESCRIPTIONS).items()
    }
    if show is None:
        print_table([kind.value, "description"], [[name, text] for name, text in descriptions.items()])
        return
    if show not in descriptions:
        remedy = did_you_mean(show, descriptions)
        raise InputError(Problem("--show", f'"{show}"', f"one of {listed(descriptions)}", remedy))
    print(f"{show}: {descriptions[show]}")
    users = [name for name, program in _programs().items() if show in _defaults(program)]
    print(f"default of: {', '.join(users) or 'no declared algorithm'}")


def _defaults(program: StepProgram) -> tuple[Relay, Barrier]:
    return program.capabilities.default_relay(), program.capabilities.default_barrier()


def _yes(value: bool) -> str:
    return "true" if value else "false"
