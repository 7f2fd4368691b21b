"""A GPU driver without a GPU: the real bindings load it as ``libnvidia-ml.so.1``, and a test writes what it says.

``nvml/nvml.c``, built once into the cache folder, answers each call from a file that ``FakeDriver`` writes: a test
changes it while another process runs, and what that asks next is answered anew. Give the process ``FakeDriver.env``;
for the test's own process there is ``load_here``.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from realparts.alertmanager import cache_folder

SOURCE = Path(__file__).resolve().parent / "nvml" / "nvml.c"
SONAME = "libnvidia-ml.so.1"
MOST_GPUS, MOST_INSTANCES = 16, 7
"""What nvml.c has room for: GPUs, and MIG instances of each."""

MIB = 1024**2
GIB = 1024**3

FIELDS: Mapping[str, int] = {
    "ecc_corrected": 3,
    "ecc_uncorrected": 4,
    "memory_temperature": 82,
    "remapped_correctable": 142,
    "remapped_uncorrectable": 143,
    "remap_pending": 144,
    "remap_failed": 145,
    "recovery_action": 230,
}
"""What is asked for through nvmlDeviceGetFieldValues, and its number there (NVML_FI_DEV_…)."""

H100: Mapping[str, str | int] = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_total": 81559 * MIB,
    "memory_reserved": 560 * MIB,
    "memory_used": 0,
    "utilization": 0,
    "temperature": 35,
    "margin": 52,
    "slowdown": 90,
    "shutdown": 95,
    "power": 70_000,
    "requested_limit": 700_000,
    "enforced_limit": 700_000,
    "default_limit": 700_000,
    "least_limit": 200_000,
    "most_limit": 700_000,
    "throttling": 0x1,
    "compute": "",
    "graphics": "",
    "shared": "",
    "mig_mode": 0,
    "memory_temperature": 40,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "remapped_correctable": 0,
    "remapped_uncorrectable": 0,
    "remap_pending": 0,
    "remap_failed": 0,
    "recovery_action": 0,
}
"""What a GPU says to begin with, idle. Bytes, percent, degrees, milliwatts, bits of nvmlClocksEventReasons."""

INSTANCE_KEYS = frozenset(
    {"uuid", "name", "gpu_instance", "slices", "memory_mib", "memory_total", "memory_reserved", "memory_used"}
    | {"compute", "graphics", "shared"}
)


class FakeDriver:
    """One machine's driver.

    GPUs are named by the number they had at first, which stays whatever index the driver gives them later.

    Args:
        folder: its state; of its own.
        n_gpus: at most 16; each says what ``H100`` has.

    Raises:
        FileNotFoundError: there is no C compiler.
        subprocess.CalledProcessError: it cannot build.
    """

    def __init__(self, folder: Path, n_gpus: int = 8) -> None:
        self.folder = folder
        self.library = built()
        folder.mkdir(parents=True, exist_ok=True)
        self._calls = folder / "calls"
        self._calls.touch()
        self._written_ns = 0
        self._order = list(range(n_gpus))
        self._state: dict[str, str] = {
            "generation": "1",
            "driver.version": "580.95.05",
            "driver.nvml_version": "13.580.95.05",
        }
        for gpu in range(n_gpus):
            first = {"uuid": uuid_of(gpu), "pci": f"00000000:{0x19 + gpu:02X}:00.0"}
            for name, value in {**first, **H100}.items():
                self._state[_key(gpu, name)] = str(value)
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to see this driver."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML": str(self.folder)}

    # -- what a GPU says -----------------------------------------------------------------------------------------------

    def set(self, gpu: int, *, mig: int | None = None, **values: str | int | None) -> None:
        """Changes what a GPU, or a MIG instance of it, says: keys of ``H100``. None: it does not support that."""
        for name, value in values.items():
            known = INSTANCE_KEYS if mig is not None else H100.keys() | {"uuid", "pci"}
            if name not in known:
                raise ValueError(f"{name} is not one of {sorted(known)}")
            self._put(_key(gpu, name, mig), value)
        self._write()

    def run(
        self, gpu: int, processes: Mapping[int, int | None], *, kind: str = "compute", mig: int | None = None
    ) -> None:
        """Sets the processes of one kind (``compute``, ``graphics``, ``shared`` by MPS): pid → bytes, None = not said.

        The memory in use of the GPU or instance is set to what they use together.
        """
        shown = " ".join(f"{pid}:{-1 if used is None else used}" for pid, used in processes.items())
        self.set(gpu, mig=mig, memory_used=sum(used or 0 for used in processes.values()), **{kind: shown})

    def cut(self, gpu: int, instances: Mapping[int, str]) -> None:
        """Turns MIG mode on, with these GPU instances: id → profile (``1g.10gb``); {} turns it off."""
        for slot in range(MOST_INSTANCES):
            for name in INSTANCE_KEYS:
                self._put(_key(gpu, name, slot), None)
        for slot, (gpu_instance, profile) in enumerate(instances.items()):
            mib = int(profile.split(".")[1].rstrip("gb")) * 1024 - 768  # as the driver: a little less than its name
            values: dict[str, str | int] = {
                "uuid": f"MIG-{gpu:08x}-0000-4000-8000-{gpu_instance:012x}",
                "name": f"{self._state[_key(gpu, 'name')]} MIG {profile}",
                "gpu_instance": gpu_instance,
                "slices": profile.split("g.")[0],
                "memory_mib": mib,
                "memory_total": mib * MIB,
                "memory_reserved": 0,
                "memory_used": 0,
                "compute": "",
                "graphics": "",
                "shared": "",
            }
            for name, value in values.items():
                self._put(_key(gpu, name, slot), value)
        self._put(_key(gpu, "mig_mode"), int(bool(instances)))
        # As the driver does: how busy it is, only its instances know, and they do not say.
        self._put(_key(gpu, "utilization"), None if instances else 0)
        self._write()

    # -- faults --------------------------------------------------------------------------------------------------------

    def fail(self, gpu: int | None, code: int | None, function: str = "", *, mig: int | None = None) -> None:
        """Lets calls end with an error code of NVML (4 no permission, 15 lost, …); None: no longer.

        Args:
            gpu: which, None = the driver as a whole.
            function: only this one, by its name in the library (``nvmlDeviceGetPowerUsage``), or ``field.82`` for one
                field; "" = all.
            mig: only this instance, by its slot.
        """
        self._put(_scope(gpu, mig) + (f".error.{function}" if function else ".error"), code)
        self._write()

    def lose(self, gpu: int) -> None:
        """It falls off the bus: every question to it ends with "GPU is lost"."""
        self.fail(gpu, 15)

    def restore(self, gpu: int, *, needs_restart: bool = False) -> None:
        """It is back after ``lose`` or ``drop``; ``needs_restart``: only for a library started after this moment."""
        self._put(_scope(gpu) + ".error", None)
        self._put(_scope(gpu) + ".restored_at", f"{time.time():.6f}" if needs_restart else None)
        self._order = sorted({*self._order, gpu})
        self._write()

    def drop(self, gpu: int) -> None:
        """The driver forgets it: it counts one less, and those after it move up."""
        self._order.remove(gpu)
        self._write()

    def hang(self, gpu: int | None, function: str = "", *, seconds: float = -1) -> None:
        """Lets calls wait that long; below 0: until ``release``. Arguments as in ``fail``."""
        self._put(_scope(gpu) + (f".hang.{function}" if function else ".hang"), str(seconds))
        self._write()

    def release(self) -> None:
        """Nothing hangs any more."""
        for key in [key for key in self._state if ".hang" in key]:
            del self._state[key]
        self._write()

    def reload(self) -> None:
        """The kernel module was unloaded and loaded: a library that had been started has to be started anew."""
        self._state["generation"] = str(int(self._state["generation"]) + 1)
        self._write()

    def count_reserved_as_used(self) -> None:
        """Nvml's own figure of used memory includes the reserved, as that of some versions does."""
        self._state["driver.used_includes_reserved"] = "1"
        self._write()

    # -- what was asked ------------------------------------------------------------------------------------------------

    def calls(self) -> Counter[tuple[str, str]]:
        """How often each function was called, and of whom: ``("nvmlDeviceGetPowerUsage", "gpu0")``, else ``driver``."""
        lines = self._calls.read_text().splitlines()
        return Counter((line.split()[0], line.split()[1]) for line in lines)

    def forget_calls(self) -> None:
        """Counts from 0 again."""
        os.truncate(self._calls, 0)

    # ------------------------------------------------------------------------------------------------------------------

    def _put(self, key: str, value: str | int | None) -> None:
        if value is None:
            self._state.pop(key, None)
        else:
            self._state[key] = str(value)

    def _write(self) -> None:
        self._state["order"] = " ".join(map(str, self._order))
        new = self.folder / "state.new"
        text = "".join(f"{key} {value}\n" for key, value in self._state.items())
        new.write_text(text, encoding="utf-8", errors="surrogateescape")  # so that a name can be no text
        # nvml.c knows a new state by its time, and a file system's clock is too coarse for two in a row.
        self._written_ns = max(self._written_ns + 1, time.time_ns())
        os.utime(new, ns=(self._written_ns, self._written_ns))
        new.rename(self.folder / "state")


