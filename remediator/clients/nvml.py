"""The GPU driver of this machine over NVML: the adapter of ``ports.GpuReader``.

Takes a ``GpuDevice``, gives a ``GpuReading``, or raises what ``ports`` promises. The bindings (``nvidia-ml-py``,
imported as ``pynvml`` when the driver is first asked) bring a function per question and an exception per error code.

Drivers and GPUs differ in what they can say. So each question has ways to ask it, newest first, and each device
remembers which of them it does not support: a question that nobody answers here costs nothing from then on. What never
changes (the GPU's own limits) is asked once. Both are forgotten after ``FORGET_S``, so that a wrong answer given in a
bad moment is not kept for ever.

A driver that was unloaded, or a GPU that came back from a reset, needs a library that is started anew: ``driver`` and
``devices`` do so, ``read`` never does. No lock is held while the driver is asked: a call that hangs stops nobody else.

Must never change anything: only getters are called.

Source: NVML API reference R590, nvidia-ml-py 13.
"""

from __future__ import annotations

import functools
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from types import ModuleType
from typing import Any, Final, NoReturn

from remediator.clients.ports import GpuDevice, GpuDriver, GpuProcess, GpuReading, PowerLimits, ThrottleReason
from remediator.errors import GpuDriverError, GpuLostError

FORGET_S: Final = 600.0
"""How long it is remembered what a device does not support, and what its own limits are."""

RESTART_S: Final = 120.0
"""Between two starts of the library for the sake of a lost GPU: each opens every GPU anew, which takes seconds."""

NAME_S: Final = 8.0
"""For all GPUs to be named: milliseconds, or 5 s where they are opened for it. What takes longer hangs."""

START_S: Final = 10.0
"""How long a caller waits for a start that another thread has begun: 8 GPUs without persistence mode take 5 s."""


class Says(Enum):
    """What an error code says about the question."""

    UNSUPPORTED = auto()
    """This device or driver never answers it in this way."""
    DENIED = auto()
    """We may not ask it."""
    NOT_NOW = auto()
    """No answer this time; the next may come."""
    LOST = auto()
    """The GPU cannot be used until somebody mends it."""
    DRIVER = auto()
    """The driver as a whole does not answer; the library has to be started anew."""
    ABSENT = auto()
    """There is no driver."""


ERRORS: Final[Mapping[str, Says]] = {
    "UNINITIALIZED": Says.DRIVER,
    # Also said of a handle from before a restart; such a device answers nothing at all, which ``read`` notices.
    "INVALID_ARGUMENT": Says.UNSUPPORTED,
    "NOT_SUPPORTED": Says.UNSUPPORTED,
    "NO_PERMISSION": Says.DENIED,
    "ALREADY_INITIALIZED": Says.NOT_NOW,
    "NOT_FOUND": Says.NOT_NOW,
    "INSUFFICIENT_SIZE": Says.NOT_NOW,  # processes came up between the two calls that list them
    "INSUFFICIENT_POWER": Says.LOST,  # its power cables are not attached
    "DRIVER_NOT_LOADED": Says.DRIVER,
    "TIMEOUT": Says.NOT_NOW,
    "IRQ_ISSUE": Says.LOST,  # the kernel gets no interrupts from it
    "LIBRARY_NOT_FOUND": Says.ABSENT,
    "FUNCTION_NOT_FOUND": Says.UNSUPPORTED,
    "CORRUPTED_INFOROM": Says.UNSUPPORTED,
    "GPU_IS_LOST": Says.LOST,
    "RESET_REQUIRED": Says.LOST,
    "OPERATING_SYSTEM": Says.DENIED,
    "LIB_RM_VERSION_MISMATCH": Says.DRIVER,
    "IN_USE": Says.NOT_NOW,
    "MEMORY": Says.NOT_NOW,
    "NO_DATA": Says.NOT_NOW,
    "VGPU_ECC_NOT_SUPPORTED": Says.UNSUPPORTED,
    "INSUFFICIENT_RESOURCES": Says.NOT_NOW,
    "FREQ_NOT_SUPPORTED": Says.UNSUPPORTED,
    "ARGUMENT_VERSION_MISMATCH": Says.UNSUPPORTED,
    "DEPRECATED": Says.UNSUPPORTED,
    "NOT_READY": Says.NOT_NOW,
    "GPU_NOT_FOUND": Says.LOST,
    "INVALID_STATE": Says.NOT_NOW,
    "RESET_TYPE_NOT_SUPPORTED": Says.UNSUPPORTED,
    "UNKNOWN": Says.NOT_NOW,
}
"""What each ``NVML_ERROR_…`` of the bindings says, as the answer to a question about one device."""

