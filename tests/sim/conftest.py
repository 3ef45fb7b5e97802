"""A small set of declarations of its own, so that messages do not change with what is shipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.config import paths

DEVICE = """
name = "small"
status = "exact"
engine = "e-1"
[costs]
"call.launch" = { value = 1.0 }
"""

PROGRAM = """
algorithm = "{name}"
engine = "e-1"
prefill = []
{more}
[[operations]]
phase = "forward"
name = "verify"
kind = "graph"
stream = "forward"
cost = "verify"
{marks}
[[operations]]
phase = "forward"
name = "publish"
kind = "publish"
stream = "forward"
cost = "verify"
[[operations]]
phase = "copy"
name = "copy.done"
kind = "record"
stream = "copy"
event = "copy_done"
[capabilities]
{capabilities}
[speculation]
{speculation}
"""

PROGRAMS = {
    "block@e-1": {
        "marks": 'marks = ["last_shared_read"]',
        "capabilities": 'length_source = "published"\nhost_length_need = "none"\nread_end = "pre_replay"\n'
        "consumes_host_lengths = false",
        "speculation": 'kind = "block"\nblock_size = 16\nmin_block_size = 2\nmax_block_size = 16',
        "more": 'admission_min_free = "refill_batching"',
    },
    "fenced@e-1": {
        "marks": "",
        "capabilities": 'length_source = "published"\nhost_length_need = "bound"\n'
        'carry = "by_ref_if_unchanged"\nwrite_fence = "self"\ndecode_prep = "plan"',
        "speculation": 'kind = "block"\nblock_size = 16\nmin_block_size = 2\nmax_block_size = 16',
        "more": "",
    },
    "chain@e-1": {
        "marks": 'marks = ["last_shared_read"]',
        "capabilities": 'length_source = "published"\nhost_length_need = "exact"\nread_end = "end"',
        "speculation": 'kind = "chain"\nblock_size = 4\nmin_block_size = 2\nmax_block_size = 8\n'
        "draft_steps = 3\ntopk = 1",
        "more": "",
    },
    "lookup@e-1": {
        "marks": "",
        "capabilities": 'length_source = "published"\nhost_length_need = "exact"',
        "speculation": 'kind = "lookup"\nblock_size = 8\nmax_block_size = 8',
        "more": "",
    },
    "plain@e-1": {
        "marks": "",
        "capabilities": 'length_source = "host_known"\nhost_length_need = "none"\nread_end = "pre_replay"',
        "speculation": 'kind = "none"\nblock_size = 1\nmax_block_size = 1',
        "more": "",
    },
}


@pytest.fixture
def small_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for ``configs``: device ``small``, engine ``e-1``, five algorithms."""
    root = tmp_path / "configs"
    for kind in ("devices", "algorithms", "scenarios", "studies"):
        (root / kind).mkdir(parents=True)
    (root / "devices" / "small.toml").write_text(DEVICE)
    for name, parts in PROGRAMS.items():
        (root / "algorithms" / f"{name}.toml").write_text(
            PROGRAM.format(name=name.partition("@")[0], **parts)
        )
    (root / "scenarios" / "good.toml").write_text('# A good one.\ndevice = "small"\nalgorithm = "block"\n')
    monkeypatch.setattr(paths, "folder", lambda kind: root / kind)
    return root


@pytest.fixture
def write_scenario(small_configs: Path, tmp_path: Path) -> Callable[..., str]:
    """Writes ``scenario.toml`` (device ``small``, algorithm ``block`` unless told) and returns its path."""

    def write(text: str, head: str = 'device = "small"\nalgorithm = "block"\n') -> str:
        path = tmp_path / "scenario.toml"
        path.write_text(head + text)
        return str(path)

    return write
