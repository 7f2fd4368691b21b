"""What the tests of the web share."""

import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from flask import Flask
from flask.testing import FlaskClient

from recording_app import RecordingApp
from remediator.settings import Settings, load_settings
from remediator.telemetry import configure_logging
from remediator.web.app import create_app

TOKENS = {"deliver": "tok-deliver-1234567", "view": "tok-view-1234567", "operate": "tok-operate-1234567"}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings file of the developer's own must not be read."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def with_tokens(tmp_path: Path) -> Settings:
    """One token for each role, and one basic user that delivers."""
    for name, token in TOKENS.items():
        (tmp_path / name).write_text(token + "\n")
    (tmp_path / "password").write_text("pa:ss wörd\n")
    return load_settings(
        environ={},
        overrides={
            "auth": {
                "tokens": [{"name": f"{name}-bot", "roles": [name], "file": tmp_path / name} for name in TOKENS],
                "basic": [{"username": "am", "roles": ["deliver"], "password_file": tmp_path / "password"}],
            }
        },
    )


@pytest.fixture
def without_tokens() -> Settings:
    return load_settings(environ={})


@pytest.fixture
def engine(with_tokens: Settings) -> RecordingApp:
    return RecordingApp(with_tokens)


@pytest.fixture
def open_engine(without_tokens: Settings) -> RecordingApp:
    return RecordingApp(without_tokens)


@pytest.fixture
def flask_app(engine: RecordingApp) -> Flask:
    return create_app(engine)


@pytest.fixture
def client(flask_app: Flask) -> FlaskClient:
    return flask_app.test_client()


@pytest.fixture
def open_client(open_engine: RecordingApp) -> FlaskClient:
    return create_app(open_engine).test_client()


@pytest.fixture
def bearer() -> Callable[[str], dict[str, str]]:
    """role → headers of its token."""
    return lambda role: {"Authorization": f"Bearer {TOKENS[role]}"}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that is logged, from debug on."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging(level="debug", log_format="json", stream=stream)
    yield stream
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()