_ABSENT_ADVICE: Final = (
    "there is no NVIDIA driver here: libnvidia-ml.so.1 is not found; install the driver on a machine with GPUs, "
    "and let a container see it (NVIDIA's container runtime with NVIDIA_DRIVER_CAPABILITIES=utility)"
)

_DRIVER_ADVICE: Final[Mapping[str, str]] = {
    "DRIVER_NOT_LOADED": "its kernel module is not loaded; load it (modprobe nvidia), or see in the kernel log why not",
    "LIB_RM_VERSION_MISMATCH": "its library and its kernel module have different versions, as after an update; "
    "restart this process, and the machine if nvidia-smi says the same",
    "NO_PERMISSION": "we may not ask it; let this user open /dev/nvidiactl and /dev/nvidia*",
    "OPERATING_SYSTEM": "the system keeps us from it; let this container or user open /dev/nvidiactl and /dev/nvidia*",
}

THROTTLE_BITS: Final[Mapping[int, ThrottleReason]] = {
    0x001: ThrottleReason.GPU_IDLE,
    0x002: ThrottleReason.APPLICATIONS_CLOCKS,
    0x004: ThrottleReason.SW_POWER_CAP,
    0x008: ThrottleReason.HW_SLOWDOWN,
    0x010: ThrottleReason.SYNC_BOOST,
    0x020: ThrottleReason.SW_THERMAL_SLOWDOWN,
    0x040: ThrottleReason.HW_THERMAL_SLOWDOWN,
    0x080: ThrottleReason.HW_POWER_BRAKE,
    0x100: ThrottleReason.DISPLAY_CLOCKS,
}
"""nvmlClocksEventReasons."""

_FIELDS: Final = (
    "MEMORY_TEMP",
    "ECC_SBE_VOL_TOTAL",
    "ECC_DBE_VOL_TOTAL",
    "REMAPPED_COR",
    "REMAPPED_UNC",
    "REMAPPED_PENDING",
    "REMAPPED_FAILURE",
    "GET_GPU_RECOVERY_ACTION",
)
"""``NVML_FI_DEV_…``: asked for in one call, in which each has an error code of its own and none is an exception."""

_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""nvmlValueType_t counts these: which member of a field's value holds it."""

_Way = Callable[[Any, Any], Any]

_WAYS: Final[Mapping[str, tuple[_Way, ...]]] = {
    "memory": (
        lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2),
        lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu),
    ),
    "utilization": (lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,),
    "temperature": (
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    "margin": (lambda nvml, gpu: nvml.nvmlDeviceGetMarginTemperature(gpu),),
    "power": (lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu),),
    "requested_limit": (lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu),),
    "enforced_limit": (lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu),),
    "throttling": (
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    ),
    "fields": (lambda nvml, gpu: _fields(nvml, gpu),),
    "compute": (
        lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu),
        lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu),
    ),
    "graphics": (
        lambda nvml, gpu: nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(gpu),
        lambda nvml, gpu: nvml.nvmlDeviceGetGraphicsRunningProcesses_v2(gpu),
    ),
    "shared": (lambda nvml, gpu: nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu),),
    "default_limit": (lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu),),
    "limit_range": (lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu),),
    "slowdown": (
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureThreshold(gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    ),
    "shutdown": (
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureThreshold(gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    ),
    "name": (lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),),
    "pci": (lambda nvml, gpu: nvml.nvmlDeviceGetPciInfo_v3(gpu).busId,),
    "mig_mode": (lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0],),
}
"""Each question and the ways to ask it, newest first."""

