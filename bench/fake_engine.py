"""``python -m bench.fake_engine serve --config FILE``: the whole engine in a process, with a Docker of memory.

What an act costs the engine itself, without what Docker takes for it. There is one container, ``trainer`` on gpu-001.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from remediator.app import App
from remediator.clients.fake import FakeWorld
from remediator.settings import load_settings, secret_values
from remediator.telemetry import configure_logging
from remediator.web.server import serve

if __name__ == "__main__":
    settings = load_settings(Path(sys.argv[-1]))
    configure_logging(level=settings.log_level, log_format=settings.log_format, secrets=secret_values(settings))
    world = FakeWorld(lambda: datetime.now(UTC))
    world.add_container("gpu-001", "trainer")
    serve(App(settings, world.clients()))
