"""What actions may ask of the outside world, and the bundles they get it in.

Adapters (``dockerd``, ``notifier``, and ``fake`` for tests) implement the protocols; actions know only this module.
What a look may do and what an act may do are two types: ``targets`` and ``observe`` get ``ReadOnlyClients``' methods,
``apply`` gets those of ``Clients``. A dry run holds a ``ReadOnlyClients`` and so has nothing to act with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar

from remediator.errors import InvalidTargetError, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerHost:
    """Where one Docker engine listens, by the name that the settings give it.

    Attributes:
        name: what playbooks and targets call it (``gpu-07``).
        url: ``unix:///var/run/docker.sock``, ``tcp://gpu-07:2376`` or ``ssh://user@gpu-07``.
        tls_ca: file of the CA that signed the engine's certificate, "" = the system's own CAs.
        tls_cert, tls_key: files of our certificate and key, both or neither; any ``tls_`` value turns TLS on.
    """

    name: str
    url: str
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLimit:
    """How much CPU a container may use, as its engine keeps it: in one of two ways, which shut each other out.

    Attributes:
        nano_cpus: billionths of a CPU (``docker run --cpus``); 0 = not limited in this way.
        period_us: microseconds (``--cpu-period``); 0 = the kernel's 100 ms.
        quota_us: microseconds of CPU time in each period (``--cpu-quota``); 0 = none was ever set, -1 = lifted.
    """

    nano_cpus: int = 0
    period_us: int = 0
    quota_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """One container, as its engine describes it now.

    Attributes:
        id: 64 hex digits; kept by a restart, new when the container is made anew.
        name: without the leading slash.
        status: created, running, paused, restarting, removing, exited or dead.
        pid: of its first process on the host, 0 when it does not run.
        started_at, finished_at: RFC 3339, UTC, always nine digits after the point, so that text order is time order;
            "" = never.
        exit_code: of its last end, 0 also while it has not ended.
        labels: its own.
        stop_timeout_s: its own grace before SIGKILL; None when it has none and the engine's 10 s hold.
        removes_itself: it was made with ``--rm``: once stopped it is gone.
        cpu: its CPU limit.
        is_engine: this very process runs in it.
    """

    id: str
    name: str
    status: str
    pid: int
    started_at: str
    finished_at: str
    exit_code: int
    labels: Mapping[str, str]
    stop_timeout_s: int | None
    removes_itself: bool
    cpu: CpuLimit
    is_engine: bool

    @property
    def is_running(self) -> bool:
        """Whether it has a live process (a paused one has)."""
        return self.pid > 0


class DockerReader(Protocol):
    """One Docker engine, looked at."""

    def inspect(self, container: str) -> ContainerState:
        """The container of this name, or of this full or short (12 digits and more) id.

        Raises:
            TargetNotFoundError: none, or several ids begin so.
            AccessDeniedError: the engine does not let us.
            TransientActionError: the engine cannot be reached or does not answer.
        """
        ...

    def version(self) -> str:
        """The engine's version, for people (``20.10.24, API 1.41``). Raises as ``inspect``."""
        ...