_PROCESSES: Final = ("compute", "graphics", "shared")
_OF_GPU: Final = (
    "memory",
    "utilization",
    "temperature",
    "margin",
    "power",
    "requested_limit",
    "enforced_limit",
    "throttling",
    "fields",
    *_PROCESSES,
)
_OF_CUT_GPU: Final = tuple(what for what in _OF_GPU if what not in ("utilization", *_PROCESSES))
"""Of a GPU in MIG mode: what runs, and how busy it is, is known of its instances."""
_NEVER_CHANGES: Final = ("default_limit", "limit_range", "slowdown", "shutdown")

_PROFILE: Final = re.compile(r" MIG (?:\d+c\.)?(\S+)")
"""In an instance's name: ``NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb`` is a part of a ``3g.40gb``."""


@dataclass(slots=True)
class _Held:
    """A device that was listed: how to ask it, and what is remembered of it.

    Attributes:
        handle: the library's.
        others: handles of the other compute instances in the same GPU instance.
        ways: of each question, what is left of ``_WAYS``.
        own: what was said to the questions of ``_NEVER_CHANGES``.
        forget_at: monotonic seconds.
    """

    device: GpuDevice
    handle: Any
    others: Sequence[Any] = ()
    ways: dict[str, tuple[_Way, ...]] = field(default_factory=lambda: dict(_WAYS))
    own: dict[str, Any] = field(default_factory=dict)
    forget_at: float = field(default_factory=lambda: time.monotonic() + FORGET_S)


