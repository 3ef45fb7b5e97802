"""Which version of the model computed a result."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources
from pathlib import Path

from sim.version import package_version

#: the parts of the package whose code no result depends on
_BESIDE_THE_MODEL = {"commands", "report", "study", "ingest", "maxplus", "api.py", "cli.py", "console.py"}


@lru_cache(maxsize=1)
def model_version() -> str:
    """``<package version>+<digest>``: the digest is of the model's source, so that an edited model is another
    version even where the package's number stays (an editable installation)."""
    root = Path(str(resources.files("sim")))
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if parts[0] not in _BESIDE_THE_MODEL:
            digest.update("/".join(parts).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{package_version()}+{digest.hexdigest()[:12]}"
