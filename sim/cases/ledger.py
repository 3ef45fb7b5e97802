"""The ledger of every case: rows, JSON, and the report with its figure and its discussions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.cases.check import problems
from sim.cases.edit import REPLICATIONS
from sim.cases.predict import Prediction, predict
from sim.cases.schema import Case, load_cases
from sim.cases.verdict import CLASSES, EDGES, Verdict, magnitude, signed, verdict
from sim.config import paths
from sim.config.declarations import load_profile_with_hash, parse_toml, read_bytes
from sim.errors import InputError
from sim.files import json_text, write_atomically
from sim.hazards.text import verdict as hazard_verdict
from sim.report import markdown, style
from sim.report.document import Document, Figure, Section, Table
from sim.report.figures import ledger as figure
from sim.report.text import number, percent, percent_span
from sim.version import package_version


def predictions() -> dict[str, Prediction]:
    """Every shipped case, decidable ones first, each group by id. Raises InputError with the problems of all files
    before anything is predicted."""
    cases = load_cases()
    wrong = [problem for name, case in cases.items() for problem in problems(case, f"{name}.toml")]
    if wrong:
        raise InputError(wrong)
    ordered = sorted(cases, key=lambda name: (not cases[name].decidable, name))
    return {name: predict(cases[name], name) for name in ordered}


def to_json(predicted: Mapping[str, Prediction]) -> dict[str, Any]:
    """The interface's shape; changes are shares (−0.0366 is −3.66 %)."""
    return {
        "version": package_version(),
        "replications": REPLICATIONS,
        "classes": list(CLASSES),
        "class_edges_percent": list(EDGES),
        "agreement": dict(zip(("agree", "decidable"), agreement(predicted), strict=True)),
        "cases": [_row(name, p) for name, p in predicted.items()],
    }


def agreement(predicted: Mapping[str, Prediction]) -> tuple[int, int]:
    """(cases that agree, decidable cases)."""
    decided = [p for p in predicted.values() if p.case.decidable]
    return sum(p.verdict is Verdict.AGREES for p in decided), len(decided)


def _row(name: str, p: Prediction) -> dict[str, Any]:
    case, fit = p.case, p.case.fit
    return {
        "id": name,
        "title": case.title,
        "source": {"name": case.source.name, "url": case.source.url, "date": case.source.date},
        "confidence": case.source.confidence,
        "quantity": case.quantity,
        "fitted": None if fit is None or p.fitted is None else {fit.parameter: round(p.fitted, 4)},
        "fitted_to": None if fit is None else {"quantity": fit.quantity, "value": fit.target},
        "predicted_change": _share(p.change_percent),
        "predicted_ci95": None if p.ci95_percent is None else [_share(x) for x in p.ci95_percent],
        "predicted_class": None if p.change_percent is None else magnitude(p.change_percent),
        "published_change": _share(case.change_percent),
        "published_range": None
        if case.published.low_percent is None
        else [_share(case.published.low_percent), _share(case.published.high_percent)],
        "published_class": None if case.change_percent is None else magnitude(case.change_percent),
        "decidable": case.decidable,
        "because": case.because,
        "verdict": str(p.verdict),
        "shared_buffers_after": None if p.after is None else hazard_verdict(p.after.hazards),
        "critical_side": None
        if p.before is None or p.after is None
        else [p.before.critical_side, p.after.critical_side],
        "device_status": None if p.before is None else p.before.device["status"],
    }


def _share(percent_: float | None) -> float | None:
    return None if percent_ is None else round(percent_ / 100, 6)


# -- the report ---------------------------------------------------------------------------------------------------


def write_report(predicted: Mapping[str, Prediction], folder: Path) -> Path:
    """``report.md``, ``cases.json`` and the figure in ``folder``, which is made; returns the report."""
    images = folder / "figures"
    images.mkdir(parents=True, exist_ok=True)
    document = _document(predicted, _discussion("after_prediction"), _discussion("first_predictions"))
    for drawn in document.figures():
        style.save(drawn.draw, images, drawn.name)
    write_atomically(folder / "cases.json", json_text(to_json(predicted)))
    report = folder / "report.md"
    write_atomically(report, markdown.render(document))
    return report


