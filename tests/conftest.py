"""What every test can use; and the rule about real parts.

A test that needs a real part bears its mark (``docker``, ``alertmanager``, ``nvml``, ``system``) and is skipped, with
the reason, where the part is absent. ``REMEDIATOR_REQUIRE=docker,alertmanager,nvml,system`` turns each such skip into a
failure, so that a run that is meant to prove something cannot turn green by skipping.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import hypothesis
import pytest

# A deadline per example fails on a busy machine and proves nothing: time is measured in bench/.
hypothesis.settings.register_profile("remediator", deadline=None)
# Ten times as much of everything, for `make soak`.
hypothesis.settings.register_profile("soak", deadline=None, max_examples=1_000)
hypothesis.settings.load_profile("remediator")

pytest_plugins = ["conftest_realparts", "conftest_docker"]

PARTS = frozenset({"docker", "alertmanager", "nvml", "system"})
"""The marks that stand for real parts."""


def _required() -> frozenset[str]:
    return frozenset(filter(None, os.environ.get("REMEDIATOR_REQUIRE", "").split(",")))


def pytest_configure(config: pytest.Config) -> None:
    unknown = _required() - PARTS
    if unknown:
        raise pytest.UsageError(f"REMEDIATOR_REQUIRE names {', '.join(sorted(unknown))}; parts are {sorted(PARTS)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # ``-q`` hides the header in which pytest-randomly says so; without the seed, no failure can be played again.
    seed = config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"Using --randomly-seed={seed}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    needed = _required() & {mark.name for mark in item.iter_markers()}
    if report.skipped and needed and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"REMEDIATOR_REQUIRE names {', '.join(sorted(needed))}, and this was to be skipped: {why}"
    return report