class Nvml:
    """``GpuReader`` on NVML. One in a process: the library is started and ended for all of it."""

    def __init__(self) -> None:
        self._state = threading.Condition()  # held for moments only, never while the driver is asked
        self._is_open = False  # there is something to end
        self._is_started = False  # and it answered
        self._is_starting = False
        self._started_at = -math.inf
        self._has_lost = False
        self._n_asking = 0
        self._held: dict[tuple[str, str], _Held] = {}
        self._naming: dict[int, Future[list[_Held]]] = {}

    def driver(self) -> GpuDriver:
        """See ``GpuReader``."""
        self._start()
        with self._asking() as nvml:
            try:
                return GpuDriver(
                    driver_version=nvml.nvmlSystemGetDriverVersion(), nvml_version=nvml.nvmlSystemGetNVMLVersion()
                )
            except nvml.NVMLError as error:
                self._driver_failed(error)

    def devices(self) -> tuple[GpuDevice, ...]:
        """See ``GpuReader``."""
        self._start()
        with self._asking() as nvml:
            self._held = self._list(nvml)
            return tuple(held.device for held in self._held.values())

    def read(self, device: GpuDevice) -> GpuReading:
        """See ``GpuReader``."""
        with self._asking() as nvml:
            held = self._held.get((device.uuid, device.mig_id))
            if held is None or held.device.mig_uuid != device.mig_uuid:
                raise GpuLostError(f"{_called(device)} is no longer there; list the devices anew")
            if time.monotonic() >= held.forget_at:
                held = self._held[device.uuid, device.mig_id] = _Held(held.device, held.handle, held.others)
            if device.mig_id:
                return self._read_instance(nvml, held)
            return self._read_gpu(nvml, held)

    # -- starting the library ------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Starts the library where it is not; anew where a GPU was lost and nobody is in the middle of a question."""
        with self._state:
            self._wait_for_start()
            wants_restart = self._has_lost and self._n_asking == 0 and time.monotonic() >= self._started_at + RESTART_S
            if self._is_started and not wants_restart:
                return
            self._is_starting = True
        try:
            self._restart()
        finally:
            with self._state:
                self._is_starting = False
                self._state.notify_all()

    def _restart(self) -> None:
        nvml = _vendor()
        if self._is_open:
            with suppress(nvml.NVMLError):  # where the driver was unloaded, it had ended by itself
                nvml.nvmlShutdown()
        self._is_open, self._is_started, self._held, self._has_lost = False, False, {}, False
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._driver_failed(error)
        self._is_open, self._started_at = True, time.monotonic()
        # Here, so that nobody who reads finds a GPU missing only because it was not listed again yet.
        self._held = self._list(nvml)
        self._is_started = True

    def _wait_for_start(self) -> None:
        if not self._state.wait_for(lambda: not self._is_starting, timeout=START_S):
            raise GpuDriverError("the NVIDIA driver hangs while its library starts; see whether nvidia-smi answers")

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """The bindings, for questions that no restart shall fall into."""
        with self._state:
            self._wait_for_start()
            if not self._is_started:
                raise GpuDriverError(
                    "the NVIDIA driver does not answer; its library is started anew at the next listing"
                )
            self._n_asking += 1
        try:
            yield _vendor()
        finally:
            with self._state:
                self._n_asking -= 1

    # -- asking --------------------------------------------------------------------------------------------------------

    def _list(self, nvml: Any) -> dict[tuple[str, str], _Held]:
        """What can be named now. Raises ``GpuDriverError``."""
        try:
            n_gpus = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._driver_failed(error)
        hung = {index for index, name in self._naming.items() if not name.done()}
        names = [self._naming[index] if index in hung else self._name_apart(nvml, index) for index in range(n_gpus)]
        wait([name for index, name in enumerate(names) if index not in hung], timeout=NAME_S)
        listed: dict[tuple[str, str], _Held] = {}
        for index, name in enumerate(names):
            with suppress(GpuLostError):
                # One that hangs is still what it was, if that is known; it is waited for once.
                before = [held for held in self._held.values() if held.device.index == index]
                for held in name.result() if name.done() else before:
                    listed[held.device.uuid, held.device.mig_id] = held
        return listed

    def _name_apart(self, nvml: Any, index: int) -> Future[list[_Held]]:
        """Name it in a thread that nobody has to wait for: one GPU that hangs must not hide the others."""
        future = self._naming[index] = Future()

        def name() -> None:
            found: list[_Held] = []
            problem: Exception | None = None
            try:
                found = self._list_gpu(nvml, index)
            except Exception as error:  # noqa: BLE001  for who waits
                problem = error
            with self._state:  # before anybody goes on, who may want the library started anew
                self._n_asking -= 1
            if problem is None:
                future.set_result(found)
            else:
                future.set_exception(problem)

        with self._state:
            self._n_asking += 1
        threading.Thread(target=name, name=f"nvml-name-{index}", daemon=True).start()
        return future

    def _list_gpu(self, nvml: Any, index: int) -> list[_Held]:
        """The physical GPU of this index, and its instances. Raises ``GpuLostError`` for one that cannot be named."""
        nameless = GpuDevice(index=index, uuid="", name="")
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            self._refuse(error, nameless)
            raise GpuLostError(f"{_called(nameless)} cannot be named: {error}") from error
        was = self._held.get((uuid, "")) or _Held(nameless, handle)
        device = GpuDevice(
            index=index,
            uuid=uuid,
            name=self._ask(nvml, was, "name") or "",
            pci_bus_id=self._ask(nvml, was, "pci") or "",
            is_mig_enabled=self._ask(nvml, was, "mig_mode") == nvml.NVML_DEVICE_MIG_ENABLE,
        )
        # One that was cut anew supports other things than before.
        held = was if was.device == device else _Held(device, handle)
        return [held, *(self._instances(nvml, held) if device.is_mig_enabled else ())]

    def _instances(self, nvml: Any, gpu: _Held) -> list[_Held]:
        """Its GPU instances. One that several compute instances share is listed once: its memory is theirs together."""
        found: dict[str, _Held] = {}
        try:
            n_slots = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
        except nvml.NVMLError as error:
            self._refuse(error, gpu.device)
            return []
        for slot in range(n_slots):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, slot)
                mig_id = str(nvml.nvmlDeviceGetGpuInstanceId(handle))
                if mig_id in found:
                    found[mig_id].others = (*found[mig_id].others, handle)
                    continue
                device = GpuDevice(
                    index=gpu.device.index,
                    uuid=gpu.device.uuid,
                    name=gpu.device.name,
                    pci_bus_id=gpu.device.pci_bus_id,
                    mig_uuid=nvml.nvmlDeviceGetUUID(handle),
                    mig_id=mig_id,
                    mig_profile=_profile(nvml, handle),
                )
            except nvml.NVMLError as error:  # an empty slot, most of the time
                self._refuse(error, gpu.device)
                continue
            was = self._held.get((device.uuid, mig_id))
            found[mig_id] = _Held(device, handle)
            if was is not None and was.device == device:
                found[mig_id].ways, found[mig_id].forget_at = was.ways, was.forget_at
        return list(found.values())

    def _read_gpu(self, nvml: Any, held: _Held) -> GpuReading:
        questions = _OF_CUT_GPU if held.device.is_mig_enabled else _OF_GPU
        said = self._ask_all(nvml, held, questions)
        for what in _NEVER_CHANGES:
            if held.own.get(what) is None:
                held.own[what] = self._ask(nvml, held, what)
        total, used, free, reserved = _memory(said["memory"])
        fields: Mapping[str, int | None] = said["fields"] or dict.fromkeys(_FIELDS)
        least, most = held.own["limit_range"] or (None, None)
        bits = said["throttling"]
        pending, failed = fields["REMAPPED_PENDING"], fields["REMAPPED_FAILURE"]
        return GpuReading(
            memory_used_bytes=used,
            memory_total_bytes=total,
            memory_free_bytes=free,
            memory_reserved_bytes=reserved,
            utilization_ratio=said.get("utilization"),
            temperature_c=said["temperature"],
            memory_temperature_c=fields["MEMORY_TEMP"],
            slowdown_temperature_c=held.own["slowdown"],
            shutdown_temperature_c=held.own["shutdown"],
            temperature_margin_c=said["margin"],
            power_mw=said["power"],
            power_limits=PowerLimits(
                requested_mw=said["requested_limit"],
                enforced_mw=said["enforced_limit"],
                default_mw=held.own["default_limit"],
                least_mw=least,
                most_mw=most,
            ),
            throttle_reasons=None if bits is None else throttle_reasons(bits),
            ecc_corrected=fields["ECC_SBE_VOL_TOTAL"],
            ecc_uncorrected=fields["ECC_DBE_VOL_TOTAL"],
            remapped_correctable=fields["REMAPPED_COR"],
            remapped_uncorrectable=fields["REMAPPED_UNC"],
            is_remap_pending=None if pending is None else bool(pending),
            is_remap_failed=None if failed is None else bool(failed),
            recovery_action=fields["GET_GPU_RECOVERY_ACTION"],
            processes=_processes(said),
        )

    def _read_instance(self, nvml: Any, held: _Held) -> GpuReading:
        said = self._ask_all(nvml, held, ("memory", *_PROCESSES))
        for other in held.others:
            also = self._ask_all(nvml, _Held(held.device, other, ways=held.ways), _PROCESSES, must_answer=False)
            for what, more in also.items():
                said[what] = None if said[what] is None or more is None else [*said[what], *more]
        total, used, free, reserved = _memory(said["memory"])
        return GpuReading(
            memory_used_bytes=used,
            memory_total_bytes=total,
            memory_free_bytes=free,
            memory_reserved_bytes=reserved,
            processes=_processes(said),
        )

    def _ask_all(self, nvml: Any, held: _Held, questions: Sequence[str], *, must_answer: bool = True) -> dict[str, Any]:
        said = {what: self._ask(nvml, held, what) for what in questions}
        if must_answer and all(answer is None for answer in said.values()):
            self._lose(held.device)
            raise GpuLostError(
                f"{_called(held.device)} answers no question; list the devices anew, and see what nvidia-smi says"
            )
        return said

    def _ask(self, nvml: Any, held: _Held, what: str) -> Any:
        """The answer; None: not supported, not allowed, or not now."""
        ways = held.ways[what]
        for n_tried, way in enumerate(ways, start=1):
            try:
                return way(nvml, held.handle)
            except UnicodeDecodeError:  # a name from a broken InfoROM: nobody else shall be missed for it
                return None
            except nvml.NVMLError as error:
                if self._refuse(error, held.device) is not Says.UNSUPPORTED:
                    return None
                held.ways[what] = ways[n_tried:]
        return None

    def _refuse(self, error: Any, device: GpuDevice) -> Says:
        """Raises where the code says more than that this question has no answer; else gives what it says."""
        says = classify(error.value)
        if says is Says.LOST:
            self._lose(device)
            raise GpuLostError(
                f"{_called(device)} is lost: {error}; the kernel log says why (dmesg | grep -i xid), "
                "and a reset of the GPU or a reboot brings it back"
            ) from error
        if says in (Says.DRIVER, Says.ABSENT):
            self._driver_failed(error)
        return says

    def _lose(self, device: GpuDevice) -> None:
        """Forgets all that is remembered of it: when it is listed again, it may be another."""
        self._has_lost = True
        self._held.pop((device.uuid, device.mig_id), None)

    def _driver_failed(self, error: Any) -> NoReturn:
        self._is_started = False
        name = _names().get(error.value, "")
        if classify(error.value) is Says.ABSENT:
            raise GpuDriverError(_ABSENT_ADVICE, is_absent=True) from error
        advice = _DRIVER_ADVICE.get(name, f"{error}; see whether nvidia-smi answers")
        raise GpuDriverError(f"the NVIDIA driver does not answer: {advice}") from error


