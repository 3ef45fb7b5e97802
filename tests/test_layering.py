"""Who may import whom, as a table; a wrong arrow fails with both module names. Type-only imports are exempt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: layer → layers it may import from (itself always). A module belongs to the longest matching prefix.
VOCABULARY = {
    "sim.errors",
    "sim.units",
    "sim.capabilities",
    "sim.randomness",
    "sim.files",
    "sim.lock",
    "sim.version",
}
DATA = VOCABULARY | {"sim.config", "sim.program"}
MAY_IMPORT: dict[str, set[str]] = {
    "sim.errors": set(),
    "sim.units": set(),
    "sim.capabilities": set(),
    "sim.randomness": set(),
    "sim.files": {"sim.errors"},
    "sim.lock": {"sim.errors"},
    "sim.version": set(),
    "sim.trace.record": VOCABULARY,
    "sim.trace.recorder": VOCABULARY | {"sim.trace.record"},
    "sim.trace": VOCABULARY | {"sim.trace.record", "sim.trace.recorder", "sim.serving", "sim.stats"},
    "sim.stats": VOCABULARY | {"sim.trace.record"},
    "sim.program": VOCABULARY | {"sim.relay", "sim.barrier", "sim.host_lengths", "sim.trace.record"},
    "sim.config": VOCABULARY | {"sim.program"},
    "sim.spec": VOCABULARY | {"sim.config"},
    "sim.serving": VOCABULARY | {"sim.config", "sim.spec"},
    "sim.relay": VOCABULARY | {"sim.program", "sim.trace.record"},
    "sim.barrier": VOCABULARY | {"sim.program", "sim.trace.record"},
    "sim.host_lengths": VOCABULARY | {"sim.program", "sim.relay", "sim.trace.record"},
    "sim.machine": DATA | {"sim.trace.record", "sim.trace.recorder"},
    "sim.loops": DATA | {"sim.serving", "sim.spec", "sim.relay", "sim.barrier", "sim.machine"},
    "sim.maxplus": DATA | {"sim.relay", "sim.trace.record"},
    "sim.hazards": DATA | {"sim.trace.record", "sim.trace.recorder", "sim.serving"},
    "sim.ingest.toml_out": DATA,
    "sim.ingest.files": DATA | {"sim.ingest.toml_out"},
    "sim.ingest": DATA
    | {"sim.ingest.files", "sim.ingest.toml_out"}
    | {"sim.trace", "sim.trace.record", "sim.run", "sim.result", "sim.stats"},
    "sim.result": VOCABULARY,
    "sim.report": DATA | {"sim.trace", "sim.trace.record", "sim.stats", "sim.result"},
}
#: composition roots: may import everything of `sim`
ROOTS = (
    "sim.run",
    "sim.device_clock",
    "sim.replication",
    "sim.summary",
    "sim.uncertainty",
    "sim.study",
    "sim.cases",
    "sim.commands",
    "sim.api",
    "sim.cli",
    "sim.console",
)
#: what the real-device side may use of `sim`; only `validate` may also run the model
GPU_MAY_IMPORT = {
    *VOCABULARY,
    "sim.config",
    "sim.program",
    "sim.serving",
    "sim.spec",
    "sim.trace",
    "sim.trace.record",
    "sim.trace.recorder",
    "sim.stats",
    "sim.relay",
    "sim.console",
    # one form for profiles, one look for reports
    "sim.ingest.files",
    "sim.report",
}
#: what parts of it may use besides: the files the model reads, the model itself, its reports and verdicts
GPU_PARTS_MAY_IMPORT = {
    ".calibrate": ("sim.ingest.files",),
    ".starts": ("sim.study.lock",),  # one command at a time writes a folder, there as here
    ".validate": ("sim.ingest.files", "sim.run", "sim.result", "sim.report", "sim.hazards.text"),
}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path) -> Iterator[str]:
    """Modules imported at run time, at any depth of the file."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    yield from visit(ast.parse(path.read_text()))


def layer(module: str) -> str | None:
    names = (*MAY_IMPORT, *ROOTS)
    matching = [name for name in names if module == name or module.startswith(name + ".")]
    return max(matching, key=len) if matching else None


def test_every_arrow_in_sim_points_down() -> None:
    wrong = []
    for module, path in modules("sim"):
        if module == "sim" or module.startswith(ROOTS):
            continue
        own = layer(module)
        assert own is not None, f"{module} has no layer; add it to the table"
        for imported in imports(path):
            if not imported.startswith("sim."):
                continue
            other = layer(imported)
            if other is None or (other != own and other not in MAY_IMPORT[own]):
                wrong.append(f"{module} imports {imported}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", ["torch", "gpu_validation", "triton"])
def test_the_simulator_needs_no_device_library(library: str) -> None:
    users = [
        module
        for module, path in modules("sim")
        for name in imports(path)
        if name.split(".")[0] == library and not module.startswith("sim.cli")
    ]
    assert not users


def test_only_the_machine_and_the_composition_root_import_simpy() -> None:
    users = {
        module for module, path in modules("sim") if any(n.split(".")[0] == "simpy" for n in imports(path))
    }
    assert all(module.startswith("sim.machine") or module == "sim.replication" for module in users), users


def test_the_device_suite_never_imports_the_modelled_machine() -> None:
    wrong = []
    for module, path in modules("gpu_validation"):
        for name in imports(path):
            if not name.startswith("sim."):
                continue
            other = layer(name)
            more = [p for part, prefixes in GPU_PARTS_MAY_IMPORT.items() if part in module for p in prefixes]
            if other not in GPU_MAY_IMPORT and not name.startswith(tuple(more)):
                wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(wrong)