class Docker(DockerReader, Protocol):
    """One Docker engine, acted on. Every call takes the container's id, never a name that may have moved.

    Every call answers within ``deadline_s`` seconds and raises:
        TargetNotFoundError, AccessDeniedError, ConflictError, PermanentActionError: refused, nothing was done.
        TransientActionError: it was not sent.
        UnknownEffectError: it was sent and no proper answer came.
    """

    def restart(self, container_id: str, *, stop_timeout_s: int, deadline_s: float) -> None:
        """Stop it (its stop signal, SIGKILL after ``stop_timeout_s``) and start it; starts a stopped one."""
        ...

    def stop(self, container_id: str, *, stop_timeout_s: int, deadline_s: float) -> None:
        """Stop it (its stop signal, SIGKILL after ``stop_timeout_s``); nothing when it is stopped."""
        ...

    def start(self, container_id: str, *, deadline_s: float) -> None:
        """Start it; nothing when it runs."""
        ...

    def signal(self, container_id: str, signal: str, *, deadline_s: float) -> None:
        """Send a signal (``SIGUSR1`` or ``10``) to its first process."""
        ...

    def limit_cpu(self, container_id: str, limit: CpuLimit, *, back: CpuLimit | None = None, deadline_s: float) -> None:
        """Set its CPU limit, by ``nano_cpus`` if it is above 0, else by ``quota_us`` (0 and -1 lift it), and no more.

        What is set stays over restarts. Of a container that does not run it holds from its next start.

        Args:
            limit: the period is not set: one that was never set cannot be taken away again.
            back: the limit of now, where it is to be set back one day: refused unless the engine takes that one too.
        """
        ...


class Notifier(Protocol):
    """Tells people."""

    def send(self, to: str, *, title: str, body: str, timeout_s: float) -> None:
        """Send plain text to the target of this name.

        Raises:
            PermanentActionError: there is no such target, or its fate is not known after ``timeout_s``.
            TransientActionError: a service did not take it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAlert:
    """One alert as an Alertmanager's API lists it.

    Attributes:
        starts_at, ends_at: as sent, RFC 3339.
        is_active: it fires and nothing mutes it.
        silenced_by: ids of the silences that mute it.
        is_inhibited: another alert mutes it, or a time of the day.
        receivers: names of the receivers that its routes lead to.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: str
    ends_at: str
    generator_url: str
    fingerprint: str
    is_active: bool
    silenced_by: tuple[str, ...] = ()
    is_inhibited: bool = False
    receivers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSilence:
    """One silence as an Alertmanager's API lists it.

    Attributes:
        labels: the values that an alert must have; {} where the silence asks for anything else (a regex, an absence).
        status: active, pending (it begins later) or expired (also one that somebody ended).
        ends_at, updated_at: aware.
    """

    id: str
    labels: Mapping[str, str]
    status: str
    ends_at: datetime
    updated_at: datetime
    created_by: str
    comment: str

    @property
    def is_alive(self) -> bool:
        """It mutes, or will."""
        return self.status in ("active", "pending")


class AlertmanagerReader(Protocol):
    """One Alertmanager, looked at."""

    def alerts(self) -> tuple[ListedAlert, ...]:
        """All alerts that it has, silenced and inhibited ones too.

        Raises:
            AccessDeniedError: it does not let us.
            TransientActionError: it cannot be reached or gives no proper answer.
        """
        ...

    def started_at(self) -> datetime:
        """Since when it runs, aware UTC. Raises as ``alerts``."""
        ...

    def silences(self) -> tuple[ListedSilence, ...]:
        """All silences that it has, those too that ended within the last days. Raises as ``alerts``."""
        ...


class AlertmanagerWriter(AlertmanagerReader, Protocol):
    """One Alertmanager, acted on. The others of its cluster hear of it from this one.

    Every call answers within ``deadline_s`` seconds and raises:
        AccessDeniedError, InvalidTargetError: refused, nothing was done.
        TransientActionError: it was not sent.
        UnknownEffectError: it was sent and no proper answer came.
    """

    def create_silence(
        self, labels: Mapping[str, str], *, duration: timedelta, created_by: str, comment: str, deadline_s: float
    ) -> ListedSilence:
        """Mute from now on, for ``duration``, all alerts with these label values."""
        ...

    def expire_silence(self, silence_id: str, *, deadline_s: float) -> None:
        """End a silence now; nothing when it has ended already.

        Raises:
            TargetNotFoundError: this one does not know it (yet).
        """
        ...


