"""``docs/verify_audit.py``, the verifier that an auditor gets, as a module: ``second``.

It shares no line with the engine, so that a fault in both would have to be made twice.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

FILE = Path(__file__).resolve().parents[1] / "docs" / "verify_audit.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_audit", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


second = _load()
