"""The error table of the Docker adapter: every exception and status that its vendors have is in it."""

from __future__ import annotations

import inspect
from http import HTTPStatus
from pathlib import Path
from types import ModuleType

import docker.errors
import paramiko
import pytest
import requests
import requests.exceptions
import urllib3.exceptions

from remediator import errors
from remediator.clients import dockerd
from remediator.clients.dockerd import ERRORS, STATUSES, Failed, classify, own_container_id
from remediator.clients.ports import Clients, DockerHost, ReadOnlyClients


def exceptions_of(module: ModuleType) -> list[type[BaseException]]:
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception) and not issubclass(kind, Warning) and kind.__module__.startswith(module.__name__)
    ]


@pytest.mark.parametrize("module", [docker.errors, requests.exceptions], ids=lambda module: module.__name__)
def test_table_when_the_vendor_has_an_exception_then_it_is_there(module: ModuleType) -> None:
    found = exceptions_of(module)
    assert len(found) > 15
    assert [kind.__name__ for kind in found if kind not in ERRORS] == []


def test_table_when_ssh_or_the_transport_has_an_exception_then_a_base_of_it_is_there() -> None:
    found = exceptions_of(paramiko.ssh_exception) + [
        kind for kind in exceptions_of(urllib3.exceptions) if not issubclass(kind, ValueError)
    ]
    assert len(found) > 20
    assert [kind.__name__ for kind in found if not set(kind.__mro__) & set(ERRORS)] == []


def test_statuses_when_http_has_an_error_then_it_is_there_or_its_hundred_is() -> None:
    unknown = [
        status
        for status in HTTPStatus
        if status >= 300 and status != 304 and dockerd._of_status(answer(status)) is Failed.SETUP
    ]
    assert [status.value for status in unknown if status >= 400] == [405]


def answer(status: int, text: str = "") -> requests.Response:
    response = requests.Response()
    response.status_code = status
    response._content = text.encode()
    return response


def api_error(status: int, text: str = "no") -> docker.errors.APIError:
    return docker.errors.APIError("failed", response=answer(status, text), explanation=text)


ABORTED = "Connection aborted."
SEVERAL = "multiple IDs found with provided prefix: abc"

