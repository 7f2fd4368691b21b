"""The tables of the GPU driver's adapter: whatever its vendor has is in them."""

from __future__ import annotations

import pynvml
import pytest

from remediator.clients import nvml
from remediator.clients.nvml import ERRORS, THROTTLE_BITS, Nvml, Says, classify, throttle_reasons
from remediator.clients.ports import ThrottleReason
from remediator.errors import GpuDriverError

CODES = {
    name.removeprefix("NVML_ERROR_"): code for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")
}


def test_errors_when_the_vendor_has_a_code_then_it_is_there_and_no_other() -> None:
    assert len(CODES) > 25
    assert sorted(ERRORS) == sorted(CODES)


@pytest.mark.parametrize("name", sorted(CODES))
def test_classify_when_given_the_number_then_the_row_of_its_name_counts(name: str) -> None:
    assert classify(CODES[name]) is ERRORS[name]


def test_classify_when_the_code_is_of_a_newer_driver_then_nothing_is_concluded_from_it() -> None:
    assert classify(777) is Says.NOT_NOW


def test_throttle_reasons_when_the_vendor_has_a_reason_then_its_bit_is_there() -> None:
    bits = {
        bits
        for name, bits in vars(pynvml).items()
        if name.startswith("nvmlClocksEventReason") and not name.endswith(("None", "All"))
    }
    assert sorted(THROTTLE_BITS) == sorted(bits)
    assert set(THROTTLE_BITS.values()) == set(ThrottleReason)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0, set()),
        (0x44, {ThrottleReason.SW_POWER_CAP, ThrottleReason.HW_THERMAL_SLOWDOWN}),
        (1 << 40, set()),
    ],
    ids=["none: it runs free", "two at once", "one that a newer driver has"],
)
def test_throttle_reasons_when_bits_are_given_then_each_known_one_is_named(
    bits: int, reasons: set[ThrottleReason]
) -> None:
    assert throttle_reasons(bits) == reasons


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1g.10gb"),
        ("NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb", "3g.40gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
    ],
)
def test_profile_when_the_name_says_it_then_it_is_that_of_the_gpu_instance(name: str, profile: str) -> None:
    found = nvml._PROFILE.search(name)
    assert found is not None
    assert found.group(1) == profile


def test_driver_when_there_is_no_library_then_it_is_absent_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "CDLL", no_library)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    reader = Nvml()
    for ask in (reader.driver, reader.devices):
        with pytest.raises(GpuDriverError, match=r"no NVIDIA driver here.*install the driver") as caught:
            ask()
        assert caught.value.is_absent
