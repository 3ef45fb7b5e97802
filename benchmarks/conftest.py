"""One table of rates at the end of a run, and, with ``--speed-report``, a folder with it.

``python -m pytest benchmarks`` prints; ``python -m pytest benchmarks --speed-report reports/performance`` writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from table import Growth, Rate, Tables, write

TABLES = pytest.StashKey[Tables]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--speed-report", metavar="DIR", type=Path, help="write table, figures and results there"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLES] = Tables()


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Tables:
    return request.config.stash[TABLES]


@pytest.fixture
def rate(benchmark: BenchmarkFixture, tables: Tables) -> Callable[..., Rate]:
    """Times ``work``, which returns how many units it did; the best of three rounds of one core's CPU time."""

    def measure(name: str, unit: str, work: Callable[[], float], goal: float | None = None) -> Rate:
        done = 0.0
        best = float("inf")

        def once() -> None:
            nonlocal done, best
            began = time.process_time()
            done = work()
            best = min(best, time.process_time() - began)

        benchmark.pedantic(once, rounds=3, iterations=1, warmup_rounds=1)
        found = Rate(name, unit, done / best, goal)
        benchmark.extra_info[unit + "/s"] = found.per_second
        tables.rates.append(found)
        return found

    return measure


@pytest.fixture
def growth(tables: Tables) -> Callable[[Growth], None]:
    return tables.growths.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tables = config.stash[TABLES]
    if not tables.rates:
        return
    terminalreporter.section("speed")
    for line in tables.lines():
        terminalreporter.write_line(line)
    folder = config.getoption("--speed-report")
    if folder is not None:
        write(tables, folder)
        terminalreporter.write_line(f"written to {folder}")