CASES = [
    ("the socket file is absent", FileNotFoundError(2, "No such file"), "transient", "transient"),
    ("nobody listens", ConnectionRefusedError(111, "refused"), "transient", "transient"),
    ("we may not open the socket", PermissionError(13, "denied"), "access_denied", "access_denied"),
    ("the socket's queue is full", BlockingIOError(11, "again"), "transient", "transient"),
    (
        "the socket file went away between two calls, wrapped",
        requests.ConnectionError(urllib3.exceptions.ProtocolError(ABORTED, FileNotFoundError(2, "No such file"))),
        "transient",
        "transient",
    ),
    (
        "the name does not resolve",
        requests.ConnectionError(
            urllib3.exceptions.MaxRetryError(
                None,  # type: ignore[arg-type]
                "/version",
                urllib3.exceptions.NameResolutionError("gpu-07", None, OSError("no such name")),  # type: ignore[arg-type]
            )
        ),
        "transient",
        "transient",
    ),
    ("connecting took too long", requests.ConnectTimeout("connect"), "transient", "transient"),
    ("no answer came in time", requests.ReadTimeout("read"), "transient", "unknown_effect"),
    (
        "the connection broke off after sending",
        requests.ConnectionError(urllib3.exceptions.ProtocolError(ABORTED, ConnectionResetError(104, "reset"))),
        "transient",
        "unknown_effect",
    ),
    (
        "the engine hung up without a word",
        requests.ConnectionError(urllib3.exceptions.ProtocolError(ABORTED, EOFError("closed"))),
        "transient",
        "unknown_effect",
    ),
    ("the answer broke off", requests.exceptions.ChunkedEncodingError("cut"), "transient", "unknown_effect"),
    (
        "the certificate does not fit",
        requests.exceptions.SSLError(urllib3.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED")),
        "unreachable",
        "unreachable",
    ),
    ("a certificate file is absent", docker.errors.TLSParameterError("no file"), "unreachable", "unreachable"),
    ("the ssh key is not taken", paramiko.AuthenticationException("no"), "access_denied", "access_denied"),
    ("the ssh connection broke off", paramiko.SSHException("gone"), "transient", "transient"),
    ("400", api_error(400), "invalid_target", "invalid_target"),
    ("401", api_error(401), "access_denied", "access_denied"),
    ("403", api_error(403), "access_denied", "access_denied"),
    ("404", api_error(404), "target_not_found", "target_not_found"),
    ("408 of a proxy", api_error(408), "transient", "unknown_effect"),
    ("409", api_error(409), "conflict", "conflict"),
    ("429", api_error(429), "transient", "transient"),
    ("500", api_error(500), "transient", "unknown_effect"),
    ("500 for a short id that several have", api_error(500, SEVERAL), "target_not_found", "target_not_found"),
    ("501", api_error(501), "invalid_target", "invalid_target"),
    ("502 of a proxy", api_error(502), "transient", "unknown_effect"),
    ("503", api_error(503), "transient", "unknown_effect"),
    ("504 of a proxy", api_error(504), "transient", "unknown_effect"),
    ("a redirect, which no engine sends", api_error(307), "unreachable", "unreachable"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "look", "act"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_mapped_when_the_vendor_raises_then_a_look_and_an_act_end_as_the_table_says(
    error: Exception, look: str, act: str
) -> None:
    host = DockerHost(name="gpu-07", url="unix:///x")
    reasons = []
    for is_act in (False, True):
        with pytest.raises(errors.ActionError) as caught, dockerd._mapped(host, "restart", is_act=is_act):
            raise error
        reasons.append(caught.value.reason.value)
        assert caught.value.__cause__ is error
    assert reasons == [look, act]


def test_mapped_when_the_exception_is_nobodys_then_it_goes_on_as_a_bug() -> None:
    assert classify(ZeroDivisionError()) is None
    with pytest.raises(ZeroDivisionError), dockerd._mapped(DockerHost(name="h", url="unix:///x"), "restart"):
        raise ZeroDivisionError


def test_mapped_when_the_vendor_says_a_lot_then_it_is_cut_in_one_line_and_holds_no_secret() -> None:
    text = "cannot start\n with DB_PASSWORD=hunter2 and https://user:hunter2@host/ api_key: hunter2 " + "x" * 5_000
    with pytest.raises(errors.ActionError) as caught, dockerd._mapped(DockerHost(name="h", url="unix:///x"), "restart"):
        raise api_error(409, text)
    said = str(caught.value)
    assert (len(said) < 500, "\n" in said, "hunter2" in said) == (True, False, False)


def test_statuses_when_an_act_may_have_happened_then_it_is_never_transient() -> None:
    assert {status for status, failed in STATUSES.items() if failed is Failed.NO_ANSWER} >= {500, 502, 503, 504}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"1 2 8:1 /var/lib/docker/containers/{'a' * 64}/hostname /etc/hostname rw - ext4 /dev/sda1 rw", "a" * 64),
        (f"1 2 8:1 /containers/storage/overlay-containers/{'b' * 64}/userdata/hosts /etc/hosts rw - x y rw", "b" * 64),
        (f"1 2 0:5 / /var/lib/docker/containers/{'c' * 64}/mounts/shm rw - tmpfs shm rw", ""),
        ("1 2 8:1 / / rw - ext4 /dev/sda1 rw", ""),
    ],
    ids=["in a Docker container", "in a Podman container", "on a host with containers", "on a host"],
)
def test_own_container_id_when_read_from_the_mounts_then_it_is_found_only_inside(
    line: str, expected: str, tmp_path: Path
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"{line}\n")
    assert own_container_id(mountinfo) == expected


def test_own_container_id_when_there_is_no_proc_then_none(tmp_path: Path) -> None:
    assert own_container_id(tmp_path / "absent") == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T08:37:43.173327405Z", "2026-11-30T08:37:43.173327405Z"),
        ("2026-11-30T08:37:43.1Z", "2026-11-30T08:37:43.100000000Z"),
        ("2026-11-30T08:37:43Z", "2026-11-30T08:37:43.000000000Z"),
        ("2026-11-30T09:37:43.12+01:00", "2026-11-30T08:37:43.120000000Z"),
        ("0001-01-01T00:00:00Z", ""),
    ],
)
def test_moment_when_the_engine_writes_a_time_then_text_order_is_time_order(text: str, expected: str) -> None:
    assert dockerd._moment(text) == expected


def test_bundles_when_a_host_is_not_configured_then_the_error_names_those_that_are() -> None:
    readers = {"gpu-01": dockerd.Dockerd(DockerHost(name="gpu-01", url="unix:///x"))}
    for bundle in (ReadOnlyClients(dockers=readers), Clients(dockers=readers, notifier=None)):  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidTargetError, match=r"'gpu-99'.*configured: gpu-01") as caught:
            bundle.docker("gpu-99")
        assert caught.value.reason is errors.Reason.UNKNOWN_HOST
