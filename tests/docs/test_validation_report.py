"""The committed H200 validation belongs together: profiles, report and results are of one run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "reports" / "h200_validation"


def test_the_report_s_profiles_are_the_shipped_ones_and_the_judged_ones() -> None:
    judged = json.loads((REPORT / "results.json").read_text())["profiles"]
    kept = {path.stem: path.read_bytes() for path in (REPORT / "devices").glob("*.toml")}
    assert set(kept) == set(judged) == {"h200_suite", "h200_suite_0.6b", "h200_suite_1.7b"}
    for name, content in kept.items():
        assert (ROOT / "configs" / "devices" / f"{name}.toml").read_bytes() == content
        assert hashlib.sha256(content).hexdigest() == judged[name]
