"""The exporter's process on a driver without a GPU that loses, hangs, cuts and denies as a real one does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
import requests

from conftest_realparts import PrometheusFactory
from realparts.exporter import Exporter, Page
from realparts.nvml import GIB, FakeDriver, uuid_of
from realparts.process import wait_until

pytestmark = pytest.mark.nvml

LOAD_S = 30.0
"""For what takes a few seconds; a machine under load takes longer."""

ALL = range(8)


class ExporterFactory(Protocol):
    def __call__(self, driver: FakeDriver | None, *options: str) -> Exporter: ...


@pytest.fixture
def start_exporter(tmp_path: Path) -> Iterator[ExporterFactory]:
    """Exporters that sample each second, killed after the test."""
    started: list[Exporter] = []

    def start(driver: FakeDriver | None, *options: str) -> Exporter:
        exporter = Exporter(tmp_path / f"exporter-{len(started)}", driver, "--interval", "1s", *options)
        started.append(exporter)
        return exporter.start()

    yield start
    for exporter in started:
        exporter.kill()


def wait_for(exporter: Exporter, holds: Callable[[Page], bool], what: str) -> Page:
    """The first page that is so."""
    pages: list[Page] = []

    def look() -> bool:
        pages.append(exporter.page())
        return holds(pages[-1])

    wait_until(look, what, LOAD_S)
    return pages[-1]


def up(page: Page) -> set[int]:
    return {gpu for gpu in ALL if page.value("remediator_gpu_up", UUID=uuid_of(gpu), GPU_I_ID="") == 1}


def down(page: Page) -> set[int]:
    return {gpu for gpu in ALL if page.value("remediator_gpu_up", UUID=uuid_of(gpu), GPU_I_ID="") == 0}


def test_exporter_when_a_gpu_runs_hot_and_is_lost_and_comes_back_then_says_so_and_others_go_on(
    start_exporter: ExporterFactory, fake_driver: FakeDriver
) -> None:
    fake_driver.run(3, {os.getpid(): 70 * GIB})
    fake_driver.set(3, utilization=98, temperature=91, margin=-1, throttling=0x40)
    exporter = start_exporter(fake_driver)

    hot = wait_for(exporter, lambda page: up(page) == {*ALL}, "all are up")
    fake_driver.lose(3)
    lost = wait_for(exporter, lambda page: down(page) == {3}, "it is lost")
    fake_driver.restore(3)
    back = wait_for(exporter, lambda page: up(page) == {*ALL}, "it is back")

    of_it = {"UUID": uuid_of(3)}
    assert hot.value("remediator_gpu_temperature_celsius", **of_it) == 91
    assert hot.value("remediator_gpu_temperature_margin_celsius", **of_it) == -1
    assert hot.value("remediator_gpu_clocks_throttled", reason="hw_thermal_slowdown", **of_it) == 1
    assert hot.value("remediator_gpu_process_memory_used_bytes", pid=str(os.getpid())) == 70 * GIB
    assert hot.labels("remediator_gpu_driver_up") == [{"hostname": "gpu-07"}]
    assert lost.value("remediator_gpu_temperature_celsius", **of_it) is None
    assert up(lost) == {*ALL} - {3}
    assert back.value("remediator_gpu_temperature_celsius", **of_it) == 91


def threads_of(exporter: Exporter) -> list[Path]:
    return [*Path(f"/proc/{exporter.process.pid}/task").iterdir()]


def test_exporter_when_a_call_of_one_gpu_hangs_then_others_go_on_and_no_scrape_waits(
    start_exporter: ExporterFactory, fake_driver: FakeDriver
) -> None:
    exporter = start_exporter(fake_driver)
    wait_for(exporter, lambda page: up(page) == {*ALL}, "all are up")
    n_threads = len(threads_of(exporter))

    fake_driver.hang(2)
    hung = wait_for(exporter, lambda page: down(page) == {2}, "what hangs is down")
    began_s = time.monotonic()
    pages = [exporter.page() for _ in range(20)]
    took_s = time.monotonic() - began_s
    fresh = wait_for(
        exporter, lambda page: min(page.values("remediator_gpu_sample_age_seconds", UUID=uuid_of(0))) < 0.9, "sampled"
    )
    # The one that reads it hangs, and one that would name it; others are named within moments, again and again.
    wait_until(lambda: len(threads_of(exporter)) <= n_threads + 1, "no thread hangs for each call", LOAD_S)
    # Its page shows it at once, its log at the next tick: not at all, where the call has ended before.
    wait_until(lambda: "a GPU gives no metrics" in exporter.process.log.read_text(), "it is said", LOAD_S)
    fake_driver.release()
    wait_for(exporter, lambda page: up(page) == {*ALL}, "it is back")
    wait_until(lambda: "a GPU gives metrics again" in exporter.process.log.read_text(), "its end is said", LOAD_S)

    assert up(hung) == up(fresh) == {*ALL} - {2}
    assert hung.value("remediator_gpu_driver_up") == 1
    assert hung.value("remediator_gpu_power_watts", UUID=uuid_of(2)) is None
    assert all(up(page) == {*ALL} - {2} for page in pages)
    assert took_s < LOAD_S, "20 scrapes, each milliseconds"
    log = exporter.process.log.read_text()
    assert log.count("a GPU gives no metrics") == log.count("a GPU gives metrics again") == 1


def test_exporter_when_it_is_told_to_stop_while_calls_hang_then_it_ends_at_once(
    start_exporter: ExporterFactory, fake_driver: FakeDriver
) -> None:
    exporter = start_exporter(fake_driver)
    wait_for(exporter, lambda page: up(page) == {*ALL}, "all are up")
    fake_driver.hang(None)
    wait_for(exporter, lambda page: page.value("remediator_gpu_driver_up") == 0, "everything hangs")
    ready = requests.get(f"{exporter.url}/readyz", timeout=LOAD_S)
    child = exporter.process._child
    assert child is not None

    child.send_signal(signal.SIGTERM)

    assert child.wait(LOAD_S) == 0
    assert ready.status_code == 503
    assert "has not answered" in ready.text


def test_exporter_when_there_is_no_driver_then_says_so_and_stays_and_is_ready(
    start_exporter: ExporterFactory, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAKE_NVML")
    exporter = start_exporter(None)
    wait_until(lambda: requests.get(f"{exporter.url}/readyz", timeout=LOAD_S).status_code == 200, "ready", LOAD_S)

    page = exporter.page()

    assert page.value("remediator_gpu_driver_up") == 0
    assert page.value("remediator_gpu_devices") == 0
    assert page.values("remediator_gpu_up") == []
    assert "libnvidia-ml.so.1" in exporter.process.log.read_text()


def test_exporter_when_the_driver_is_loaded_later_then_finds_its_gpus(
    start_exporter: ExporterFactory, fake_driver: FakeDriver
) -> None:
    fake_driver.fail(None, 9)  # NVML_ERROR_DRIVER_NOT_LOADED
    exporter = start_exporter(fake_driver)
    wait_for(exporter, lambda page: page.value("remediator_gpu_driver_up") == 0, "there is none")

    fake_driver.fail(None, None)

    page = wait_for(exporter, lambda page: up(page) == {*ALL}, "all are up")
    assert page.value("remediator_gpu_driver_up") == 1


def test_exporter_when_gpus_are_cut_move_and_deny_then_shows_what_there_is(
    start_exporter: ExporterFactory, fake_driver: FakeDriver, find_tool: Callable[[str], Path]
) -> None:
    fake_driver.cut(0, {1: "3g.40gb", 2: "3g.40gb"})
    fake_driver.run(0, {os.getpid(): 5 * GIB}, mig=1)
    fake_driver.fail(4, 4)  # NVML_ERROR_NO_PERMISSION
    fake_driver.drop(6)
    exporter = start_exporter(fake_driver)

    page = wait_for(exporter, lambda page: {0, 1, 2, 3, 5, 7} <= up(page), "those that can be are up")

    instances = page.labels("remediator_gpu_memory_total_bytes")
    assert sorted(each["GPU_I_ID"] for each in instances if each["UUID"] == uuid_of(0)) == ["", "1", "2"]
    assert page.value("remediator_gpu_process_memory_used_bytes", GPU_I_ID="2") == 5 * GIB
    (moved,) = [each for each in page.labels("remediator_gpu_up") if each["UUID"] == uuid_of(7)]
    assert moved["gpu"] == "6"
    assert page.value("remediator_gpu_power_watts", UUID=uuid_of(4)) is None
    checked = subprocess.run(
        [find_tool("promtool"), "check", "metrics"], input=page.text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_scrape_when_50_clients_stall_then_is_answered(
    start_exporter: ExporterFactory, fake_driver: FakeDriver
) -> None:
    exporter = start_exporter(fake_driver)
    wait_for(exporter, lambda page: up(page) == {*ALL}, "all are up")
    whole = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with contextlib.ExitStack() as clients:
        for number in range(50):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", exporter.port), timeout=LOAD_S))
            if number % 2:
                client.sendall(whole[:20])
            else:  # asks, and takes nothing of the answer
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                client.sendall(whole)

        pages = [exporter.page() for _ in range(10)]

    assert all(up(page) == {*ALL} for page in pages)


@pytest.mark.alertmanager
def test_prometheus_when_it_scrapes_the_exporter_then_has_its_series(
    start_exporter: ExporterFactory,
    fake_driver: FakeDriver,
    prometheus_factory: PrometheusFactory,
) -> None:
    exporter = start_exporter(fake_driver)
    prometheus = prometheus_factory(
        rules={}, targets={"gpus": [f"127.0.0.1:{exporter.port}"]}, alertmanager_urls=[], interval="1s"
    )

    wait_until(lambda: prometheus.value("count(remediator_gpu_up == 1)") == 8, "its series are there", LOAD_S)


@pytest.mark.parametrize(
    ("has_driver", "code", "says"),
    [pytest.param(True, 0, "", id="GPUs"), pytest.param(False, 1, "there is no NVIDIA driver here", id="no driver")],
)
def test_once_when_asked_then_prints_the_metrics_and_ends_with_whether_there_is_a_gpu(
    has_driver: bool, code: int, says: str, fake_driver: FakeDriver
) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "FAKE_NVML"}
    ended = subprocess.run(
        [sys.executable, "-m", "remediator", "exporter", "--once", "--docker", "none"],
        capture_output=True,
        text=True,
        env=environ | (fake_driver.env if has_driver else {}),
        timeout=LOAD_S,
        check=False,
    )

    page = Page(ended.stdout)
    assert ended.returncode == code
    assert page.values("remediator_gpu_up") == ([1.0] * 8 if has_driver else [])
    assert page.value("remediator_gpu_driver_up") == has_driver
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
