"""The files ingest writes: a step program and a cost profile, checked by reading them back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from sim.config.profile import Cost, DeviceProfile
from sim.files import write_atomically
from sim.ingest import toml_out
from sim.program.step_program import StepProgram


def profile_lines(profile: DeviceProfile, comment: str = "") -> list[str]:
    """``configs/devices/<profile>.toml``; costs one table each, sorted by name."""
    lines = [f"# {line}" for line in comment.splitlines()] + [""] * bool(comment)
    head = profile.model_dump(
        mode="json", exclude={"costs", "provenance", "host_state"}, exclude_defaults=True
    )
    lines += [f"{k} = {toml_out.value(v)}" for k, v in head.items()] + [""]
    if profile.provenance:
        lines += toml_out.table("provenance", profile.provenance)
    lines += toml_out.table("host_state", profile.host_state.model_dump(mode="json"))
    for name, cost in sorted(profile.costs.items()):
        lines += toml_out.table(f"costs.{toml_out.key(name)}", cost_entry(cost))
    DeviceProfile.model_validate(tomllib.loads("\n".join(lines)))
    return lines


def cost_entry(cost: Cost) -> dict[str, Any]:
    """What a file states of a cost: the value always, the rest where it differs from the default."""
    given = cost.model_dump(mode="json", exclude_defaults=True)
    given["unit"], given["status"] = cost.unit, cost.status
    return {k: given[k] for k in Cost.model_fields if k in given}


def program_lines(program: StepProgram, comment: str = "") -> list[str]:
    """``configs/algorithms/<algorithm>@<engine>.toml``; operations in host program order."""
    lines = [f"# {line}" for line in comment.splitlines()] + [""] * bool(comment)
    head = program.model_dump(
        mode="json", exclude={"capabilities", "speculation", "operations", "prefill"}, exclude_defaults=True
    )
    lines += [f"{k} = {toml_out.value(v)}" for k, v in head.items()] + [""]
    lines += toml_out.table("capabilities", program.capabilities.model_dump(mode="json"))
    lines += toml_out.table("speculation", program.speculation.model_dump(mode="json", exclude_none=True))
    for section in ("operations", "prefill"):
        for operation in getattr(program, section):
            entry = operation.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
            if "share" in entry:
                entry["share"] = round(entry["share"], 5)
            lines += toml_out.table(section, entry, array=True)
    StepProgram.model_validate(tomllib.loads("\n".join(lines)))
    return lines


def write_profile(path: Path, profile: DeviceProfile, comment: str = "") -> None:
    write_atomically(path, _text(profile_lines(profile, comment)))


def write_program(path: Path, program: StepProgram, comment: str = "") -> None:
    write_atomically(path, _text(program_lines(program, comment)))


def _text(lines: list[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"
