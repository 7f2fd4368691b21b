"""The commands and an engine that asks every caller for a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from certificates import make_certificates
from recording_app import RecordingApp
from remediator.cli import cli
from remediator.settings import load_settings
from remediator.web.server import start_in_thread


@pytest.fixture
def url(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An engine behind TLS that knows the clients of its own CA alone; its files are in the working directory."""
    make_certificates(site)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(site / "ca.pem"))
    settings = load_settings(
        environ={},
        overrides={"tls_cert": site / "server.pem", "tls_key": site / "server.key", "tls_client_ca": site / "ca.pem"},
    )
    with start_in_thread(RecordingApp(settings)) as running:  # type: ignore[arg-type]
        yield running.url


def test_command_when_it_shows_a_certificate_then_the_engine_answers(url: str) -> None:
    result = CliRunner().invoke(cli, ["reload", "--url", url, "--cert", "client.pem", "--key", "client.key"])

    assert (result.exit_code, result.stdout) == (0, "loaded 3 playbooks\n")


def test_command_when_variables_name_one_file_with_both_then_the_engine_answers(url: str, site: Path) -> None:
    (site / "both.pem").write_bytes((site / "client.pem").read_bytes() + (site / "client.key").read_bytes())

    result = CliRunner().invoke(cli, ["reload", "--url", url], env={"REMEDIATOR_CLIENT_CERT": "both.pem"})

    assert result.exit_code == 0


def test_command_when_it_shows_none_then_it_is_told_that_the_engine_gives_no_answer(url: str) -> None:
    result = CliRunner().invoke(cli, ["reload", "--url", url])

    assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
    assert "no engine answers" in result.stderr or "a client certificate into --cert and --key" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--key", "client.key"], "--key needs --cert", id="a key alone"),
        pytest.param(["--cert", "ca.pem"], "cannot be used", id="no key"),
        pytest.param(["--cert", "client.pem", "--key", "server.key"], "cannot be used", id="another's key"),
        pytest.param(["--cert", "gone.pem"], "does not exist", id="no file"),
    ],
)
def test_command_when_the_certificate_cannot_be_used_then_says_so_before_it_asks(
    words: list[str], says: str, url: str
) -> None:
    result = CliRunner().invoke(cli, ["reload", "--url", url, *words])

    assert (result.exit_code, says in result.stderr, "Traceback" in result.output) == (2, True, False)


def test_doctor_when_it_shows_a_certificate_then_reaches_the_engine(url: str, site: Path) -> None:
    (site / "remediator.toml").write_text(
        f'public_url = "{url}"\ntls_cert = "server.pem"\ntls_key = "server.key"\ntls_client_ca = "ca.pem"\n'
    )

    found = [
        CliRunner().invoke(cli, ["doctor", *words]).stdout.count("an empty POST")
        for words in ([], ["--cert", "client.pem", "--key", "client.key"])
    ]

    assert found == [0, 1]
