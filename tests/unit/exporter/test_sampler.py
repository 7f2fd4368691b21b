"""Sampling a driver that hangs, loses GPUs, moves and cuts them, or is not there: on a clock that is moved by hand."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from remediator.clients.ports import GpuDevice, GpuDriver, GpuProcess, GpuReading
from remediator.errors import GpuDriverError, GpuLostError
from remediator.exporter.sampler import Sampler, started_at
from remediator.exporter.snapshot import GpuSample
from remediator.exporter.workload import NOBODY, Workload, Workloads

INTERVAL_S = 5.0

MIB = 1024 * 1024


@dataclass
class Clock:
    """Stands still until it is moved."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Driver:
    """A driver that does as it is told.

    Attributes:
        devices_now: what it lists; None = it does not answer.
        says: by UUID or MIG UUID, what it answers or raises.
        hung: UUIDs, or "list", whose calls return only once their event is set.
        n_reads: calls that were begun, by UUID.
    """

    devices_now: list[GpuDevice] | None = None
    says: dict[str, GpuReading | Exception] = field(default_factory=dict)
    hung: dict[str, threading.Event] = field(default_factory=dict)
    n_reads: Counter[str] = field(default_factory=Counter)

    def driver(self) -> GpuDriver:
        if self.devices_now is None:
            raise GpuDriverError("libnvidia-ml.so.1 is not here", is_absent=True)
        return GpuDriver(driver_version="580.95.05", nvml_version="13.580.95.05")

    def devices(self) -> tuple[GpuDevice, ...]:
        self.n_reads["list"] += 1
        self._wait("list")
        return tuple(self.devices_now or ())

    def read(self, device: GpuDevice) -> GpuReading:
        key = device.mig_uuid or device.uuid
        self.n_reads[key] += 1
        self._wait(key)
        answer = self.says.get(key, GpuReading(utilization_ratio=0.5))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait(self, key: str) -> None:
        if key in self.hung:
            self.hung[key].wait()


class NamedWorkloads(Workloads):
    """Every process is in a container that bears its pid."""

    def __init__(self) -> None:
        super().__init__(None)

    def of(self, pid: int) -> Workload:
        return replace(NOBODY, container_name=f"trainer-{pid}")


def gpu(index: int, uuid: str = "", **rest: object) -> GpuDevice:
    return replace(GpuDevice(index=index, uuid=uuid or f"GPU-{index}", name="NVIDIA H100 80GB HBM3"), **rest)  # type: ignore[arg-type]


def mig(index: int, mig_id: str, profile: str = "1g.10gb") -> GpuDevice:
    return gpu(index, mig_uuid=f"MIG-{index}-{mig_id}", mig_id=mig_id, mig_profile=profile)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """For other threads' turn; a machine that stands still for seconds is given them."""
    ends_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends_s, f"not so: {what}"
        time.sleep(0.0005)


