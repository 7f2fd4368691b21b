"""What the global options said, handed to every command as click's ``ctx.obj``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remediator.cli.terminal import complain

if TYPE_CHECKING:
    from remediator.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of the command line.

    Attributes:
        config_path: ``--config``; None = the settings' own default.
    """

    config_path: Path | None

    def settings(self) -> Settings:
        """The settings, read now.

        Raises:
            SettingsError: every problem in them.
        """
        from remediator.settings import load_settings  # pydantic is slow to import, and --help needs none of it

        return load_settings(self.config_path)

    def settings_of_here(self) -> Settings:
        """``settings``, for a command that works with the files of this folder: says when it has no settings file.

        Raises:
            SettingsError: every problem in them.
        """
        from remediator.settings import DEFAULT_CONFIG

        if self.config_path is None and not DEFAULT_CONFIG.exists():
            complain(f"no {DEFAULT_CONFIG} here: defaults are used; --config FILE names another")
        return self.settings()
