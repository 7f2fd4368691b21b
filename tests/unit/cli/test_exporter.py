"""Options of ``remediator exporter`` that cannot be, said before anything is asked or bound."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from remediator.cli import cli


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(["--interval", "5"], "it has no unit; write 5s", id="an interval without a unit"),
        pytest.param(["--interval", "500ms"], "must be 1s to 1m", id="an interval that is too short"),
        pytest.param(["--listen", "9096"], "must be ADDRESS:PORT", id="a port alone"),
        pytest.param(["--docker", "/var/run/docker.sock"], "must begin with unix://", id="a path for Docker's URL"),
        pytest.param(["--proc", "/nowhere"], "does not exist", id="a /proc that is not there"),
        pytest.param(["--tls-cert", "a.pem"], "--tls-cert and --tls-key go together", id="half of TLS"),
        pytest.param(["--tls-client-ca", "a.pem"], "--tls-client-ca needs both", id="a CA without TLS"),
    ],
)
def test_options_when_one_is_wrong_then_is_refused_with_what_to_write(options: list[str], says: str) -> None:
    ended = CliRunner().invoke(cli, ["exporter", *options])

    assert ended.exit_code == 2
    assert says in ended.output


def test_variable_when_it_is_misspelt_then_is_refused() -> None:
    ended = CliRunner(env={"REMEDIATOR_EXPORTER_INTERVALL": "5s"}).invoke(cli, ["exporter"])

    assert ended.exit_code == 2
    assert "no option has the variable REMEDIATOR_EXPORTER_INTERVALL" in ended.output


def test_variable_when_it_is_wrong_then_is_refused_by_its_name() -> None:
    ended = CliRunner(env={"REMEDIATOR_EXPORTER_INTERVAL": "5"}).invoke(cli, ["exporter"])

    assert ended.exit_code == 2
    assert "env var: 'REMEDIATOR_EXPORTER_INTERVAL'" in ended.output