@dataclass
class Bench:
    """A sampler that samples when it is told to."""

    sampler: Sampler
    driver: Driver
    clock: Clock
    proc: Path

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Let it sample until this holds, on a clock that stands still."""

        def look() -> bool:
            self.sampler.tick()
            return holds()

        wait_until(look, what)

    def until_up(self, *uuids: str) -> None:
        self.until(lambda: self.up() == set(uuids), f"up: {uuids}, and is {self.up()}")

    def hang(self, *keys: str) -> None:
        """Their calls hang from now on, and have begun to."""
        before = Counter(self.driver.n_reads)
        self.driver.hung |= {key: threading.Event() for key in keys}
        self.until(lambda: all(self.driver.n_reads[key] > before[key] for key in keys), "they hang")

    def pass_intervals(self, n: int) -> None:
        """Time goes on, and it samples as often as it would."""
        for _ in range(n):
            self.clock.now_s += INTERVAL_S
            self.until(self._is_sampled, "sampled now")

    def _is_sampled(self) -> bool:
        """All that can answer has, at this very moment; what raises has been asked."""
        answers = {key for key in self.wanted() - {*self.driver.hung} if key not in self.raising()}
        return all(self.samples()[key].age_s == 0 for key in answers if key in self.samples())

    def raising(self) -> set[str]:
        return {key for key, each in self.driver.says.items() if isinstance(each, Exception)}

    def wanted(self) -> set[str]:
        return {each.mig_uuid or each.uuid for each in self.driver.devices_now or ()}

    def samples(self) -> dict[str, GpuSample]:
        return {each.device.mig_uuid or each.device.uuid: each for each in self.sampler.snapshot().gpus}

    def up(self) -> set[str]:
        return {key for key, each in self.samples().items() if each.reading is not None}

    def down(self) -> set[str]:
        return {key for key, each in self.samples().items() if each.reading is None}

    def run_process(self, pid: int, began: int) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        stat = f"{pid} (a name) with ) in it) S " + " ".join(["0"] * 18) + f" {began} 0 0\n"
        (self.proc / str(pid) / "stat").write_text(stat)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    clock, driver = Clock(), Driver(devices_now=[gpu(0), gpu(1)])
    sampler = Sampler(driver, NamedWorkloads(), hostname="gpu-07", interval_s=INTERVAL_S, proc=tmp_path, clock=clock)
    yield Bench(sampler=sampler, driver=driver, clock=clock, proc=tmp_path)
    for each in driver.hung.values():
        each.set()
    sampler.stop()


def test_snapshot_when_gpus_answer_then_has_what_they_said_and_how_old_it_is(bench: Bench) -> None:
    bench.driver.says["GPU-1"] = GpuReading(temperature_c=71)
    bench.until_up("GPU-0", "GPU-1")

    bench.clock.now_s += 2.5
    snapshot = bench.sampler.snapshot()

    assert snapshot.hostname == "gpu-07"
    assert snapshot.driver == GpuDriver(driver_version="580.95.05", nvml_version="13.580.95.05")
    assert snapshot.problem == ""
    assert [(each.device.index, each.age_s) for each in snapshot.gpus] == [(0, 2.5), (1, 2.5)]
    assert snapshot.gpus[1].reading == GpuReading(temperature_c=71)


def test_snapshot_when_nothing_was_asked_yet_then_knows_no_gpu_and_says_so(bench: Bench) -> None:
    snapshot = bench.sampler.snapshot()

    assert (snapshot.driver, snapshot.gpus) == (None, ())
    assert snapshot.problem == "the driver has not answered yet"
    assert not bench.sampler.is_settled


def test_gpu_when_its_call_hangs_then_it_alone_is_down_after_three_intervals(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.hang("GPU-0")

    bench.pass_intervals(3)
    within = bench.up()
    bench.pass_intervals(1)

    assert within == {"GPU-0", "GPU-1"}
    assert (bench.up(), bench.down()) == ({"GPU-1"}, {"GPU-0"})
    assert bench.samples()["GPU-0"].age_s == 4 * INTERVAL_S


def test_gpu_when_its_call_hangs_for_ever_then_no_second_thread_is_made_for_it(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.hang("GPU-0")
    bench.pass_intervals(2)
    n_threads, n_reads = threading.active_count(), bench.driver.n_reads["GPU-0"]

    bench.pass_intervals(20)

    assert threading.active_count() == n_threads
    assert bench.driver.n_reads["GPU-0"] == n_reads


def test_gpu_when_its_call_hung_and_returns_then_it_is_up_again(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.hang("GPU-0")
    bench.pass_intervals(5)

    bench.driver.hung.pop("GPU-0").set()

    bench.until_up("GPU-0", "GPU-1")


def test_gpu_when_its_call_hangs_then_is_said_once_and_its_end_too(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.hang("GPU-0")

    with capture_logs() as logs:
        bench.pass_intervals(10)
        bench.driver.hung.pop("GPU-0").set()
        bench.until_up("GPU-0", "GPU-1")
        bench.pass_intervals(2)

    assert [(each["event"], each["uuid"]) for each in logs] == [
        ("a GPU gives no metrics", "GPU-0"),
        ("a GPU gives metrics again", "GPU-0"),
    ]
    assert "no answer for" in logs[0]["problem"]
    assert "hangs" in logs[0]["problem"]


def test_gpu_when_it_hangs_from_the_first_call_on_then_is_shown_as_down_after_three_intervals(bench: Bench) -> None:
    bench.driver.hung["GPU-0"] = threading.Event()
    bench.until_up("GPU-1")
    at_first = bench.down()

    bench.pass_intervals(4)

    assert at_first == set()
    assert bench.down() == {"GPU-0"}
    assert bench.sampler.is_settled


def test_gpu_when_it_says_that_it_is_lost_then_is_down_at_once(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")

    bench.driver.says["GPU-0"] = GpuLostError("GPU 0 fell off the bus")

    bench.until_up("GPU-1")
    assert bench.down() == {"GPU-0"}


def test_gpu_when_the_driver_lists_it_no_more_then_stays_as_down_and_others_move_up(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")

    bench.driver.devices_now = [gpu(0, "GPU-1")]
    bench.until_up("GPU-1")
    n_reads = bench.driver.n_reads["GPU-0"]
    bench.pass_intervals(50)

    assert bench.down() == {"GPU-0"}
    assert bench.samples()["GPU-1"].device.index == 0
    assert bench.driver.n_reads["GPU-0"] <= n_reads + 1


def test_gpu_when_it_is_listed_again_then_is_up_in_the_thread_that_it_had(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.driver.devices_now = [gpu(0, "GPU-1")]
    bench.until_up("GPU-1")
    n_threads = threading.active_count()

    bench.driver.devices_now = [gpu(0), gpu(1)]

    bench.until_up("GPU-0", "GPU-1")
    assert threading.active_count() == n_threads


def test_gpu_when_a_new_one_comes_then_is_sampled(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")

    bench.driver.devices_now = [gpu(0), gpu(1), gpu(2)]

    bench.until_up("GPU-0", "GPU-1", "GPU-2")


def test_gpu_when_the_driver_fails_for_a_moment_then_its_last_answer_holds_until_it_is_too_old(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.driver.says["GPU-0"] = GpuDriverError("not now")

    bench.pass_intervals(3)
    within = bench.up()
    bench.pass_intervals(1)

    assert within == {"GPU-0", "GPU-1"}
    assert bench.down() == {"GPU-0"}


def test_gpu_when_reading_it_meets_a_bug_then_others_go_on_and_it_comes_back(bench: Bench) -> None:
    bench.driver.says["GPU-0"] = ZeroDivisionError("a bug")
    with capture_logs() as logs:
        bench.until_up("GPU-1")
        bench.pass_intervals(5)

    del bench.driver.says["GPU-0"]
    bench.until_up("GPU-0", "GPU-1")

    assert [each["event"] for each in logs].count("an error that nobody foresaw") == 1


def test_mig_when_a_gpu_is_cut_anew_then_its_old_instances_are_gone_and_the_new_are_there(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.driver.devices_now = [gpu(0, is_mig_enabled=True), mig(0, "7"), mig(0, "11")]
    bench.until_up("GPU-0", "MIG-0-7", "MIG-0-11")
    in_order = [each.device.mig_id for each in bench.sampler.snapshot().gpus]

    bench.driver.devices_now = [gpu(0, is_mig_enabled=True), mig(0, "3", "3g.40gb")]
    bench.until_up("GPU-0", "MIG-0-3")

    assert in_order == ["", "7", "11", ""]
    assert bench.down() == {"GPU-1"}  # which is gone: instances that nobody made again are not lost


def test_mig_when_an_instance_is_made_after_hours_then_is_not_shown_as_down_before_it_was_asked(bench: Bench) -> None:
    bench.driver.devices_now = [gpu(0, is_mig_enabled=True), mig(0, "7")]
    bench.until_up("GPU-0", "MIG-0-7")
    bench.driver.devices_now = [gpu(0, is_mig_enabled=True)]
    bench.until_up("GPU-0")
    bench.pass_intervals(1000)

    bench.driver.devices_now = [gpu(0, is_mig_enabled=True), mig(0, "7")]
    bench.hang("MIG-0-7")
    at_first = bench.down()
    bench.clock.now_s += 3 * INTERVAL_S + 1
    silent = bench.samples()["MIG-0-7"]

    assert "MIG-0-7" not in at_first
    assert (silent.reading, silent.age_s) == (None, 3 * INTERVAL_S + 1)


def test_mig_when_its_gpu_is_gone_then_gpu_and_instances_are_down(bench: Bench) -> None:
    bench.driver.devices_now = [gpu(0, is_mig_enabled=True), mig(0, "7")]
    bench.until_up("GPU-0", "MIG-0-7")

    bench.driver.devices_now = []

    bench.until_up()
    assert bench.down() == {"GPU-0", "MIG-0-7"}


def test_driver_when_it_comes_later_then_its_gpus_are_found(bench: Bench) -> None:
    bench.driver.devices_now = None
    bench.until(lambda: bench.sampler.is_settled, "it was asked")
    without = bench.sampler.snapshot()
    is_ready_without = not bench.sampler.problem

    bench.driver.devices_now = [gpu(0)]

    bench.until_up("GPU-0")
    assert (without.driver, without.gpus, without.problem) == (None, (), "libnvidia-ml.so.1 is not here")
    assert is_ready_without  # a host without GPUs is right to have no driver


def test_driver_when_it_goes_away_then_its_gpus_stay_as_down_and_come_back_with_it(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.driver.devices_now = None
    bench.driver.says |= {uuid: GpuDriverError("gone") for uuid in ("GPU-0", "GPU-1")}
    bench.until(lambda: bench.sampler.snapshot().driver is None, "the driver is away")
    bench.clock.now_s += 4 * INTERVAL_S
    away = bench.down()

    bench.driver.devices_now = [gpu(0), gpu(1)]
    bench.driver.says.clear()

    bench.until_up("GPU-0", "GPU-1")
    bench.until(lambda: bench.sampler.snapshot().problem == "", "the driver is back")
    assert away == {"GPU-0", "GPU-1"}


def test_driver_when_listing_alone_hangs_then_gpus_are_up_and_so_is_it(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.hang("list")

    with capture_logs() as logs:
        bench.pass_intervals(10)

    assert bench.up() == {"GPU-0", "GPU-1"}
    assert bench.sampler.snapshot().driver is not None
    assert [each["event"] for each in logs] == ["listing the GPUs hangs"]


def test_driver_when_everything_hangs_then_is_not_up_and_says_why(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    bench.hang("list", "GPU-0", "GPU-1")
    bench.pass_intervals(4)

    assert bench.sampler.snapshot().driver is None
    assert "has not answered for 20 s" in bench.sampler.problem


@pytest.mark.parametrize("had_driver", [True, False], ids=["from the first call on", "once there is a driver"])
def test_driver_when_nothing_could_ever_be_listed_for_a_call_hangs_then_says_so(bench: Bench, had_driver: bool) -> None:
    if not had_driver:
        bench.driver.devices_now = None
        bench.until(lambda: "libnvidia" in bench.sampler.snapshot().problem, "there is none")
    bench.driver.devices_now = []
    bench.hang("list")
    bench.clock.now_s += 3 * INTERVAL_S + 1

    assert bench.sampler.snapshot().driver is None
    assert "has not answered for 16 s: a call of the driver hangs" in bench.sampler.problem


def test_process_when_it_uses_memory_then_is_shown_with_what_it_belongs_to(bench: Bench) -> None:
    bench.driver.says["GPU-0"] = GpuReading(
        memory_free_bytes=1, processes=(GpuProcess(pid=11, used_bytes=5 * MIB), GpuProcess(pid=12, used_bytes=None))
    )
    bench.until_up("GPU-0", "GPU-1")

    processes = bench.samples()["GPU-0"].processes

    assert [(each.pid, each.used_bytes, each.workload.container_name) for each in processes] == [
        (11, 5 * MIB, "trainer-11"),
        (12, None, "trainer-12"),
    ]


def leak(bench: Bench, pid: int, *, from_mib: int, n_intervals: int, began: int) -> None:
    """A process that takes 4 MiB each interval."""
    bench.run_process(pid, began)
    for n in range(n_intervals):
        used = (from_mib + 4 * n) * MIB
        bench.driver.says["GPU-0"] = GpuReading(
            memory_free_bytes=100_000 * MIB - used, processes=(GpuProcess(pid=pid, used_bytes=used),)
        )
        bench.pass_intervals(1)


def test_growth_when_a_process_is_watched_for_long_then_is_told(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    leak(bench, 11, from_mib=10_000, n_intervals=400, began=7)

    bench.until(lambda: bench.samples()["GPU-0"].age_s == 0, "sampled")
    (process,) = bench.samples()["GPU-0"].processes

    assert process.growth is not None
    assert process.growth.bytes_per_second == pytest.approx(4 * MIB / INTERVAL_S, rel=0.1)


def test_growth_when_a_pid_is_used_again_then_begins_anew(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    leak(bench, 11, from_mib=10_000, n_intervals=400, began=7)

    bench.run_process(11, began=8)
    bench.pass_intervals(1)
    bench.until(lambda: bench.samples()["GPU-0"].age_s == 0, "sampled")
    (process,) = bench.samples()["GPU-0"].processes

    assert process.growth is None


def test_growth_when_the_driver_does_not_list_the_process_once_then_goes_on(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    leak(bench, 11, from_mib=10_000, n_intervals=400, began=7)
    listed = bench.driver.says["GPU-0"]

    bench.driver.says["GPU-0"] = GpuReading(processes=())
    bench.pass_intervals(1)
    bench.driver.says["GPU-0"] = listed
    bench.pass_intervals(1)
    bench.until(lambda: bool(bench.samples()["GPU-0"].processes), "listed again")
    (process,) = bench.samples()["GPU-0"].processes

    assert process.growth is not None


def test_growth_when_the_process_cannot_be_looked_at_for_a_while_then_goes_on(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    leak(bench, 11, from_mib=10_000, n_intervals=150, began=7)

    (bench.proc / "11" / "stat").unlink()  # or no descriptor is left to read it with
    bench.pass_intervals(5)
    (unseen,) = bench.samples()["GPU-0"].processes
    bench.run_process(11, began=7)
    bench.pass_intervals(1)
    (seen,) = bench.samples()["GPU-0"].processes

    assert unseen.growth is not None
    assert seen.growth is not None


def test_growth_when_processes_come_and_go_then_the_gone_are_forgotten(bench: Bench) -> None:
    bench.until_up("GPU-0", "GPU-1")
    for pid in range(100, 200):
        bench.driver.says["GPU-0"] = GpuReading(processes=(GpuProcess(pid=pid, used_bytes=MIB),))
        bench.pass_intervals(1)

    assert len(bench.sampler._gpus["GPU-0"].watches) < 10


def test_stop_when_a_call_hangs_then_waits_for_it_no_longer_than_a_second(bench: Bench) -> None:
    bench.driver.hung["GPU-0"] = threading.Event()
    bench.sampler.start()
    wait_until(lambda: bench.up() == {"GPU-1"}, "the other is up")
    others = {each.name for each in threading.enumerate()} - {"gpu-GPU-0"}

    bench.sampler.stop()

    left = {each.name for each in threading.enumerate() if each.name.startswith("gpu-")}
    assert left <= {"gpu-GPU-0"}
    assert {"gpu-GPU-1", "gpu-list", "gpu-timer"} <= others


def test_start_when_somebody_scrapes_steadily_then_samples_go_on_by_themselves(tmp_path: Path) -> None:
    driver = Driver(devices_now=[gpu(0)])
    sampler = Sampler(driver, NamedWorkloads(), hostname="gpu-07", interval_s=0.02, proc=tmp_path)
    sampler.start()
    try:
        wait_until(lambda: driver.n_reads["GPU-0"] >= 3, "three samples")
        sampler.scraped("prometheus")
        n_reads = driver.n_reads["GPU-0"]
        wait_until(lambda: driver.n_reads["GPU-0"] >= n_reads + 3, "three more")
    finally:
        sampler.stop()


def test_started_at_when_the_process_is_this_one_then_is_a_number_and_else_empty() -> None:
    assert started_at(Path("/proc"), threading.get_native_id()).isdecimal()
    assert started_at(Path("/proc"), 2**22 + 1) == ""
