"""The import contracts of ``pyproject.toml`` hold."""

from __future__ import annotations

from pathlib import Path

from importlinter.application.use_cases import create_report, read_user_options
from importlinter.configuration import configure

ROOT = Path(__file__).resolve().parents[2]


def test_import_contracts_when_checked_then_all_are_kept() -> None:
    configure()
    options = read_user_options(config_filename=str(ROOT / "pyproject.toml"))

    report = create_report(options, cache_dir=None)

    broken = [contract.name for contract, check in report.get_contracts_and_checks() if not check.kept]
    assert broken == []
    assert len(list(report.get_contracts_and_checks())) == len(options.contracts_options)