def classify(code: int) -> Says:
    """What an error code of NVML says; of one that is not known, that the next question may be answered."""
    return ERRORS.get(_names().get(code, ""), Says.NOT_NOW)


def throttle_reasons(bits: int) -> frozenset[ThrottleReason]:
    """The reasons in an answer of nvmlDeviceGetCurrentClocksEventReasons."""
    return frozenset(reason for bit, reason in THROTTLE_BITS.items() if bits & bit)


@functools.cache
def _vendor() -> ModuleType:
    """The bindings. They take a tenth of a second to load, which only those pay who ask a driver."""
    import pynvml

    module: ModuleType = pynvml
    return module


@functools.cache
def _names() -> Mapping[int, str]:
    prefix = "NVML_ERROR_"
    return {code: name.removeprefix(prefix) for name, code in vars(_vendor()).items() if name.startswith(prefix)}


def _fields(nvml: Any, gpu: Any) -> dict[str, int | None] | None:
    """All of ``_FIELDS``, or None where none is answered. Raises ``NVMLError`` where the GPU or the driver is gone."""
    said: dict[str, int | None] = {}
    values = nvml.nvmlDeviceGetFieldValues(gpu, [getattr(nvml, f"NVML_FI_DEV_{name}") for name in _FIELDS])
    for name, value in zip(_FIELDS, values, strict=True):
        if value.nvmlReturn == nvml.NVML_SUCCESS:
            said[name] = int(getattr(value.value, _MEMBERS[value.valueType]))
        elif classify(value.nvmlReturn) in (Says.LOST, Says.DRIVER):
            raise nvml.NVMLError(value.nvmlReturn)
        else:
            said[name] = None
    return said if any(value is not None for value in said.values()) else None


