"""The examples of docs/is_my_variant_safe.md say what the page says they say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sim.config.loader import load_resolved
from sim.config.resolve import Resolved
from sim.hazards.check import merged
from sim.hazards.text import verdict
from sim.program.step_program import StreamName
from sim.replication import Replication

PAGE = (Path(__file__).parents[3] / "docs" / "is_my_variant_safe.md").read_text()
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.S)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "churn.toml").write_text(next(b for b in BLOCKS if b.startswith("device")))
    for block in BLOCKS:
        named = re.match(r"# (\w+\.toml):", block)
        if named:
            (tmp_path / named[1]).write_text(block)
    return tmp_path


def found(files: Path, **overrides: str) -> list[dict[str, object]]:
    return checked(load_resolved(str(files / "churn.toml"), overrides))


def checked(resolved: Resolved) -> list[dict[str, object]]:
    check = Replication(resolved, 0, hazards=True).run().hazards
    assert check is not None
    return merged([check])


def reasons(hazards: list[dict[str, object]]) -> set[object]:
    return {h["reason"] for h in hazards if h["severity"] == "harmful"}


def test_the_recycled_row_and_what_removes_it(files: Path) -> None:
    assert reasons(found(files, barrier="unguarded")) == {"recycled_row"}
    for fence in ({"barrier": "read_done"}, {"barrier": "coarse"}, {"serving.max_running_requests": "64"}):
        assert not reasons(found(files, **{"barrier": "unguarded", **fence}))
    fenced = {"engine": "sglang-0.5.14", "algorithm": "dflash", "barrier": "self_fence"}
    assert reasons(found(files, **fenced)) == {"recycled_row"}


def test_the_event_that_comes_too_early(files: Path) -> None:
    early = {"algorithm": str(files / "early.toml")}
    assert reasons(found(files, **early)) == {"too_early_event"}
    assert not reasons(found(files, **early, barrier="coarse"))


def test_the_benign_rewrite_and_the_placement_that_orders_it(files: Path) -> None:
    hazards = found(files)
    assert verdict(hazards) == "safe: 2 benign conflicts and no harmful one"
    assert {h["reason"] for h in hazards} == {"same_content"}
    assert found(files, barrier_placement="after_launch") == []


def test_the_gather_that_waits_for_nothing_and_the_waits_that_remove_it(files: Path) -> None:
    gather = files / "gather.toml"
    assert "unpublished" in reasons(found(files, algorithm=str(gather)))
    waits = next(block for block in BLOCKS if block.startswith("# add to gather.toml")).split("\n\n")
    bare = gather.read_text()
    gather.write_text(f"{bare}\n{waits[0]}\n")
    assert reasons(found(files, algorithm=str(gather))) == {"overwritten"}
    gather.write_text("\n".join([bare, *waits]))
    assert not reasons(found(files, algorithm=str(gather)))


def test_the_plan_stream_without_its_joins_and_with_them(files: Path) -> None:
    """Both kinds that the page names: columns read before they are written, and the allocator's lists."""
    resolved = load_resolved(str(files / "churn.toml"), {})
    operations = tuple(
        op.model_copy(update={"stream": StreamName.PLAN}) if op.name == "prepare.assign" else op
        for op in resolved.program.operations
    )
    program = resolved.program.model_copy(update={"operations": operations})
    hazards = checked(replace(resolved, program=program))
    kinds = {(h["kind"], h["buffer"]) for h in hazards if h["severity"] == "harmful"}
    assert {("read_before_publish", "req_to_token"), ("write_after_write", "allocator")} <= kinds
    assert not reasons(found(files, prep_stream="plan"))