def uuid_of(gpu: int) -> str:
    """The UUID that a GPU has at first."""
    return f"GPU-{gpu:08x}-0000-4000-8000-00000000abcd"


def _scope(gpu: int | None, mig: int | None = None) -> str:
    if gpu is None:
        return "driver"
    return f"gpu{gpu}" if mig is None else f"gpu{gpu}.mig{mig}"


def _key(gpu: int, name: str, mig: int | None = None) -> str:
    shown = f"field.{FIELDS[name]}" if name in FIELDS else name
    return f"{_scope(gpu, mig)}.{shown}"


@cache
def built() -> Path:
    """The library, built where it is not yet.

    Raises:
        FileNotFoundError: there is no C compiler.
        subprocess.CalledProcessError: it could not be built; what gcc said is on stderr.
    """
    gcc = shutil.which("gcc")
    if gcc is None:
        raise FileNotFoundError("gcc is not installed; `make setup` as root installs it")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = cache_folder() / f"nvml-{digest}" / SONAME
    library.parent.mkdir(parents=True, exist_ok=True)
    with (library.parent / "lock").open("w") as lock:  # two test runs at once build once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            half_built = library.with_suffix(".new")
            flags = ["-shared", "-fPIC", "-O2", "-pthread", f"-Wl,-soname,{SONAME}"]
            subprocess.run([gcc, *flags, "-o", str(half_built), str(SOURCE)], check=True)
            half_built.rename(library)
    return library


@cache
def load_here() -> None:
    """Lets this process have the library: whoever asks for its soname from now on gets it.

    Without ``FAKE_NVML`` in the environment it says that there is no library. ``FakeDriver.env`` names a folder.
    """
    ctypes.CDLL(str(built()), mode=ctypes.RTLD_GLOBAL)