def _discussion(name: str) -> dict[str, Any]:
    """What is kept about the shipped cases beside their files.

    ``after_prediction``: what was found out about a case after its prediction (case id → text), and ``group`` tables
    that set several readings of one published pair side by side. ``first_predictions``: what was predicted first,
    before faults of method were corrected.
    """
    path = paths.folder("cases") / "discussion" / f"{name}.toml"
    return parse_toml(read_bytes(path), path.name)


def _document(
    predicted: Mapping[str, Prediction], discussions: Mapping[str, Any], first: Mapping[str, Any]
) -> Document:
    agree, decidable = agreement(predicted)
    names = list(predicted)
    decided = [n for n in names if predicted[n].case.decidable]
    wrong = [n for n in decided if predicted[n].verdict is Verdict.DISAGREES]
    signs = sum(_same_sign(predicted[n]) for n in decided)
    others = [predicted[n] for n in names if n not in decided and _comparable(predicted[n])]
    alike = sum(_as_if_decidable(p) is Verdict.AGREES for p in others)
    sections = [
        Section("Rules, fixed beforehand", [_rules()]),
        Section("Decidable cases", [_figure(predicted), _decided(predicted, decided)]),
        *(_group(predicted, **group) for group in discussions.get("group", ())),
        Section("Where it disagrees", [f"**{n}**: {discussions[n]}" for n in wrong if n in discussions]),
        Section(
            "What nothing can be decided on",
            [
                _undecided(predicted, [n for n in names if n not in decided]),
                *discussions.get("undecided", ()),
            ],
        ),
        _history(predicted, first, discussions["history"]),
    ]
    return Document(
        title="Ledger: published changes, predicted",
        question="Does the model, from costs measured on one H200 and public figures, predict what others measured "
        "when they made the edits it knows?",
        verdict=[
            f"{agree} of {decidable} decidable cases agree in sign and class of magnitude ({agree / decidable:.0%}); "
            f"{signs} agree in sign.",
            *_parts(predicted, first),
            f"{len(names) - decidable} more are listed without a verdict; of the {len(others)} among them with a "
            f"published and a predicted change, {alike} would agree.",
            "Everything predicted for a device other than the H200 rests on published figures and says so; nothing "
            "was measured there.",
        ],
        sections=sections,
        provenance=[
            ("command", "overlapsim cases --report reports/ledger"),
            (
                "device profile",
                f"`h200_sglang`, sha256 `{load_profile_with_hash('h200_sglang')[1]}`, and those over it",
            ),
            ("replications", f"{REPLICATIONS} a side, paired"),
            ("version", package_version()),
        ],
    )


def _parts(predicted: Mapping[str, Prediction], first: Mapping[str, Any]) -> list[str]:
    """The agreement taken apart: by set, without the pairs that had no effect, by source. One table of rows that all
    had none makes a share look better than it is."""
    decided = {name: p for name, p in predicted.items() if p.case.decidable}
    sets = [first, *first.get("later_sets", ())]
    shares = [agreement(chosen) for s in sets if (chosen := _of_set(decided, s))]
    lines = []
    if len(shares) > 1:
        lines.append(
            "By set, each committed before its first prediction: "
            + "; ".join(f"{agree} of {count}" for agree, count in shares)
            + "."
        )
    effects = {name: p for name, p in decided.items() if not _had_no_effect(p.case)}
    sources: dict[str, list[bool]] = {}
    for p in decided.values():
        sources.setdefault(p.case.source.url, []).append(p.verdict is Verdict.AGREES)
    agree, count = agreement(effects)
    lines.append(
        f"Without the {len(decided) - count} whose published change, or its range, is of class none: {agree} of "
        f"{count}. The decidable cases come from {len(sources)} sources; {sum(map(all, sources.values()))} of those "
        "agree in every case."
    )
    return lines


