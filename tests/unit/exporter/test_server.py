"""The exporter's pages, called as uvicorn calls them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Hashable
from typing import Any

import pytest

from remediator.clients.ports import GpuDriver
from remediator.exporter.sampler import Sampler
from remediator.exporter.server import Pages
from remediator.exporter.snapshot import Snapshot

UP = Snapshot(hostname="gpu-07", driver=GpuDriver(driver_version="580.95.05", nvml_version="13"))
AWAY = Snapshot(hostname="gpu-07", driver=None, problem="the driver has not answered for 20 s")


class FixedSampler(Sampler):
    """Knows one snapshot, and keeps who scraped."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._fixed = snapshot
        self.scrapers: list[Hashable] = []

    def snapshot(self) -> Snapshot:
        return self._fixed

    @property
    def problem(self) -> str:
        return self._fixed.problem

    def scraped(self, scraper: Hashable) -> None:
        self.scrapers.append(scraper)


def ask(
    path: str, *, method: str = "GET", snapshot: Snapshot = UP, sampler: FixedSampler | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one call."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "path": path,
        "method": method,
        "client": ("10.0.0.1", 40000),
        "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    asyncio.run(Pages(sampler or FixedSampler(snapshot))(scope, None, send))
    start, body = sent
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"]


PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "content_type", "ends"),
    [
        pytest.param("", PLAIN, "", id="nothing asked for"),
        pytest.param("*/*", PLAIN, "", id="curl"),
        pytest.param(
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "# EOF\n",
            id="Prometheus",
        ),
        pytest.param("application/openmetrics-text;version=\xe9", PLAIN, "", id="a version that is no number"),
        pytest.param("\xff\xfe", PLAIN, "", id="bytes that are no text"),
    ],
)
def test_metrics_when_asked_for_in_a_format_then_given_in_it(accept: str, content_type: str, ends: str) -> None:
    status, headers, body = ask("/metrics", accept=accept)

    assert status == 200
    assert headers["content-type"].startswith(content_type)
    assert body.decode().endswith(ends)
    assert b'remediator_gpu_driver_up{hostname="gpu-07"} 1.0' in body
    assert b"process_cpu_seconds_total" in body


@pytest.mark.parametrize(
    ("accepts", "is_packed"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("GZIP", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("", False),
    ],
)
def test_metrics_when_gzip_is_taken_then_packed(accepts: str, is_packed: bool) -> None:
    _, headers, body = ask("/metrics", accept_encoding=accepts)

    assert headers.get("content-encoding") == ("gzip" if is_packed else None)
    assert b"remediator_gpu_driver_up" in (gzip.decompress(body) if is_packed else body)
    assert headers["content-length"] == str(len(body))


def test_metrics_when_scraped_then_the_sampler_hears_from_which_connection() -> None:
    sampler = FixedSampler(UP)

    ask("/metrics", sampler=sampler)
    ask("/healthz", sampler=sampler)

    assert sampler.scrapers == [("10.0.0.1", 40000)]


@pytest.mark.parametrize(
    ("method", "path", "snapshot", "status", "says"),
    [
        pytest.param("GET", "/healthz", AWAY, 200, "ok", id="it lives, whatever the driver does"),
        pytest.param("GET", "/readyz", UP, 200, "ready", id="the driver answers"),
        pytest.param("GET", "/readyz", AWAY, 503, "has not answered for 20 s", id="the driver does not"),
        pytest.param("HEAD", "/metrics", UP, 200, "", id="a look at the head"),
        pytest.param("GET", "/", UP, 200, "/metrics", id="a person"),
        pytest.param("GET", "/metrics/", UP, 404, "there is /metrics", id="a page that is not there"),
        pytest.param("POST", "/metrics", UP, 405, "only GET", id="something sent"),
    ],
)
def test_page_when_asked_then_answers(method: str, path: str, snapshot: Snapshot, status: int, says: str) -> None:
    answered, _, body = ask(path, method=method, snapshot=snapshot)

    assert answered == status
    assert says in body.decode()
