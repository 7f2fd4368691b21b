"""Asks the driver of this host on a schedule and keeps its newest answers.

In the flow: ``GpuReader`` and ``Workloads`` → here → ``Snapshot`` → ``collect``.

A driver call may hang for minutes, or for ever, and nobody can end it. So each physical GPU is read by a thread of its
own, with its MIG instances; another lists which GPUs there are; one more says when, and never calls the driver. What
hangs holds up its own GPU alone. There is never a second thread for a GPU whose first one hangs.

Must never: call the driver on behalf of a scrape, give an old value as one of now, or forget a GPU that was there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from remediator.clients.ports import GpuDevice, GpuDriver, GpuReader, GpuReading
from remediator.errors import GpuDriverError, GpuLostError
from remediator.exporter.leak import GrowthWatch
from remediator.exporter.rhythm import Rhythm
from remediator.exporter.snapshot import GpuSample, ProcessSample, Snapshot
from remediator.exporter.spread import RecentMean
from remediator.exporter.workload import Workloads
from remediator.telemetry import get_logger

_log = get_logger(__name__)

STALE_INTERVALS: Final = 3
"""An answer older than this is none: two may be missed, as Prometheus forgives a missed scrape or two."""

_HANGS: Final = (
    "a call of the driver hangs, and only the driver can end it. Look for Xids in the kernel log (dmesg); if it stays"
    " so, the GPU or this host needs a reset"
)

_STOP_S: Final = 1.0
"""A thread that works ends in milliseconds; one that hangs is left behind, and ends with the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What one device said last.

    Attributes:
        at_s: when it was asked; of the last good answer, where this one was that it is lost.
        reading: None: it is lost.
    """

    at_s: float
    reading: GpuReading | None
    processes: tuple[ProcessSample, ...] = ()
    utilization_mean_ratio: float | None = None


@dataclass(slots=True)
class _Watched:
    """One process on one device.

    Attributes:
        began: see ``started_at``: a pid that is used again is another process.
    """

    began: str
    seen_s: float
    watch: GrowthWatch = field(default_factory=GrowthWatch)


_Process = tuple[str, int]
"""MIG instance ("" for a physical GPU), and pid."""


@dataclass(slots=True)
class _Gpu:
    """One physical GPU. Its own thread alone writes what it answers, the listing thread whether and how it is listed.

    Attributes:
        devices: itself and then its MIG instances, as last listed.
        listed_s: when each was first listed, by MIG instance.
        is_listed: the driver knows it now.
        thread: reads it.
        answers, means: by MIG instance, "" for itself.
        trouble: what went wrong when it was last read, "" = nothing.
        is_told: that it gives no metrics is in the log.
    """

    devices: tuple[GpuDevice, ...]
    listed_s: dict[str, float]
    is_listed: bool = True
    thread: _Thread = field(init=False)
    answers: dict[str, _Answer] = field(default_factory=dict)
    means: dict[str, RecentMean] = field(default_factory=dict)
    watches: dict[_Process, _Watched] = field(default_factory=dict)
    trouble: str = ""
    is_told: bool = False


class Sampler:
    """The newest answers of this host's GPUs."""

    def __init__(
        self,
        reader: GpuReader,
        workloads: Workloads,
        *,
        hostname: str,
        interval_s: float,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            hostname: the label ``hostname``.
            interval_s: seconds between two samples, at least 1; see ``Rhythm``.
            proc: where the host's processes are seen.
            clock: seconds, never backwards.
        """
        self._reader = reader
        self._workloads = workloads
        self._hostname = hostname
        self._interval_s = interval_s
        self._stale_s = STALE_INTERVALS * interval_s
        self._proc = proc
        self._clock = clock
        self._rhythm = Rhythm(interval_s)
        self._gpus: Mapping[str, _Gpu] = {}  # replaced whole by the listing thread, never changed
        self._driver: GpuDriver | None = None
        self._driver_s = clock()
        self._problem = "the driver has not answered yet"
        self._is_absent = False
        self._has_listed = False
        self._is_over = False
        self._changed = threading.Condition()
        self._lister = _Thread("gpu-list", self._list, clock)
        self._is_lister_told = False
        self._timer = threading.Thread(target=self._keep_time, name="gpu-timer", daemon=True)

    # -- its life

    def start(self) -> None:
        """Begin to sample."""
        self._timer.start()

    def stop(self) -> None:
        """End, and wait for no call that hangs."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._timer.ident is not None:
            self._timer.join()
        threads = [self._lister, *(gpu.thread for gpu in self._gpus.values())]
        for each in threads:
            each.end()
        ends_s = time.monotonic() + _STOP_S
        for each in threads:
            each.join(max(0.0, ends_s - time.monotonic()))

    def scraped(self, scraper: Hashable) -> None:
        """Somebody scrapes now: the next sample may be taken just before he comes again.

        Args:
            scraper: see ``Rhythm.scraped``.
        """
        with self._changed:
            self._rhythm.scraped(scraper, self._clock())
            self._changed.notify()

    def _keep_time(self) -> None:
        last_s = self._clock()
        while True:
            self.tick()
            with self._changed:
                while not self._is_over and (wait_s := self._rhythm.next_s(last_s) - self._clock()) > 0:
                    self._changed.wait(wait_s)
                if self._is_over:
                    return
                due_s, now_s = self._rhythm.next_s(last_s), self._clock()
            # From due time to due time, so that nothing drifts; after a standstill nothing is made up for.
            last_s = due_s if now_s - due_s < self._interval_s else now_s

    def tick(self) -> None:
        """Let everything be asked now that is not being asked already. Waits for nothing."""
        self._lister.ask()
        self._tell_of_lister()
        for uuid, gpu in self._gpus.items():
            gpu.thread.ask()
            self._tell_of(uuid, gpu)

    # -- what is known

    @property
    def is_settled(self) -> bool:
        """The driver was asked what there is, and every GPU has answered or had its time for it."""
        return self._has_listed and all(
            "" in gpu.answers or gpu.trouble or not gpu.is_listed or self._clock() - gpu.listed_s[""] > self._stale_s
            for gpu in self._gpus.values()
        )

    @property
    def problem(self) -> str:
        """Why this host's GPUs cannot be seen, for people; "" when they can, and where there is no driver at all."""
        problem = self.snapshot().problem
        return "" if self._is_absent and problem == self._problem else problem

    def snapshot(self) -> Snapshot:
        """What is known now. Takes microseconds, whatever the driver does.

        Returns:
            GPUs in any order; lost ones too. One that was listed a moment ago and is being asked for the first time
            is not among them.
        """
        now_s = self._clock()
        samples: list[GpuSample] = []
        heard_s = self._driver_s
        for gpu in self._gpus.values():
            for device in gpu.devices:
                answer = gpu.answers.get(device.mig_uuid)
                if answer is not None and answer.reading is not None:
                    heard_s = max(heard_s, answer.at_s)
                if (sample := self._sample(gpu, device, answer, now_s)) is not None:
                    samples.append(sample)
        driver, problem = self._driver, self._problem
        silent_s = self._lister.busy_s(now_s) if driver is None else now_s - heard_s
        if silent_s > self._stale_s:
            driver, problem = None, f"the driver has not answered for {silent_s:.0f} s: {_HANGS}"
        return Snapshot(
            hostname=self._hostname,
            driver=driver,
            problem=problem,
            gpus=tuple(samples),
        )

    def _sample(self, gpu: _Gpu, device: GpuDevice, answer: _Answer | None, now_s: float) -> GpuSample | None:
        if answer is None:
            age_s = now_s - gpu.listed_s.get(device.mig_uuid, now_s)  # the two are replaced one after the other
            if gpu.is_listed and not gpu.trouble and age_s <= self._stale_s:
                return None
            return GpuSample(device=device, age_s=age_s, reading=None)
        age_s = now_s - answer.at_s
        if answer.reading is None or not gpu.is_listed or age_s > self._stale_s:
            return GpuSample(device=device, age_s=age_s, reading=None)
        return GpuSample(
            device=device,
            age_s=age_s,
            reading=answer.reading,
            utilization_mean_ratio=answer.utilization_mean_ratio,
            processes=answer.processes,
        )

    def _tell_of_lister(self) -> None:
        """Log once that it hangs, and once that it does not any more."""
        hangs_s = self._lister.busy_s(self._clock())
        if (hangs_s > self._stale_s) is self._is_lister_told:
            return
        self._is_lister_told = not self._is_lister_told
        if self._is_lister_told:
            _log.warning("listing the GPUs hangs", seconds=round(hangs_s), problem=_HANGS)
        else:
            _log.info("the GPUs are listed again")

    def _tell_of(self, uuid: str, gpu: _Gpu) -> None:
        """Log once when a GPU gives nothing any more, and once when it does again."""
        now_s = self._clock()
        answer = gpu.answers.get("")
        is_fresh = answer is not None and answer.reading is not None and now_s - answer.at_s <= self._stale_s
        if gpu.is_listed and is_fresh:
            if gpu.is_told:
                gpu.is_told = False
                _log.info("a GPU gives metrics again", uuid=uuid, gpu=gpu.devices[0].index)
            return
        if not gpu.is_listed:
            problem = "the driver does not list it any more: it fell off the bus, is being reset, or was taken out"
        elif (hangs_s := gpu.thread.busy_s(now_s)) > self._interval_s:
            problem = f"no answer for {hangs_s:.0f} s: {_HANGS}"
        elif answer is not None and answer.reading is None:
            problem = gpu.trouble
        elif now_s - (answer.at_s if answer else gpu.listed_s[""]) > self._stale_s:
            problem = gpu.trouble or "the driver is slow to answer"
        else:
            return
        if not gpu.is_told:
            gpu.is_told = True
            _log.warning("a GPU gives no metrics", uuid=uuid, gpu=gpu.devices[0].index, problem=problem)

    # -- in the listing thread

    def _list(self) -> None:
        try:
            driver = self._reader.driver()
            devices = self._reader.devices()
        except GpuDriverError as error:
            if self._driver is not None or str(error) != self._problem:
                _log.warning("no GPU driver answers", problem=str(error), is_absent=error.is_absent)
            self._driver, self._problem, self._is_absent = None, str(error), error.is_absent
            self._has_listed = True
            return
        now_s = self._clock()
        groups: dict[str, list[GpuDevice]] = {}
        for device in devices:
            groups.setdefault(device.uuid, []).append(device)
        if self._driver != driver:
            _log.info(
                "the GPU driver answers", driver=driver.driver_version, nvml=driver.nvml_version, n_gpus=len(groups)
            )
        for uuid, group in groups.items():
            self._take(uuid, tuple(group), now_s)
        for uuid, gpu in self._gpus.items():
            gpu.is_listed = uuid in groups
        self._driver, self._problem, self._is_absent, self._driver_s = driver, "", False, now_s
        self._has_listed = True

    def _take(self, uuid: str, devices: tuple[GpuDevice, ...], now_s: float) -> None:
        gpu = self._gpus.get(uuid)
        was = gpu.listed_s if gpu else {}
        listed_s = {device.mig_uuid: was.get(device.mig_uuid, now_s) for device in devices}
        if gpu is not None:
            gpu.listed_s, gpu.devices = listed_s, devices
            return
        gpu = _Gpu(devices=devices, listed_s=listed_s)
        gpu.thread = _Thread(f"gpu-{uuid}", partial(self._read, gpu), self._clock)
        gpu.thread.ask()  # before it is known to the timer, which could start the thread at the same moment
        self._gpus = {**self._gpus, uuid: gpu}

    # -- in the thread of one GPU

    def _read(self, gpu: _Gpu) -> None:
        if not gpu.is_listed:
            return
        trouble = ""
        for device in gpu.devices:
            at_s = self._clock()
            try:
                reading = self._reader.read(device)
            except GpuLostError as error:
                trouble = trouble or str(error)
                last = gpu.answers.get(device.mig_uuid)
                gpu.answers[device.mig_uuid] = _Answer(
                    at_s=last.at_s if last else gpu.listed_s.get(device.mig_uuid, at_s), reading=None
                )
                self._lister.ask()
                continue
            except GpuDriverError as error:
                trouble = trouble or str(error)  # what it said before holds until it is too old
                continue
            gpu.answers[device.mig_uuid] = self._answer(gpu, device, reading, at_s)
        gpu.trouble = trouble
        self._forget(gpu)

    def _answer(self, gpu: _Gpu, device: GpuDevice, reading: GpuReading, at_s: float) -> _Answer:
        mean = gpu.means.setdefault(device.mig_uuid, RecentMean())
        if reading.utilization_ratio is not None:
            mean.add(at_s, reading.utilization_ratio)
        processes = []
        for process in reading.processes or ():
            growth = None
            if process.used_bytes is not None:
                watched = self._watched(gpu, (device.mig_uuid, process.pid), at_s)
                watched.watch.add(at_s, process.used_bytes)
                growth = watched.watch.growth(at_s, reading.memory_free_bytes)
            processes.append(
                ProcessSample(
                    pid=process.pid,
                    used_bytes=process.used_bytes,
                    workload=self._workloads.of(process.pid),
                    growth=growth,
                )
            )
        return _Answer(at_s=at_s, reading=reading, processes=tuple(processes), utilization_mean_ratio=mean.mean(at_s))

    def _watched(self, gpu: _Gpu, process: _Process, at_s: float) -> _Watched:
        """It is another process only where that is seen: one that cannot be looked at now is the one that was there."""
        began = started_at(self._proc, process[1])
        known = gpu.watches.get(process)
        if known is None or (began and known.began and began != known.began):
            known = gpu.watches[process] = _Watched(began, at_s)
        known.began, known.seen_s = began or known.began, at_s
        return known

    def _forget(self, gpu: _Gpu) -> None:
        """What is gone: MIG instances that are no more, and processes; those not at once, for drivers stutter."""
        now_s = self._clock()
        instances = {device.mig_uuid for device in gpu.devices}
        for mig_uuid in [each for each in gpu.answers if each not in instances]:
            gpu.answers.pop(mig_uuid)
            gpu.means.pop(mig_uuid, None)
        for key in [key for key, each in gpu.watches.items() if now_s - each.seen_s > self._stale_s]:
            del gpu.watches[key]


class _Thread:
    """Does one thing each time it is asked; asked while it is at it, it does not do it once more."""

    def __init__(self, name: str, job: Callable[[], None], clock: Callable[[], float]) -> None:
        self._job = job
        self._clock = clock
        self._is_asked = threading.Event()
        self._is_over = threading.Event()
        self._began_s: float | None = None
        self._problem = ""
        # A daemon: a call that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def ask(self) -> None:
        """Waits for nothing; the first call starts the thread."""
        self._is_asked.set()
        if self._thread.ident is None:
            self._thread.start()

    def end(self) -> None:
        """Once it has done what it is at, it does nothing more."""
        self._is_over.set()
        self._is_asked.set()

    def join(self, timeout_s: float) -> None:
        """Wait for its end, for so long."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def busy_s(self, now_s: float) -> float:
        """For how long it has been at it; 0 while it is not."""
        began_s = self._began_s
        return 0.0 if began_s is None else now_s - began_s

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._is_asked.wait()
            if self._is_over.is_set():
                return
            self._began_s = self._clock()
            try:
                self._job()
                self._problem = ""
            except Exception as error:  # noqa: BLE001  the top of a thread, which must go on
                if repr(error) != self._problem:  # not each few seconds
                    self._problem = repr(error)
                    _log.exception("an error that nobody foresaw", thread=self._thread.name)
            self._began_s = None
            self._is_asked.clear()


def started_at(proc: Path, pid: int) -> str:
    """When a process began, in the kernel's own count; "" where it cannot be seen.

    Source: proc(5), /proc/PID/stat, field 22.
    """
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return ""
    # The second field is the program's name in brackets, which may hold spaces and brackets.
    return stat.rpartition(b")")[2].split()[19].decode("ascii")
