"""The GPU driver's adapter on the vendor's real bindings, which load a driver that the tests script."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from realparts.nvml import FIELDS, H100, MIB, FakeDriver, uuid_of
from realparts.process import wait_until
from remediator.clients import nvml
from remediator.clients.nvml import ERRORS, Nvml, Says
from remediator.clients.ports import GpuDevice, GpuDriver, GpuProcess, GpuReading, PowerLimits, ThrottleReason
from remediator.errors import GpuDriverError, GpuLostError

pytestmark = pytest.mark.nvml

NO_PERMISSION, FUNCTION_NOT_FOUND, DRIVER_NOT_LOADED = 4, 13, 9

IDLE = GpuReading(
    memory_used_bytes=0,
    memory_total_bytes=81559 * MIB,
    memory_free_bytes=(81559 - 560) * MIB,
    memory_reserved_bytes=560 * MIB,
    utilization_ratio=0.0,
    temperature_c=35,
    memory_temperature_c=40,
    slowdown_temperature_c=90,
    shutdown_temperature_c=95,
    temperature_margin_c=52,
    power_mw=70_000,
    power_limits=PowerLimits(
        requested_mw=700_000, enforced_mw=700_000, default_mw=700_000, least_mw=200_000, most_mw=700_000
    ),
    throttle_reasons=frozenset({ThrottleReason.GPU_IDLE}),
    ecc_corrected=0,
    ecc_uncorrected=0,
    remapped_correctable=0,
    remapped_uncorrectable=0,
    is_remap_pending=False,
    is_remap_failed=False,
    recovery_action=0,
    processes=(),
)


@pytest.fixture
def reader(fake_driver: FakeDriver) -> Iterator[Nvml]:
    yield Nvml()
    fake_driver.release()
    wait_until(lambda: not still_naming(), "no call hangs into the next test", 20)


def still_naming() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("nvml-name-")]


def gpu(reader: Nvml, n: int) -> GpuDevice:
    """The GPU that was number n at first, wherever it is listed now."""
    return next(device for device in reader.devices() if device.uuid == uuid_of(n) and not device.mig_id)


# -- what there is -----------------------------------------------------------------------------------------------------


def test_driver_when_asked_then_it_says_its_versions(fake_driver: FakeDriver, reader: Nvml) -> None:
    assert reader.driver() == GpuDriver(driver_version="580.95.05", nvml_version="13.580.95.05")


def test_devices_when_there_are_eight_then_each_is_described(fake_driver: FakeDriver, reader: Nvml) -> None:
    listed = reader.devices()
    assert [(device.index, device.uuid) for device in listed] == [(n, uuid_of(n)) for n in range(8)]
    assert listed[1] == GpuDevice(index=1, uuid=uuid_of(1), name="NVIDIA H100 80GB HBM3", pci_bus_id="00000000:1A:00.0")


def test_devices_when_asked_from_another_process_then_it_sees_the_same(fake_driver: FakeDriver) -> None:
    script = "from remediator.clients.nvml import Nvml; print(len(Nvml().devices()))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | fake_driver.env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "8\n"


def test_import_when_nobody_asks_a_driver_then_the_bindings_are_not_loaded() -> None:
    script = "import sys; from remediator.clients.nvml import Nvml; Nvml(); sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_devices_when_the_name_of_one_is_no_text_then_it_has_none_and_all_are_there(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.set(1, name="\udcff\udcfe")  # the bytes FF and FE

    assert [device.name for device in reader.devices()] == [H100["name"] if n != 1 else "" for n in range(8)]


# -- what a GPU says ---------------------------------------------------------------------------------------------------


def test_read_when_a_gpu_is_idle_then_all_it_knows_is_there(fake_driver: FakeDriver, reader: Nvml) -> None:
    assert reader.read(gpu(reader, 3)) == IDLE


VALUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "memory in use": (
        {"memory_used": 1000 * MIB},
        {"memory_used_bytes": 1000 * MIB, "memory_free_bytes": (81559 - 560 - 1000) * MIB},
    ),
    "percent are a ratio": ({"utilization": 97}, {"utilization_ratio": 0.97}),
    "temperatures": (
        {"temperature": 84, "memory_temperature": 95},
        {"temperature_c": 84, "memory_temperature_c": 95},
    ),
    "a margin that is used up": ({"margin": -3}, {"temperature_margin_c": -3}),
    "power": ({"power": 655_321}, {"power_mw": 655_321}),
    "a limit that a host set, and a lower one from outside": (
        {"requested_limit": 600_000, "enforced_limit": 450_000},
        {"power_limits": replace(IDLE.power_limits, requested_mw=600_000, enforced_mw=450_000)},
    ),
    "slowed down by heat and by the power cap": (
        {"throttling": 0x6C},
        {
            "throttle_reasons": {
                ThrottleReason.SW_POWER_CAP,
                ThrottleReason.HW_SLOWDOWN,
                ThrottleReason.SW_THERMAL_SLOWDOWN,
                ThrottleReason.HW_THERMAL_SLOWDOWN,
            }
        },
    ),
    "not slowed down": ({"throttling": 0}, {"throttle_reasons": frozenset()}),
    "more errors than 32 bits hold": (
        {"ecc_corrected": 2**33, "ecc_uncorrected": 2},
        {"ecc_corrected": 2**33, "ecc_uncorrected": 2},
    ),
    "remapped rows": (
        {"remapped_correctable": 5, "remapped_uncorrectable": 1, "remap_pending": 1, "remap_failed": 1},
        {
            "remapped_correctable": 5,
            "remapped_uncorrectable": 1,
            "is_remap_pending": True,
            "is_remap_failed": True,
        },
    ),
    "what the driver wants done": ({"recovery_action": 2}, {"recovery_action": 2}),
}


@pytest.mark.parametrize(("said", "expected"), VALUES.values(), ids=VALUES)
def test_read_when_the_driver_says_something_then_it_is_given_in_its_unit(
    said: dict[str, Any], expected: dict[str, Any], fake_driver: FakeDriver, reader: Nvml
) -> None:
    device = gpu(reader, 0)
    assert reader.read(device) == IDLE
    fake_driver.set(0, **said)
    assert reader.read(device) == replace(IDLE, **expected)


def test_read_when_the_driver_counts_reserved_memory_as_used_then_we_do_not(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.set(0, memory_used=7 * MIB)
    fake_driver.count_reserved_as_used()
    reading = reader.read(gpu(reader, 0))
    assert (reading.memory_used_bytes, reading.memory_reserved_bytes) == (7 * MIB, 560 * MIB)


def test_read_when_processes_use_it_then_each_is_listed_once(fake_driver: FakeDriver, reader: Nvml) -> None:
    fake_driver.run(0, {7: 5 * MIB, 9: None})
    fake_driver.set(0, graphics=f"7:{5 * MIB} 8:{2 * MIB}", shared=f"7:-1 9:{3 * MIB}")
    assert reader.read(gpu(reader, 0)).processes == (
        GpuProcess(pid=7, used_bytes=5 * MIB),
        GpuProcess(pid=8, used_bytes=2 * MIB),
        GpuProcess(pid=9, used_bytes=3 * MIB),
    )


# -- what it does not say ----------------------------------------------------------------------------------------------

LACKING: dict[str, dict[str, Any]] = {
    "memory_total": dict.fromkeys(
        ("memory_used_bytes", "memory_total_bytes", "memory_free_bytes", "memory_reserved_bytes")
    ),
    "utilization": {"utilization_ratio": None},
    "temperature": {"temperature_c": None},
    "margin": {"temperature_margin_c": None},
    "slowdown": {"slowdown_temperature_c": None},
    "shutdown": {"shutdown_temperature_c": None},
    "power": {"power_mw": None},
    "requested_limit": {"power_limits": replace(IDLE.power_limits, requested_mw=None)},
    "enforced_limit": {"power_limits": replace(IDLE.power_limits, enforced_mw=None)},
    "default_limit": {"power_limits": replace(IDLE.power_limits, default_mw=None)},
    "least_limit": {"power_limits": replace(IDLE.power_limits, least_mw=None, most_mw=None)},
    "throttling": {"throttle_reasons": None},
    "compute": {"processes": None},
    "graphics": {},
    "shared": {},
    "mig_mode": {},
    "memory_temperature": {"memory_temperature_c": None},
    "ecc_corrected": {"ecc_corrected": None},
    "ecc_uncorrected": {"ecc_uncorrected": None},
    "remapped_correctable": {"remapped_correctable": None},
    "remapped_uncorrectable": {"remapped_uncorrectable": None},
    "remap_pending": {"is_remap_pending": None},
    "remap_failed": {"is_remap_failed": None},
    "recovery_action": {"recovery_action": None},
}


def test_lacking_when_a_gpu_can_say_something_then_there_is_a_row_in_which_it_does_not() -> None:
    assert set(LACKING) == set(H100) - {"name", "memory_used", "memory_reserved", "most_limit"}


@pytest.mark.parametrize(("key", "expected"), LACKING.items(), ids=LACKING)
def test_read_when_something_is_not_supported_then_it_is_none_and_all_else_is_there(
    key: str, expected: dict[str, Any], fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.set(0, **{key: None})
    device = gpu(reader, 0)
    assert reader.read(device) == replace(IDLE, **expected)
    assert reader.read(device) == replace(IDLE, **expected)


def test_read_when_something_is_not_supported_then_it_is_not_asked_again_but_of_other_gpus(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.set(0, margin=None, throttling=None, mig_mode=None)
    first, second = gpu(reader, 0), gpu(reader, 1)
    reader.read(first)
    fake_driver.forget_calls()
    for _ in range(3):
        gpu(reader, 0)
        reader.read(first)
        reader.read(second)
    calls = fake_driver.calls()
    assert [calls[f"nvmlDeviceGet{name}", "gpu0"] for name in ("MarginTemperature", "CurrentClocksEventReasons")] == [
        0,
        0,
    ]
    assert (calls["nvmlDeviceGetMigMode", "gpu0"], calls["nvmlDeviceGetMarginTemperature", "gpu1"]) == (0, 3)


def test_read_when_long_ago_something_was_not_supported_then_it_is_asked_again(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "FORGET_S", 0.0)
    fake_driver.set(0, margin=None)
    device = gpu(reader, 0)
    assert reader.read(device).temperature_margin_c is None
    fake_driver.set(0, margin=12, default_limit=650_000)
    reading = reader.read(device)
    assert (reading.temperature_margin_c, reading.power_limits.default_mw) == (12, 650_000)


def test_read_when_repeated_then_what_never_changes_was_asked_once(fake_driver: FakeDriver, reader: Nvml) -> None:
    device = gpu(reader, 0)
    for _ in range(3):
        reader.read(device)
    calls = fake_driver.calls()
    names = ("PowerManagementDefaultLimit", "PowerManagementLimitConstraints", "TemperatureThreshold", "PowerUsage")
    assert [calls[f"nvmlDeviceGet{name}", "gpu0"] for name in names] == [1, 1, 2, 3]


OLDER = {
    "memory": ("nvmlDeviceGetMemoryInfo_v2", {"memory_used_bytes": 560 * MIB, "memory_reserved_bytes": None}),
    "temperature": ("nvmlDeviceGetTemperatureV", {}),
    "throttling": ("nvmlDeviceGetCurrentClocksEventReasons", {}),
    "processes": ("nvmlDeviceGetComputeRunningProcesses_v3", {}),
}


@pytest.mark.parametrize(("function", "expected"), OLDER.values(), ids=OLDER)
def test_read_when_the_driver_is_too_old_for_a_function_then_the_older_one_is_asked(
    function: str, expected: dict[str, Any], fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.fail(None, FUNCTION_NOT_FOUND, function)
    device = gpu(reader, 0)
    assert [reader.read(device) for _ in range(2)] == [replace(IDLE, **expected)] * 2
    assert fake_driver.calls()[function, "gpu0"] == 1


def test_read_when_we_may_not_see_processes_then_none_until_we_may(fake_driver: FakeDriver, reader: Nvml) -> None:
    fake_driver.run(0, {7: MIB})
    fake_driver.fail(0, NO_PERMISSION, "nvmlDeviceGetComputeRunningProcesses_v3")
    device = gpu(reader, 0)
    denied = reader.read(device)
    assert (denied.processes, denied.memory_used_bytes) == (None, MIB)
    fake_driver.fail(0, None, "nvmlDeviceGetComputeRunningProcesses_v3")
    assert reader.read(device).processes == (GpuProcess(pid=7, used_bytes=MIB),)


# -- errors ------------------------------------------------------------------------------------------------------------

CODES = {
    name.removeprefix("NVML_ERROR_"): code for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")
}


def outcome(reader: Nvml, device: GpuDevice) -> str:
    try:
        power_mw = reader.read(device).power_mw
    except GpuDriverError as error:
        return "absent" if error.is_absent else "driver"
    except GpuLostError:
        return "lost"
    return "none" if power_mw is None else "said"


@pytest.mark.parametrize("name", sorted(CODES))
def test_read_when_one_question_ends_with_a_code_then_as_much_is_concluded_as_its_row_says(
    name: str, fake_driver: FakeDriver, reader: Nvml
) -> None:
    device, other = gpu(reader, 0), gpu(reader, 1)
    fake_driver.fail(0, CODES[name], "nvmlDeviceGetPowerUsage")
    expected = {Says.LOST: "lost", Says.DRIVER: "driver", Says.ABSENT: "absent"}.get(ERRORS[name], "none")
    assert outcome(reader, device) == expected
    assert outcome(reader, other) == ("driver" if expected in ("driver", "absent") else "said")
    fake_driver.fail(0, None, "nvmlDeviceGetPowerUsage")
    reader.devices()
    assert outcome(reader, device) == ("none" if ERRORS[name] is Says.UNSUPPORTED else "said")


@pytest.mark.parametrize("name", sorted(CODES))
def test_read_when_every_question_ends_with_a_code_then_nobody_takes_it_for_an_answer(
    name: str, fake_driver: FakeDriver, reader: Nvml
) -> None:
    device = gpu(reader, 0)
    fake_driver.fail(0, CODES[name])
    assert outcome(reader, device) == {Says.DRIVER: "driver", Says.ABSENT: "absent"}.get(ERRORS[name], "lost")


@pytest.mark.parametrize(
    ("name", "expected"), [("GPU_IS_LOST", "lost"), ("UNINITIALIZED", "driver"), ("TIMEOUT", "said")]
)
def test_read_when_one_field_of_many_ends_with_a_code_then_it_counts_as_that_of_a_call(
    name: str, expected: str, fake_driver: FakeDriver, reader: Nvml
) -> None:
    device = gpu(reader, 0)
    fake_driver.fail(0, CODES[name], "field.230")
    assert outcome(reader, device) == expected


def test_read_when_fields_come_without_any_value_then_they_are_no_answer(fake_driver: FakeDriver, reader: Nvml) -> None:
    device = gpu(reader, 0)
    reader.read(device)
    fake_driver.set(0, **dict.fromkeys(FIELDS))
    for function in {function for function, of in fake_driver.calls() if of == "gpu0"} - {"nvmlDeviceGetFieldValues"}:
        fake_driver.fail(0, CODES["TIMEOUT"], function)
    assert outcome(reader, device) == "lost"


@pytest.mark.parametrize("name", sorted(CODES))
def test_devices_when_the_driver_as_a_whole_fails_then_it_is_the_drivers_error_and_heals(
    name: str, fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.fail(None, CODES[name])
    for ask in (reader.driver, reader.devices):
        with pytest.raises(GpuDriverError) as caught:
            ask()
        assert caught.value.is_absent == (name == "LIBRARY_NOT_FOUND")
    fake_driver.fail(None, None)
    assert len(reader.devices()) == 8


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("DRIVER_NOT_LOADED", "kernel module is not loaded; load it"),
        ("LIB_RM_VERSION_MISMATCH", "after an update; restart this process"),
        ("NO_PERMISSION", "let this user open /dev/nvidiactl"),
        ("UNKNOWN", "Unknown Error; see whether nvidia-smi answers"),
    ],
)
def test_driver_when_it_does_not_answer_then_the_error_says_what_to_do(
    name: str, says: str, fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.fail(None, CODES[name])
    with pytest.raises(GpuDriverError, match=says):
        reader.driver()


# -- GPUs that go, and drivers that come back --------------------------------------------------------------------------


def test_read_when_a_gpu_is_lost_then_it_says_so_and_the_others_answer(fake_driver: FakeDriver, reader: Nvml) -> None:
    lost, other = gpu(reader, 2), gpu(reader, 3)
    fake_driver.lose(2)
    with pytest.raises(GpuLostError, match=rf"GPU 2 \({uuid_of(2)}\) is lost: .*dmesg"):
        reader.read(lost)
    with pytest.raises(GpuLostError, match="list the devices anew"):
        reader.read(lost)
    assert reader.read(other) == IDLE
    assert [device.index for device in reader.devices()] == [0, 1, 3, 4, 5, 6, 7]


def test_read_when_the_driver_forgot_a_gpu_then_the_others_are_still_themselves(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.set(3, temperature=61)
    gone, moved = gpu(reader, 2), gpu(reader, 3)
    fake_driver.drop(2)
    assert reader.read(moved).temperature_c == 61
    assert (len(reader.devices()), gpu(reader, 3).index) == (7, 2)
    assert reader.read(moved).temperature_c == 61
    with pytest.raises(GpuLostError):
        reader.read(gone)


def test_devices_when_a_reset_gpu_needs_a_new_start_then_the_library_is_started_anew(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, other = gpu(reader, 2), gpu(reader, 3)
    fake_driver.lose(2)
    assert outcome(reader, back) == "lost"
    fake_driver.restore(2, needs_restart=True)
    assert (len(reader.devices()), fake_driver.calls()["nvmlShutdown", "driver"]) == (7, 0)  # not at every listing
    monkeypatch.setattr(nvml, "RESTART_S", 0.0)
    assert reader.read(other) == IDLE
    assert len(reader.devices()) == 8
    assert [reader.read(device) for device in (back, other)] == [IDLE, IDLE]


def test_devices_when_somebody_is_in_the_middle_of_a_question_then_the_library_is_not_started_anew(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "RESTART_S", 0.0)
    slow, lost = gpu(reader, 0), gpu(reader, 2)
    fake_driver.lose(2)
    assert outcome(reader, lost) == "lost"
    fake_driver.restore(2, needs_restart=True)
    fake_driver.hang(0, "nvmlDeviceGetPowerUsage")
    answered: list[GpuReading] = []
    thread = threading.Thread(target=lambda: answered.append(reader.read(slow)), daemon=True)
    thread.start()
    wait_until(lambda: fake_driver.calls()["nvmlDeviceGetPowerUsage", "gpu0"], "the call hangs", 20)
    assert len(reader.devices()) == 7
    assert fake_driver.calls()["nvmlShutdown", "driver"] == 0
    fake_driver.release()
    thread.join(20)
    assert answered == [IDLE]
    assert len(reader.devices()) == 8


def test_read_when_a_call_to_one_gpu_hangs_then_all_other_questions_are_answered(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    hanging, other = gpu(reader, 0), gpu(reader, 1)
    fake_driver.hang(0)
    answered: list[GpuReading] = []
    thread = threading.Thread(target=lambda: answered.append(reader.read(hanging)), daemon=True)
    thread.start()
    wait_until(lambda: fake_driver.calls()["nvmlDeviceGetMemoryInfo_v2", "gpu0"], "the call hangs", 20)
    assert reader.read(other) == IDLE
    assert reader.driver().driver_version == "580.95.05"
    assert (answered, thread.is_alive()) == ([], True)
    fake_driver.release()
    thread.join(20)
    assert answered == [IDLE]


def test_devices_when_a_gpu_hangs_from_the_start_then_the_others_are_there_and_it_comes_when_it_answers(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "NAME_S", 0.5)
    fake_driver.hang(1)
    devices = reader.devices()
    assert [device.index for device in devices] == [0, 2, 3, 4, 5, 6, 7]
    asked = fake_driver.calls()
    assert reader.devices() == devices
    assert {key: n for key, n in fake_driver.calls().items() if n > asked[key] and key[1] == "gpu1"} == {}  # not again
    assert reader.read(devices[1]) == IDLE
    fake_driver.release()
    wait_until(lambda: len(reader.devices()) == 8, "it is there", 20)


def test_devices_when_a_known_gpu_hangs_then_it_is_still_listed(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "NAME_S", 0.5)
    before = reader.devices()
    fake_driver.hang(1)
    assert reader.devices() == before
    fake_driver.release()


def test_devices_when_the_driver_was_reloaded_then_the_library_is_started_anew(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    device = gpu(reader, 0)
    fake_driver.reload()
    with pytest.raises(GpuDriverError):
        reader.read(device)
    with pytest.raises(GpuDriverError, match="started anew at the next listing"):
        reader.read(device)
    assert reader.driver().driver_version == "580.95.05"
    assert reader.read(device) == IDLE


def test_devices_when_the_driver_is_away_for_a_while_then_it_heals(fake_driver: FakeDriver, reader: Nvml) -> None:
    device = gpu(reader, 0)
    fake_driver.reload()
    fake_driver.fail(None, DRIVER_NOT_LOADED)
    for _ in range(3):
        with pytest.raises(GpuDriverError, match="not loaded"):
            reader.devices()
        assert outcome(reader, device) == "driver"
    fake_driver.fail(None, None)
    assert len(reader.devices()) == 8
    assert reader.read(device) == IDLE


def start_that_hangs(fake_driver: FakeDriver, reader: Nvml, device: GpuDevice) -> threading.Thread:
    """A thread that starts the library anew, and has come to where the driver hangs."""
    fake_driver.reload()
    assert outcome(reader, device) == "driver"
    fake_driver.forget_calls()
    fake_driver.hang(None, "nvmlInitWithFlags")
    thread = threading.Thread(target=reader.devices, daemon=True)
    thread.start()
    wait_until(lambda: fake_driver.calls()["nvmlInitWithFlags", "driver"], "the start hangs", 20)
    return thread


def test_read_when_the_library_is_being_started_then_it_waits_for_that(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "START_S", 120.0)
    device = gpu(reader, 0)
    start_that_hangs(fake_driver, reader, device)
    outcomes: list[str] = []
    reading = threading.Thread(target=lambda: outcomes.append(outcome(reader, device)), daemon=True)
    reading.start()
    reading.join(0.1)
    assert outcomes == []
    fake_driver.release()
    reading.join(30)
    assert outcomes == ["said"]


def test_read_when_the_start_of_the_library_hangs_then_it_says_so_and_heals_with_it(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "START_S", 0.05)
    device = gpu(reader, 0)
    starting = start_that_hangs(fake_driver, reader, device)
    with pytest.raises(GpuDriverError, match="hangs while its library starts"):
        reader.read(device)
    fake_driver.release()
    starting.join(30)
    assert outcome(reader, device) == "said"


def test_read_when_many_threads_read_and_list_while_gpus_come_and_go_then_nothing_breaks(
    fake_driver: FakeDriver, reader: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "RESTART_S", 0.0)
    listed = reader.devices()
    broken: list[BaseException] = []
    is_over = threading.Event()

    def keep(ask: Any) -> None:
        while not is_over.is_set():
            try:
                ask()
            except (GpuLostError, GpuDriverError):
                pass
            except BaseException as error:  # noqa: BLE001  # told to the test
                broken.append(error)
                return

    asks = [reader.devices, reader.driver, *(lambda device=device: reader.read(device) for device in listed[:4])]
    threads = [threading.Thread(target=keep, args=(ask,), daemon=True) for ask in asks]
    for thread in threads:
        thread.start()
    for round_ in range(10):
        fake_driver.lose(round_ % 4)
        fake_driver.reload()
        fake_driver.restore(round_ % 4, needs_restart=True)
    is_over.set()
    for thread in threads:
        thread.join(30)
    assert broken == []
    wait_until(lambda: len(reader.devices()) == 8, "all are back", 20)
    assert [reader.read(device) for device in listed] == [IDLE] * 8


# -- MIG ---------------------------------------------------------------------------------------------------------------


def test_devices_when_a_gpu_is_cut_then_its_instances_follow_it(fake_driver: FakeDriver, reader: Nvml) -> None:
    fake_driver.cut(1, {1: "3g.40gb", 9: "1g.10gb"})
    listed = reader.devices()
    assert [(device.index, device.mig_id, device.mig_profile) for device in listed[:4]] == [
        (0, "", ""),
        (1, "", ""),
        (1, "1", "3g.40gb"),
        (1, "9", "1g.10gb"),
    ]
    assert [device.is_mig_enabled for device in listed[:4]] == [False, True, False, False]
    assert (listed[3].uuid, listed[3].name, listed[3].mig_uuid[:4]) == (uuid_of(1), "NVIDIA H100 80GB HBM3", "MIG-")


def test_read_when_a_gpu_is_cut_then_each_instance_has_its_own_memory_and_processes(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.cut(1, {1: "3g.40gb", 9: "1g.10gb"})
    fake_driver.run(1, {7: 5 * MIB}, mig=0)
    whole, large, small = (device for device in reader.devices() if device.index == 1)
    assert reader.read(whole) == replace(IDLE, utilization_ratio=None, processes=None)
    assert reader.read(large) == GpuReading(
        memory_used_bytes=5 * MIB,
        memory_total_bytes=(40 * 1024 - 768) * MIB,
        memory_free_bytes=(40 * 1024 - 768 - 5) * MIB,
        memory_reserved_bytes=0,
        processes=(GpuProcess(pid=7, used_bytes=5 * MIB),),
    )
    assert (reader.read(small).memory_used_bytes, reader.read(small).processes) == (0, ())


def test_devices_when_an_instance_was_taken_away_then_those_after_it_are_still_listed(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.cut(0, {1: "3g.40gb", 9: "1g.10gb"})
    fake_driver.set(0, mig=0, uuid=None)
    assert [device.mig_id for device in reader.devices()[:2]] == ["", "9"]


def test_read_when_an_instance_does_not_support_something_then_it_is_not_asked_again(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.cut(0, {1: "3g.40gb"})
    fake_driver.set(0, mig=0, shared=None)
    for _ in range(3):
        assert reader.read(reader.devices()[1]).processes == ()
    calls = fake_driver.calls()
    assert calls["nvmlDeviceGetMPSComputeRunningProcesses_v3", "gpu0.mig0"] == 1
    assert calls["nvmlDeviceGetMemoryInfo_v2", "gpu0.mig0"] == 3


def test_devices_when_compute_instances_share_a_gpu_instance_then_it_is_one_with_all_their_processes(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.cut(0, {1: "3g.40gb", 2: "1g.10gb"})
    fake_driver.set(0, mig=1, gpu_instance=1, name="NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb")
    fake_driver.run(0, {7: MIB}, mig=0)
    fake_driver.run(0, {8: MIB}, mig=1)
    instances = [device for device in reader.devices() if device.mig_id]
    assert [(device.mig_id, device.mig_profile) for device in instances] == [("1", "3g.40gb")]
    processes = reader.read(instances[0]).processes
    assert processes == (GpuProcess(pid=7, used_bytes=MIB), GpuProcess(pid=8, used_bytes=MIB))


@pytest.mark.parametrize("profile", ["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"])
def test_devices_when_an_instances_name_lacks_the_profile_then_its_size_says_it(
    profile: str, fake_driver: FakeDriver, reader: Nvml
) -> None:
    fake_driver.cut(0, {1: profile})
    fake_driver.set(0, mig=0, name="NVIDIA H100 80GB HBM3")
    assert reader.devices()[1].mig_profile == profile


def test_read_when_a_gpu_is_cut_anew_then_the_old_instance_is_gone_and_the_whole_gpu_says_all_again(
    fake_driver: FakeDriver, reader: Nvml
) -> None:
    listed_whole = gpu(reader, 0)
    fake_driver.cut(0, {1: "3g.40gb"})
    assert reader.read(listed_whole).utilization_ratio is None
    whole, instance, *_ = reader.devices()
    reader.read(whole)
    reader.read(instance)
    fake_driver.set(0, mig=0, uuid="MIG-another")
    reader.devices()
    with pytest.raises(GpuLostError, match="no longer there"):
        reader.read(instance)
    fake_driver.cut(0, {})
    assert len(reader.devices()) == 8
    assert reader.read(whole) == IDLE


# -- and never more than looking ---------------------------------------------------------------------------------------


def test_nvml_when_everything_is_asked_then_only_getters_are_called(fake_driver: FakeDriver, reader: Nvml) -> None:
    fake_driver.cut(1, {1: "3g.40gb"})
    reader.driver()
    for device in reader.devices():
        reader.read(device)
    fake_driver.reload()
    with pytest.raises(GpuDriverError):
        reader.devices()
    reader.devices()
    functions = {function for function, _ in fake_driver.calls()}
    assert len(functions) > 20
    others = {name for name in functions if not name.startswith(("nvmlDeviceGet", "nvmlSystemGet"))}
    assert others == {"nvmlInitWithFlags", "nvmlShutdown"}
