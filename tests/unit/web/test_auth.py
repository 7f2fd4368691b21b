import base64
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from recording_app import RecordingApp
from remediator.errors import SettingsError
from remediator.settings import Role, Settings, load_settings
from remediator.telemetry import redact
from remediator.web.auth import Authenticator, Caller

Bearer = Callable[[str], dict[str, str]]


def _settings(*entries: tuple[str, str, Path], basic: tuple[tuple[str, str, Path], ...] = ()) -> Settings:
    return load_settings(
        environ={},
        overrides={
            "auth": {
                "tokens": [{"name": name, "roles": [role], "file": file} for name, role, file in entries],
                "basic": [{"username": name, "roles": [role], "password_file": file} for name, role, file in basic],
            }
        },
    )


def _names(authenticator: Authenticator, *tokens: str) -> list[str | None]:
    callers = [authenticator.identify(f"Bearer {token}") for token in tokens]
    return [caller and caller.name for caller in callers]


def test_identify_when_a_file_has_two_lines_then_both_are_valid(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("old-token\n\n  new-token  \n")

    authenticator = Authenticator(_settings(("am", "deliver", tmp_path / "t")))

    assert _names(authenticator, "old-token", "new-token", "old-token\nnew-token", "") == ["am", "am", None, None]


def test_identify_when_two_entries_then_each_is_valid_with_its_own_roles(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("token-a")
    (tmp_path / "b").write_text("token-b")

    authenticator = Authenticator(_settings(("one", "deliver", tmp_path / "a"), ("two", "view", tmp_path / "b")))

    assert authenticator.identify("Bearer token-a") == Caller(name="one", roles=frozenset({Role.DELIVER}))
    assert authenticator.identify("bearer  token-b") == Caller(name="two", roles=frozenset({Role.VIEW}))


@pytest.mark.parametrize("how", ["in place", "by a new file", "by a symlink"])
def test_identify_when_the_file_is_rotated_then_the_new_token_is_valid_without_restart(
    how: str, tmp_path: Path
) -> None:
    file = tmp_path / "t"
    (tmp_path / "v1").write_text("token-1")
    file.symlink_to(tmp_path / "v1")
    authenticator = Authenticator(_settings(("am", "deliver", file)))
    assert _names(authenticator, "token-1", "token-2") == ["am", None]

    match how:
        case "in place":
            file.write_text("token-2\n")
        case "by a new file":
            (tmp_path / "next").write_text("token-2")
            os.replace(tmp_path / "next", file)
        case _:
            (tmp_path / "v2").write_text("token-2")
            file.unlink()
            file.symlink_to(tmp_path / "v2")

    assert _names(authenticator, "token-1", "token-2") == [None, "am"]


@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_identify_when_the_file_cannot_be_read_then_the_last_token_stays_valid(how: str, tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("token-1")
    authenticator = Authenticator(_settings(("am", "deliver", file)))

    if how == "emptied":
        file.write_text("")
    else:
        file.unlink()
    assert _names(authenticator, "token-1") == ["am"]

    file.write_text("token-22")
    assert _names(authenticator, "token-1", "token-22") == [None, "am"]


def test_authenticator_when_a_file_is_missing_at_the_start_then_says_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Authenticator(_settings(("am", "deliver", tmp_path / "absent")))


def test_identify_when_a_bearer_token_is_sent_as_a_password_then_unknown(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("same-secret")
    authenticator = Authenticator(
        _settings(("tok", "view", tmp_path / "t"), basic=(("user", "deliver", tmp_path / "t"),))
    )
    pair = base64.b64encode(b"tok:same-secret").decode()

    assert authenticator.identify(f"Basic {pair}") is None
    assert authenticator.identify("Bearer user:same-secret") is None


def test_identify_when_a_token_has_other_than_ascii_then_its_utf8_bytes_count(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("tökén-1234", "utf-8")
    authenticator = Authenticator(_settings(("am", "view", tmp_path / "t")))

    assert _names(authenticator, "tökén-1234".encode().decode("latin-1")) == ["am"]


def test_authenticator_when_a_rotated_token_is_read_then_logs_never_show_it(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("first-canary")
    authenticator = Authenticator(_settings(("am", "view", file)))
    file.write_text("second-canary")
    authenticator.identify("Bearer x")

    assert redact("first-canary second-canary") == "[redacted] [redacted]"


@pytest.mark.parametrize(
    "authorization", ["Bearer canary-unknown", "Basic " + base64.b64encode(b"u:canary-unknown").decode()]
)
def test_call_when_refused_then_neither_log_nor_answer_shows_what_was_sent(
    authorization: str, client: FlaskClient, engine: RecordingApp, log: io.StringIO
) -> None:
    answer = client.post("/api/v1/pause?token=canary-unknown", headers={"Authorization": authorization})

    sent = authorization.split()[1]
    assert "call refused" in log.getvalue()
    for shown in (log.getvalue(), answer.text, str(answer.headers), engine.metrics.expose().decode()):
        assert "canary-unknown" not in shown
        assert sent not in shown
