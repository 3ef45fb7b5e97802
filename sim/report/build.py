"""From stored results to a document."""

from __future__ import annotations

from sim.report.data import StudyData
from sim.report.document import Block, Document, Section, Table, told_apart
from sim.report.notes import notes
from sim.report.sections import SECTIONS, differences, measured, ranking, recovered, regression, winners


def build(data: StudyData) -> Document:
    """The document a study asks for; figures are drawn only when it is written."""
    study = data.study
    return Document(
        title=study.title,
        question=study.question,
        verdict=_verdict(data),
        sections=told_apart([_compared(data), *(SECTIONS[name](data) for name in study.sections)]),
        provenance=_provenance(data),
    )


def _verdict(data: StudyData) -> list[str]:
    """What the results say, from the sections that have a say."""
    out = []
    if "differences" in data.study.sections and "recovered" not in data.study.sections:
        out += differences.sentences(data)
    for name, said in (
        ("recovered", recovered.sentences),
        ("winners", winners.sentences),
        ("ranking", ranking.sentences),
    ):
        if name in data.study.sections:
            out += said(data)
    if "map" in data.study.sections:
        out += regression.sentences(data)
    if "measured" in data.study.sections:
        out += measured.sentences(data)
    return out


def _compared(data: StudyData) -> Section:
    study = data.study
    rows = [
        [variant.name, variant.description, ", ".join(f"`{k} = {_toml(v)}`" for k, v in variant.set.items())]
        for variant in study.variants
    ]
    blocks: list[Block] = [*study.notes, Table(["variant", "what it is", "keys"], rows)]
    if said := notes(data):
        blocks += ["Notes of the scenarios:", said]
    return Section("What is compared", blocks)


def _toml(value: object) -> str:
    return (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _provenance(data: StudyData) -> list[tuple[str, str]]:
    device = data.device
    first = data.rows[0].result
    seeds = sorted({row.result["seed"] for row in data.rows})
    replications = sorted({row.result["replications"] for row in data.rows})
    boots = sorted({len(row.result["samples"]["host_factors"]) for row in data.rows})
    shares = first["cost_share_by_status"]
    extrapolated = sorted({name for row in data.rows for name in row.result["extrapolated"]})
    pi95 = f"{_one(boots)} runs at other host states a cell" if boots != [0] else "not computed in this study"
    return [
        ("command", f"`{data.command}`"),
        ("device profile", f"`{device['name']}` ({device['status']}), sha256 `{device['sha256']}`"),
        *((f"device: {name}", text) for name, text in sorted(device["provenance"].items())),
        ("study file", f"`{data.name}.toml`, sha256 `{data.study_sha256}`"),
        ("version", f"overlapsim {data.version}"),
        ("seed", _one(seeds)),
        ("replications", f"{_one(replications)} a cell; `ci95` from them (Student t); `pi95`: {pi95}"),
        ("cells", str(len(data.rows))),
        (
            "costs by status",
            ", ".join(f"{status} {share:.1%}" for status, share in shares.items()) + " (first cell)",
        ),
        ("extrapolated costs", ", ".join(f"`{name}`" for name in extrapolated) or "none"),
    ]


def _one(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
