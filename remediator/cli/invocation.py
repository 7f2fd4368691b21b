"""What the global options said, handed to every command as click's ``ctx.obj``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of the command line.

    Attributes:
        config_path: ``--config``; None = the settings' own default.
    """

    config_path: Path | None