def _of_set(decided: Mapping[str, Prediction], chosen: Mapping[str, Any]) -> dict[str, Prediction]:
    ids = {entry["id"] for entry in chosen["cases"]}
    return {name: p for name, p in decided.items() if name in ids}


def _had_no_effect(case: Case) -> bool:
    """Whether the published change is of class none, or its range touches that class."""
    change, published = case.change_percent, case.published
    assert change is not None, "a decidable case has a published change"
    low = change if published.low_percent is None else published.low_percent
    high = change if published.high_percent is None else published.high_percent
    return signed(low) <= 0 <= signed(high)


def _rules() -> list[str]:
    return [
        "A case file states both scenarios, what is known and unknown, and whether the pair can decide anything; "
        "each was committed before its first prediction was computed. What was corrected since, with the evidence "
        "and whatever it did to a verdict, stands under *First predictions*; whether a case decides was never "
        "changed.",
        "At most one free parameter a case, fitted to the published figure *before*: `model_scale` multiplies the "
        "model's graphs and prefills, `host_scale` all host costs (the free one where the source gives the graphs' "
        "durations, or where the host is what limits). *After* is predicted.",
        f"Classes of magnitude: {', '.join(CLASSES)}, with edges at {', '.join(f'{e:g}' for e in EDGES)} %. A case "
        "agrees if sign and class are equal (class none has no sign), or if the source gives a range and the "
        "prediction is in a class the range touches. A decidable case whose *before* cannot be reproduced disagrees.",
        "Undecided: an absolute figure, the load or the edit itself is missing, or the program before is not one of "
        "ours. The prediction is shown where one can be made.",
    ]


def _figure(predicted: Mapping[str, Prediction]) -> Figure:
    points = [
        figure.Point(
            i,
            p.case.change_percent,
            p.change_percent,
            p.case.published.low_percent,
            p.case.published.high_percent,
            str(p.verdict),
        )
        for i, p in enumerate(predicted.values(), start=1)
        if p.case.change_percent is not None and p.change_percent is not None
    ]
    return Figure(
        "changes",
        "Scatter of predicted over published change; squares along the diagonal are the classes of magnitude",
        "Predicted over published change of the quantity each case names; numbers as in the tables. Grey squares: "
        "equal class and sign. Bars: published range. Hollow: undecided.",
        lambda: figure.draw(points, EDGES),
    )


def _decided(predicted: Mapping[str, Prediction], chosen: Sequence[str]) -> Table:
    numbers = {name: i for i, name in enumerate(predicted, start=1)}
    rows = []
    for name in chosen:
        p = predicted[name]
        case = p.case
        rows.append(
            [
                str(numbers[name]),
                f"[{case.source.name}]({case.source.url}), {case.source.date}",
                f"{case.title}. {case.setup.hardware}; {case.setup.load}",
                _fitted(p),
                case.quantity,
                _changes(case),
                percent_or_dash(p.change_percent),
                str(p.verdict),
                "–" if p.after is None else hazard_verdict(p.after.hazards).split(":")[0],
            ]
        )
    headers = ["", "source", "change", "fitted", "quantity", "published", "predicted", "verdict", "after is"]
    return Table(headers, rows)


def _undecided(predicted: Mapping[str, Prediction], chosen: Sequence[str]) -> Table:
    numbers = {name: i for i, name in enumerate(predicted, start=1)}
    rows = [
        [
            str(numbers[name]),
            f"[{p.case.source.name}]({p.case.source.url}), {p.case.source.date}",
            p.case.title,
            _changes(p.case),
            percent_or_dash(p.change_percent),
            p.case.because,
        ]
        for name in chosen
        for p in (predicted[name],)
    ]
    return Table(["", "source", "change", "published", "predicted", "what is missing"], rows)