class LookingClients(Protocol):
    """What ``targets`` and ``observe`` get: both bundles below have it."""

    @property
    def notify_targets(self) -> tuple[str, ...]:
        """Names of the configured notification targets, sorted."""
        ...

    @property
    def alertmanagers(self) -> Mapping[str, AlertmanagerReader]:
        """The configured Alertmanagers by URL, in the settings' order; all of one cluster."""
        ...

    def docker(self, host: str) -> DockerReader:
        """The engine of this name.

        Raises:
            InvalidTargetError: no such name in the settings (``Reason.UNKNOWN_HOST``).
        """
        ...


class PrometheusReader(Protocol):
    """One Prometheus, asked."""

    def query(self, promql: str, *, name: str = "") -> tuple[float, ...]:
        """The value of each series that the query gives now; () for none. A scalar is one value.

        Args:
            name: of the condition, which is what playbook tests answer by.

        Raises:
            AccessDeniedError: it does not let us.
            InvalidTargetError: it cannot read the query.
            TransientActionError: it cannot be reached or gives no proper answer.
        """
        ...


Engine = TypeVar("Engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyClients:
    """What a dry run holds: nothing in it can act.

    Attributes:
        dockers: engine by name.
        notify_targets: names of the configured notification targets, sorted.
        prometheus: server by name.
        alertmanagers: by URL.
    """

    dockers: Mapping[str, DockerReader]
    notify_targets: tuple[str, ...] = ()
    prometheus: Mapping[str, PrometheusReader] = field(default_factory=dict)
    alertmanagers: Mapping[str, AlertmanagerReader] = field(default_factory=dict)

    def docker(self, host: str) -> DockerReader:
        """The engine of this name. Raises ``InvalidTargetError`` (``Reason.UNKNOWN_HOST``) for any other."""
        return _engine_called(host, self.dockers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What the running engine holds.

    Attributes:
        dockers: engine by name.
        notifier: sends to the configured notification targets.
        notify_targets: their names, sorted.
        prometheus: server by name.
        alertmanagers: by URL.
    """

    dockers: Mapping[str, Docker]
    notifier: Notifier
    notify_targets: tuple[str, ...] = ()
    prometheus: Mapping[str, PrometheusReader] = field(default_factory=dict)
    alertmanagers: Mapping[str, AlertmanagerWriter] = field(default_factory=dict)

    def docker(self, host: str) -> Docker:
        """The engine of this name. Raises ``InvalidTargetError`` (``Reason.UNKNOWN_HOST``) for any other."""
        return _engine_called(host, self.dockers)


def _engine_called(host: str, dockers: Mapping[str, Engine]) -> Engine:
    engine = dockers.get(host)
    if engine is None:
        known = ", ".join(sorted(dockers)) or "none"
        raise InvalidTargetError(
            f"no Docker host is called {host!r} in the settings (configured: {known}); "
            "add it there, or map the alert's labels to one of these names",
            target=f"docker:{host}",
            reason=Reason.UNKNOWN_HOST,
        )
    return engine


# -- GPUs --------------------------------------------------------------------------------------------------------------


class ThrottleReason(StrEnum):
    """Why a GPU runs below the clocks that were asked for. Values are those of the exporter's label ``reason``.

    Source: NVML, nvmlClocksEventReasons*.
    """

    GPU_IDLE = "gpu_idle"
    APPLICATIONS_CLOCKS = "applications_clocks"
    SW_POWER_CAP = "sw_power_cap"
    HW_SLOWDOWN = "hw_slowdown"
    SYNC_BOOST = "sync_boost"
    SW_THERMAL_SLOWDOWN = "sw_thermal_slowdown"
    HW_THERMAL_SLOWDOWN = "hw_thermal_slowdown"
    HW_POWER_BRAKE = "hw_power_brake"
    DISPLAY_CLOCKS = "display_clocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDriver:
    """The driver of this machine: versions as it says them, for people."""

    driver_version: str
    nvml_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """A physical GPU, or one MIG instance of it.

    Attributes:
        index: of the physical GPU, as the driver counts now; moves when one is lost.
        uuid: of the physical GPU, as the driver writes it (``GPU-…``); DCGM's label ``UUID``.
        name: the model (``NVIDIA H100 80GB HBM3``).
        pci_bus_id: ``00000000:3B:00.0``.
        mig_uuid: ``MIG-…`` of the instance; "" for a physical GPU.
        mig_id: the GPU instance's id, DCGM's label ``GPU_I_ID``; "" for a physical GPU.
        mig_profile: ``1g.10gb``, DCGM's label ``GPU_I_PROFILE``; "" for a physical GPU.
        is_mig_enabled: a physical GPU that is cut into instances: its work is seen only in those.
    """

    index: int
    uuid: str
    name: str
    pci_bus_id: str = ""
    mig_uuid: str = ""
    mig_id: str = ""
    mig_profile: str = ""
    is_mig_enabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a GPU.

    Attributes:
        pid: in the pid namespace of the driver (the host's).
        used_bytes: None where the driver does not say (no permission, some virtual GPUs).
    """

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimits:
    """Power limits in milliwatts, as NVML gives them. None: not supported here.

    Attributes:
        requested: what was set (nvmlDeviceGetPowerManagementLimit).
        enforced: what holds, after every limiter, out-of-band ones (a BMC) included.
        default, least, most: the GPU's own.
    """

    requested_mw: int | None = None
    enforced_mw: int | None = None
    default_mw: int | None = None
    least_mw: int | None = None
    most_mw: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What one device says now. None: it does not support that (or, for a MIG instance, only the physical GPU knows).

    Attributes:
        memory_used_bytes, memory_total_bytes, memory_free_bytes, memory_reserved_bytes: total = used + free + reserved.
        utilization_ratio: 0-1, share of the driver's last sample in which a kernel ran; None on MIG.
        temperature_c: of the GPU.
        memory_temperature_c: of its memory.
        slowdown_temperature_c: where its hardware slows it down.
        shutdown_temperature_c: where it switches off.
        temperature_margin_c: left until it slows down (T.Limit), as the driver says it; may be negative.
        power_mw: drawn now.
        power_limits: see there.
        throttle_reasons: those that hold now; None = not supported, empty = it runs free.
        ecc_corrected, ecc_uncorrected: since the driver was loaded or the GPU reset (volatile); None without ECC.
        remapped_correctable, remapped_uncorrectable: rows remapped for such errors.
        is_remap_pending: a row waits for the next reset; is_remap_failed: NVIDIA's criterion for a replacement.
        recovery_action: what the driver wants done: 0 nothing, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.
        processes: those that hold memory of it; None where the driver does not say.
    """

    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    utilization_ratio: float | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    slowdown_temperature_c: int | None = None
    shutdown_temperature_c: int | None = None
    temperature_margin_c: int | None = None
    power_mw: int | None = None
    power_limits: PowerLimits = field(default_factory=PowerLimits)
    throttle_reasons: frozenset[ThrottleReason] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    is_remap_pending: bool | None = None
    is_remap_failed: bool | None = None
    recovery_action: int | None = None
    processes: tuple[GpuProcess, ...] | None = None


class GpuReader(Protocol):
    """The GPU driver of this machine, looked at. Calls may hang as long as the driver does: nobody can end them.

    One ``GpuReader`` may be used by several threads at once.
    """

    def driver(self) -> GpuDriver:
        """Start the driver's library if need be, and say what it is.

        Raises:
            GpuDriverError: it does not answer.
        """
        ...

    def devices(self) -> tuple[GpuDevice, ...]:
        """Every physical GPU, and after each one cut into MIG instances those; empty = the driver sees none.

        A GPU that cannot even be named is left out: it is missing, and others are not.

        Raises:
            GpuDriverError: as ``driver``.
        """
        ...

    def read(self, device: GpuDevice) -> GpuReading:
        """What it says now.

        Raises:
            GpuLostError: it is gone, or no longer the one that was listed.
            GpuDriverError: as ``driver``.
        """
        ...
