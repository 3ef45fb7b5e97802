"""Reports: drawn from stored results only, the same bytes again, every figure with where it comes from."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from sim.report import markdown
from sim.report.build import build
from sim.report.data import StudyData
from sim.report.document import Document, Figure, Section, Table
from sim.report.sections.regression import loads
from sim.report.write import write
from sim.study.collect import collect, read_measured
from sim.study.execute import Local, execute, work_of
from sim.study.plan import load_plan
from sim.study.store import Store

STUDY = """
title = "Small"
question = "What does the barrier cost?"
scenario = "toy_dF"
reference = "as declared"
sections = ["differences", "cycle", "throughput", "latency", "measured", "idle", "timelines", "cells", "map"]
new_boots = true

[set]
"run.replications" = 2

[[factors]]
name = "concurrency"
keys = ["workload.concurrency", "workload.requests"]
values = [1, 2]

[[variants]]
name = "as declared"
measured = { build = "a" }
fitted = true

[[variants]]
name = "coarse"
set = { barrier = "coarse" }
measured = { build = "b" }

[[variants]]
name = "same again"
set = { barrier = "read_done" }

[timeline]
at = { concurrency = 2 }
first = 1

[measured]
file = "cycles.csv"
factors = { concurrency = "c" }
cycle_us = "us"
source = "made up"
"""
MEASURED = "build,c,us\na,1,530\na,2,540\nb,1,560\nb,4,700\n"
MAP = """
title = "Map"
question = "Where?"
scenario = "toy_dF"
new_boots = false
sections = ["map"]

[set]
"run.replications" = 1

[[factors]]
name = "concurrency"
keys = ["workload.concurrency", "workload.requests"]
values = [1, 2]

[[factors]]
name = "host_scale"
keys = ["host_scale"]
values = [1.0, 4.0]

[[factors]]
name = "device_scale"
keys = ["device_scale"]
values = [1.0, 2.0]

[[variants]]
name = "before"

[[variants]]
name = "after"
set = { host_lengths = "exact" }

[[pairs]]
name = "A: exact lengths"
before = "before"
after = "after"

[published]
source = "made up"
points = [
  { factor = "concurrency", value = 1, change_percent = -1, tolerance_points = 100 },
  { factor = "concurrency", value = 2, change_percent = -2, tolerance_points = 100 },
]
"""


def run(text: str, tmp_path: Path) -> StudyData:
    path = tmp_path / "study.toml"
    path.write_text(text)
    (tmp_path / "cycles.csv").write_text(MEASURED)
    plan = load_plan(str(path))
    with Store(tmp_path / "results.sqlite") as store:
        execute(work_of(plan), store, Local(1))
        return collect(plan, store, "overlapsim study study")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    text = STUDY.replace(', "map"', "")
    return run(text, tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    return run(MAP, tmp_path_factory.mktemp("map"))


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def table(section: Section, caption: str = "") -> Table:
    return next(b for b in section.blocks if isinstance(b, Table) and caption in b.caption)


def section(document: Document, title: str) -> Section:
    return next(s for s in document.sections if s.title.startswith(title))


def test_equal_results_give_equal_files(small: StudyData, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        write(small, folder)
    assert digests(folders[0]) == digests(folders[1])


def test_every_figure_is_written_and_linked_and_says_where_it_comes_from(
    small: StudyData, tmp_path: Path
) -> None:
    report = write(small, tmp_path).read_text()
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", report)
    assert len(links) == 5 + 3 + 1  # differences, cycle, throughput, latency, measured; timelines; idle
    for link in links:
        assert (tmp_path / link).read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / link.replace(".png", ".svg")).read_text().startswith("<?xml")
    captions = [line for line in report.splitlines() if line.startswith("*") and "<sub>" in line]
    assert len(captions) == len(links)
    for caption in captions:
        assert "overlapsim study study" in caption
        assert small.device["sha256"] in caption
        assert "seed 1" in caption


def test_figures_of_an_earlier_report_do_not_stay_and_no_others_go(small: StudyData, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("old.png", "old.svg", "mine.png"):
        (tmp_path / "figures" / name).write_text("old")
    (tmp_path / "report.md").write_text("![Old](figures/old.png)")
    write(small, tmp_path)
    left = {path.name for path in (tmp_path / "figures").iterdir()}
    assert "mine.png" in left
    assert not left & {"old.png", "old.svg"}


def test_results_json_has_every_cell_and_no_wall_time(small: StudyData, tmp_path: Path) -> None:
    write(small, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(c["variant"], c["at"]) for c in results["cells"]] == [(r.variant, r.at) for r in small.rows]
    assert "wall_s" not in (tmp_path / "results.json").read_text()
    assert results["device"]["sha256"] == small.device["sha256"]


def test_resolved_scenarios_carry_the_reasons(small: StudyData, tmp_path: Path) -> None:
    write(small, tmp_path)
    resolved = json.loads((tmp_path / "resolved.json").read_text())
    scenarios = {row["variant"]: row["scenario"] for row in resolved["scenarios"]}
    assert scenarios["coarse"]["reasons"]["barrier"] == "scenario"
    assert scenarios["as declared"]["reasons"]["barrier"].startswith("declared by")


def test_a_variant_equal_to_the_reference_is_called_the_same(small: StudyData) -> None:
    document = build(small)
    rows = table(section(document, "Differences")).rows
    assert {row[-1] for row in rows if row[0] == "same again"} == {"the same"}
    assert any("same again" in s and "in every replication" in s for s in document.verdict)


def test_measured_cells_outside_the_study_are_left_out_and_roles_are_stated(small: StudyData) -> None:
    rows = table(section(build(small), "Simulated and measured")).rows
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("as declared", "fitted", "1"),
        ("as declared", "fitted", "2"),
        ("coarse", "predicted", "1"),
    ]


def test_a_measured_error_is_of_the_simulation(small: StudyData) -> None:
    simulated = small.find("as declared", {"concurrency": 1})["cycle_us"]["mean"]
    row = table(section(build(small), "Simulated and measured")).rows[0]
    assert row[5] == f"{100 * (simulated / 530 - 1):+.1f} %".replace("-", "−")


def test_a_measured_file_without_a_column_is_refused(tmp_path: Path) -> None:
    from sim.errors import InputError

    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(', "map"', ""))
    (tmp_path / "cycles.csv").write_text("build,c\na,1\n")
    plan = load_plan(str(path))
    with pytest.raises(InputError, match="without the column us"):
        read_measured(plan.study, plan.path)


def test_the_map_marks_where_every_published_figure_appears(machines: StudyData) -> None:
    document = build(machines)
    assert "The published shape appears at 4 of 4 machines" in document.verdict[0]
    assert [f.name for f in document.figures()] == ["map_a", "ratio"]


def test_the_map_says_in_words_what_stands_against_the_shape(machines: StudyData, tmp_path: Path) -> None:
    text = MAP.replace(
        "change_percent = -1, tolerance_points = 100", "change_percent = 50, tolerance_points = 1"
    )
    document = build(run(text, tmp_path))
    assert "No machine of the map shows the published shape." in document.verdict[0]
    blocks = [b for b in section(document, "Map").blocks if isinstance(b, str)]
    assert any("+50 % at concurrency 1 appears nowhere" in b for b in blocks)


def test_every_load_has_its_map_and_its_quantity(tmp_path: Path) -> None:
    more = """
