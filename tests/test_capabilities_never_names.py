"""Scheduler, relay, barrier and machine ask what a worker or a device needs, never what it is called.

The search is :mod:`naming`; identifiers and strings (documentation strings included) count, comments do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from naming import findings

ROOT = Path(__file__).parent.parent
PARTS = [
    "sim/relay",
    "sim/barrier",
    "sim/host_lengths",
    "sim/machine",
    "sim/loops",
    "sim/serving",
    "sim/program",
    "sim/maxplus",
    "sim/hazards",
    "sim/run.py",
    "sim/replication.py",
    "sim/device_clock.py",
    "sim/capabilities.py",
    "gpu_validation/relay",
    "gpu_validation/barrier",
    "gpu_validation/host_lengths",
    "gpu_validation/loops",
    "gpu_validation/runtime",
]
#: the one table that says what each platform does
PLATFORM_TABLE = "sim/program/policies.py"


def sources() -> Iterator[Path]:
    for part in PARTS:
        path = ROOT / part
        assert path.exists(), part
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


@pytest.mark.parametrize("path", list(sources()), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_algorithm_or_vendor_is_named(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    assert not findings(path.read_text(), platforms=name == PLATFORM_TABLE)


# -- the search itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        # names as they are
        "if worker.is_dflash(): pass",
        'kind = "eagle"',
        "def ngram_wait(): ...",
        'f"{x} on rocm"',
        "NVIDIA = 1",
        '"""Waits as EAGLE does."""',
        "class NgramWorker: ...",
        "def f(dflash=None): ...",
        "f(dflash=1)",
        "from x import medusa",
        "import x.eagle as y",
        "import x as standalone",
        "is_h200 = 1",
        "x.on_mi355x()",
        # devices by number and vendor lines
        'name.startswith("gb200")',
        'name.startswith("gh200")',
        'name.startswith("b300")',
        'name.startswith("a100")',
        'name.startswith("mi3")',
        'name.startswith("instinct")',
        'x.startswith("gfx9")',
        'arch == "sm_90"',
        'b"H200"',
        # strings in pieces
        'x == "DFL" "ASH"',
        'x == ("ea"\n "gle")',
        r'x == "\x65agle"',
        r'x == "\u0065agle"',
        r'x == "\N{LATIN SMALL LETTER E}agle"',
        r'x == b"\x65agle"',
        'x == "DFL" + "ASH"',
        'x == "".join(["ea", "gle"])',
        'x == "".join(reversed("elgae"))',
        'x == "elgae"[::-1]',
        'x == "%sgle" % "ea"',
        'x == "{}gle".format("ea")',
        "x == f\"{'ea'}gle\"",
        'x == "eXagle".replace("X", "")',
        'x == chr(101) + "agle"',
        'x == "".join(map(chr, [101, 97, 103, 108, 101]))',
        'x == "".join(chr(c + 1) for c in [100, 96, 102, 107, 100])',
        'x == bytes.fromhex("6561676c65").decode()',
        "x == bytes([101, 97, 103, 108, 101])",
        'first = "ea"\nx == first + "gle"',
        'A = "ea"\nB = A + "g"\nx == B + "le"',
        # questions whose answer is a harmless word
        'if worker.algorithm == "none": pass',
        'if "none" == worker.algorithm: pass',
        'if worker.algorithm != "none": pass',
        'x = worker.algorithm in ("none", "tree")',
        "x = worker.algorithm is NONE",
        'platform == "hip"',
        "policies.platform == HIP",
        'policies.platform.name == "x"',
        'profile.name == "toy"',
        'self.resolved.profile.name.startswith("t")',
        'self.device_name.lower().endswith("x")',
        'torch.cuda.get_device_name(0) == "x"',
        'torch.cuda.get_device_properties(0).name[:2] == "x"',
        'device.type == "x"',
        'getattr(worker, "algorithm") == "none"',
        'getattr(worker, "algo" + "rithm") == "none"',
        'vars(worker)["algorithm"] == "none"',
        'type(worker).__name__ == "X"',
        'kind = worker.algorithm\nif kind == "none": pass',
        'if (kind := worker.algorithm) == "none": pass',
        'kind = worker.algorithm.lower()\nother = kind\nx = other.startswith("no")',
        'f"{worker.algorithm}" == "none"',
        'str(worker.algorithm) == "none"',
        "len(worker.algorithm) == 4",
        'worker.algorithm[0] == "n"',
        'a, b = worker.algorithm, 1\nif a == "none": pass',
        'for kind in [worker.algorithm]:\n    kind == "none"',
        'match worker.algorithm:\n    case "none": pass',
        "TABLE[worker.algorithm]",
        "TABLE.get(worker.algorithm)",
        'TABLE.get(f"{worker.algorithm}")',
        're.match("no", worker.algorithm)',
        'fnmatch(worker.algorithm, "no*")',
        "NAMES.__contains__(worker.algorithm)",
        'operator.eq(worker.algorithm, "none")',
        '"none".startswith(worker.algorithm)',
        # platforms by name, whoever is compared with it
        'x == "hip"',
        'x == "cu" "da"',
    ],
)
def test_the_search_finds(code: str) -> None:
    assert findings(code)


@pytest.mark.parametrize(
    "code",
    [
        "x = 1  # as in DFLASH\n",
        "if policies.platform.private_d2h_stream: pass",
        "if policies.platform.private_d2h_stream is True: pass",
        "assert s.platform is not None",
        "if worker.algorithm is None: pass",
        'where = f"device profile {profile.name}: costs"\nraise InputError(Problem(where, "no cost", "one"))',
        'name = f"{program.algorithm}@{program.engine}"\nprint(name)',
        'if operation.name == "verify": pass',
        "fields[field.name]",
        'if program.speculation.kind == "chain": pass',
        "bound = batch[100]\nmethod = b100k",
        "import torch\ntorch.cuda.synchronize()",
        "from sim.program.policies import PLATFORMS",
        '"a program, a diagram, an algorithm, a stream, 0x100"',
    ],
)
def test_the_search_lets_capabilities_and_messages_be(code: str) -> None:
    assert not findings(code)


def test_the_table_of_platforms_alone_may_name_them_and_no_vendor() -> None:
    row = 'ROWS = {"hip": 1}\nx = ROWS[s.platform]'
    assert findings(row)
    assert not findings(row, platforms=True)
    assert findings('x = 1 if s.platform == "hip" else 2', platforms=True)
    assert findings('ROWS = {"rocm": 1}', platforms=True)


def test_a_citation_may_stand_in_a_documentation_string_only() -> None:
    text = '"""Shapes of the EAGLE drafter."""\n'
    assert findings(text)
    assert not findings(text, docstrings=False)
    assert findings(text + 'kind = "eagle"', docstrings=False)