def _memory(memory: Any) -> tuple[int | None, int | None, int | None, int | None]:
    """Total, used, free and reserved bytes.

    ``used`` is what the others leave: whether the driver's own figure holds the reserved memory depends on its version.
    """
    if memory is None:
        return None, None, None, None
    reserved: int | None = getattr(memory, "reserved", None)
    return memory.total, max(memory.total - memory.free - (reserved or 0), 0), memory.free, reserved


def _processes(said: Mapping[str, Any]) -> tuple[GpuProcess, ...] | None:
    """Those of every list, each once: one that computes and draws is in two of them, with all of its memory in both."""
    if said.get("compute") is None:
        return None
    used: dict[int, int | None] = {}
    for process in (process for what in _PROCESSES for process in said[what] or ()):
        known = used.get(process.pid)
        used[process.pid] = process.usedGpuMemory if known is None else max(known, process.usedGpuMemory or 0)
    return tuple(GpuProcess(pid=pid, used_bytes=used[pid]) for pid in sorted(used))


def _profile(nvml: Any, handle: Any) -> str:
    """``1g.10gb``: as the instance's name says it, else by its size. Raises ``NVMLError``."""
    named = _PROFILE.search(nvml.nvmlDeviceGetName(handle))
    if named:
        return named.group(1)
    size = nvml.nvmlDeviceGetAttributes_v2(handle)
    return f"{size.gpuInstanceSliceCount}g.{math.ceil(size.memorySizeMB / 1024)}gb"


def _called(device: GpuDevice) -> str:
    uuid = device.mig_uuid or device.uuid
    return f"GPU {device.index} ({uuid})" if uuid else f"GPU {device.index}"
