"""The exporter's server on a real socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from certificates import make_certificates
from realparts.process import wait_until
from remediator.clients.nvml import Nvml
from remediator.errors import SettingsError
from remediator.exporter.sampler import Sampler
from remediator.exporter.server import Server
from remediator.exporter.workload import Workloads


@pytest.fixture
def sampler() -> Sampler:
    """Asks nothing: its server is what is looked at."""
    return Sampler(Nvml(), Workloads(None), hostname="gpu-07", interval_s=5)


def ask_over_tls(url: str, files: Path) -> tuple[int, str]:
    """Status and text; whoever kept the answer would keep its connection open."""
    certificate = (str(files / "client.pem"), str(files / "client.key"))
    with requests.get(url, verify=str(files / "ca.pem"), cert=certificate, timeout=30) as answer:
        return answer.status_code, answer.text


@contextmanager
def running(server: Server) -> Iterator[None]:
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield
    finally:
        wait_until(lambda: server._loop is not None, "it runs", 30)
        wait_until(lambda: not server._server.server_state.connections, "all have left", 30)
        server.stop()
        thread.join(30)
    assert not thread.is_alive()


def test_server_when_it_has_a_certificate_then_answers_over_https_who_shows_one_of_its_clients_ca(
    sampler: Sampler, tmp_path: Path
) -> None:
    files = make_certificates(tmp_path)
    server = Server(
        sampler,
        host="127.0.0.1",
        port=0,
        tls_cert=files / "server.pem",
        tls_key=files / "server.key",
        tls_client_ca=files / "ca.pem",
    )
    with running(server):
        status, text = ask_over_tls(f"{server.url}/metrics", files)

    assert server.url.startswith("https://127.0.0.1:")
    assert status == 200
    assert "remediator_gpu_driver_up" in text


def test_server_when_its_address_is_in_use_then_says_so_before_anything_starts(sampler: Sampler) -> None:
    server = Server(sampler, host="127.0.0.1", port=0)
    port = int(server.address.rpartition(":")[2])
    with (
        running(server),
        pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"),
    ):
        Server(sampler, host="127.0.0.1", port=port)


@pytest.mark.parametrize("host", ["gpu..07", "g" * 64])
def test_server_when_its_address_is_no_name_then_says_so(host: str, sampler: Sampler) -> None:
    with pytest.raises(SettingsError, match=f"cannot listen on {host}:0: that is no name of a host"):
        Server(sampler, host=host, port=0)


def test_server_when_it_listens_on_every_address_then_is_reached_by_ipv4_and_ipv6(sampler: Sampler) -> None:
    server = Server(sampler, host="", port=0)
    port = server.address.rpartition(":")[2]
    with running(server):
        statuses = [
            requests.get(f"http://{host}:{port}/healthz", timeout=30).status_code for host in ("127.0.0.1", "[::1]")
        ]

    assert statuses == [200, 200]