[[factors]]
name = "load"
keys = ["workload.output_tokens"]
values = [{ distribution = "lognormal", mean = 40, cv = 0.5 }, 120]
labels = ["lengths differ", "equal lengths"]

[published.loads]
factor = "load"
quantity = { "lengths differ" = "throughput_tok_s", "equal lengths" = "cycle_us" }
"""
    text = MAP.replace("tolerance_points = 100 }", "tolerance_points = 100, before_tok_s = 1000 }")
    data = run(text + more, tmp_path)
    document = build(data)
    names = [f.name for f in document.figures()]
    assert names == [
        "map_a_lengths_differ",
        "ratio_lengths_differ",
        "map_a_equal_lengths",
        "ratio_equal_lengths",
    ]
    differ, equal = loads(data)
    at = {"concurrency": 2, "host_scale": 1.0, "device_scale": 1.0}
    for load, quantity in ((differ, "throughput_tok_s"), (equal, "cycle_us")):
        before, after = (data.find(variant, {**load.at, **at}) for variant in ("before", "after"))
        ratio = after[quantity]["mean"] / before[quantity]["mean"]
        expected = ratio - 1 if quantity == "throughput_tok_s" else 1 / ratio - 1
        assert load.change(before, after) == pytest.approx(expected, rel=1e-3)
    nearest = [
        b for b in section(document, "Map").blocks if isinstance(b, str) and "The nearest of the map" in b
    ]
    assert len(nearest) == 1, (
        "throughput before the change is compared where the run is, not where the cycle is"
    )


def test_machines_of_one_ratio_show_one_change(machines: StudyData) -> None:
    """Every cost of the exact toy profile is the host's or the device's."""
    text = next(
        b
        for b in section(build(machines), "Map").blocks
        if isinstance(b, str) and "along a diagonal" in b.replace("\n", " ")
    )
    assert "at most 0 points" in text or re.search(r"at most 0\.0\d* points", text)


def test_markdown_keeps_bars_out_of_cells() -> None:
    document = Document("T", "Q", [], [Section("S", [Table(["a"], [["x|y"]])])], [("k", "v")])
    assert "| x\\|y |" in markdown.render(document)


def test_drawing_is_deferred_until_the_report_is_written(small: StudyData) -> None:
    assert all(isinstance(figure, Figure) and callable(figure.draw) for figure in build(small).figures())


def test_notes_of_the_scenarios_stand_once_with_their_variants(tmp_path: Path) -> None:
    text = STUDY.replace(', "measured"', "").replace(', "map"', "")
    text = text.replace("[set]", '[set]\n"acceptance.mean_accepted_drafts" = 3')
    text = text.replace('set = { barrier = "coarse" }', "set = { block_size = 2 }")
    blocks = section(build(run(text, tmp_path)), "What is compared").blocks
    (notes,) = (b for b in blocks if isinstance(b, list))
    assert sum("mean_accepted_drafts 3 is clipped" in note for note in notes) == 1
    assert all(note.endswith("(coarse)") for note in notes if "clipped" in note)
    assert not any("the same point here" in note for note in notes)


def test_a_variant_refused_everywhere_is_left_out_with_a_note(tmp_path: Path) -> None:
    text = STUDY.replace(', "measured"', "").replace(', "map"', "")
    text = text.replace("new_boots = true", "new_boots = true\nskip_refused = true")
    text = text.replace('barrier = "coarse"', 'barrier = "coarse", overlap = false')
    data = run(text, tmp_path)
    report = write(data, tmp_path).read_text()
    assert "coarse is left out: refused everywhere (barrier" in report
    assert data.variants() == ["as declared", "same again"]


def test_a_measured_file_that_is_absent_is_said_to_be(tmp_path: Path) -> None:
    from sim.errors import InputError

    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(', "map"', ""))
    plan = load_plan(str(path))
    with pytest.raises(
        InputError, match=r'found "cycles.csv": no such file; expected a CSV beside the study'
    ):
        read_measured(plan.study, plan.path)