def _group(predicted: Mapping[str, Prediction], title: str, prefix: str, text: Sequence[str]) -> Section:
    rows = [
        [
            p.case.title.partition(": ")[2],
            p.case.title.partition(": ")[0],
            _changes(p.case),
            percent_or_dash(p.change_percent),
        ]
        for name, p in sorted(predicted.items())
        if name.startswith(prefix)
    ]
    return Section(title, [*text[:1], Table(["reading", "case", "published", "predicted"], rows), *text[1:]])


def _history(predicted: Mapping[str, Prediction], first: Mapping[str, Any], text: Sequence[str]) -> Section:
    """What was predicted first, what stood before the latest corrections, and what stands now."""
    known = [entry for entry in first["cases"] if entry["id"] in predicted]
    rows = [
        [
            entry["id"],
            percent_or_dash(entry.get("predicted_percent")),
            entry["verdict"],
            percent_or_dash(entry.get("earlier_percent")),
            entry["earlier_verdict"],
            *_now(predicted[entry["id"]]),
        ]
        for entry in known
    ]
    foot = (
        f"First: at the commit that follows {first['commit']}, {_agreed(known, 'verdict')} of {len(rows)} agreed. "
        f"Earlier: at {first['earlier_commit']}, {_agreed(known, 'earlier_verdict')} did."
    )
    headers = ["case", "first", "verdict", "earlier", "verdict", "now", "verdict"]
    later = [block for one in first.get("later_sets", ()) for block in _later_set(predicted, one)]
    return Section("First predictions", [*text, foot, Table(headers, rows), *later])


def _later_set(predicted: Mapping[str, Prediction], chosen: Mapping[str, Any]) -> list[str | Table]:
    """What was predicted first of a set of cases that joined later, and what stands now."""
    known = [entry for entry in chosen["cases"] if entry["id"] in predicted]
    rows = [
        [
            entry["id"],
            percent_or_dash(entry.get("predicted_percent")),
            entry["verdict"],
            *_now(predicted[entry["id"]]),
        ]
        for entry in known
    ]
    foot = (
        f"Set committed at {chosen['commit']}: at its first prediction {_agreed(known, 'verdict')} of {len(rows)} "
        "agreed."
    )
    return [foot, Table(["case", "first", "verdict", "now", "verdict"], rows)]


def _now(p: Prediction) -> list[str]:
    return [percent_or_dash(p.change_percent), str(p.verdict)]


def _agreed(entries: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(entry[key] == Verdict.AGREES for entry in entries)


def _fitted(p: Prediction) -> str:
    fit = p.case.fit
    if fit is None:
        return "nothing"
    if p.fitted is None:
        return f"no {fit.parameter} gives {fit.quantity} {number(fit.target)}"
    return f"{fit.parameter} {p.fitted:.3g} ({fit.quantity} {number(fit.target)})"


def _changes(case: Case) -> str:
    p = case.published
    change = percent_or_dash(case.change_percent)
    if p.low_percent is not None and p.high_percent is not None:
        change += f" ({percent_span((p.low_percent / 100, p.high_percent / 100))})"
    if p.before is None or p.after is None:
        return change
    return f"{change}: {p.before:,g} → {p.after:,g} {p.unit}"


def percent_or_dash(value: float | None) -> str:
    return percent(None if value is None else value / 100)


def _comparable(p: Prediction) -> bool:
    return p.change_percent is not None and p.case.change_percent is not None


def _as_if_decidable(p: Prediction) -> Verdict:
    published = p.case.published
    return verdict(
        True, p.change_percent, p.case.change_percent, published.low_percent, published.high_percent
    )


def _same_sign(p: Prediction) -> bool:
    """Both below half a per cent, or both of one sign."""
    published, predicted = p.case.change_percent, p.change_percent
    if published is None or predicted is None:
        return False
    if abs(published) < EDGES[0]:
        return abs(predicted) < EDGES[0] or published * predicted > 0
    return published * predicted > 0
