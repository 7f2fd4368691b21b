"""A Docker world, a Prometheus and a notifier in memory, on a clock of the caller's: for playbook tests and unit tests.

Takes the same calls as the real adapters and answers as they do: the contract suite runs over both. Every call that
would change something is kept in ``FakeWorld.writes``; failures are scripted per action. No threads, files, network
or real time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from remediator.clients.ports import (
    Clients,
    ContainerState,
    CpuLimit,
    Docker,
    DockerReader,
    ListedAlert,
    ListedSilence,
    ReadOnlyClients,
)
from remediator.core.alert import fingerprint, label_key
from remediator.core.event import utc_text
from remediator.core.scenario import Failure
from remediator.errors import (
    ActionError,
    ConflictError,
    InvalidTargetError,
    PermanentActionError,
    Reason,
    TargetNotFoundError,
    TransientActionError,
    UnknownEffectError,
)

PROMETHEUS = "prometheus"
"""The name of the one Prometheus that every world has."""


SOMEBODY = "somebody"
"""Who silences in a world, beside the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One call that would have changed the world.

    Attributes:
        at: by the world's clock.
        call: the action's name: ``docker.restart``, ``notify.send``.
        target: ``docker:<host>/<name>``, or the notification target's name.
        args: what it was called with, as text.
        failed: the scripted failure that it met, None when it went well.
    """

    at: datetime
    call: str
    target: str
    args: Mapping[str, str]
    failed: Failure | None = None


class FakeWorld:
    """All engines, containers and notification targets of one test.

    Attributes:
        writes: every call that would have changed something, failed ones too, in order.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        """An empty world; ``clock`` gives the moment it is, aware UTC."""
        self.writes: list[Write] = []
        self._clock = clock
        self._containers: dict[tuple[str, str], ContainerState] = {}
        self._hosts: set[str] = set()
        self._notify_targets: set[str] = set()
        self._takes_any_message = False
        self._failures: dict[str, list[Failure]] = {}
        self._interrupts: dict[str, list[BaseException]] = {}
        self._away: set[str] = set()
        self._n_cpus: dict[str, int] = {}
        self._seen: dict[str, dict[str, tuple[float, ...] | ActionError]] = {}
        self._is_prometheus_away = False
        self._prometheus = [PROMETHEUS]
        self._alertmanagers: list[str] = []
        self._alerts: dict[str, ListedAlert] = {}
        self._silences: dict[str, ListedSilence] = {}
        self._n_moments = 0

    def clients(self) -> Clients:
        """The bundle that can act on this world, with the hosts and notification targets that it has by now."""
        dockers: dict[str, Docker] = {host: _FakeDocker(self, host) for host in self._hosts}
        return Clients(
            dockers=dockers,
            notifier=_FakeNotifier(self),
            notify_targets=tuple(sorted(self._notify_targets)),
            prometheus={name: _FakePrometheus(self) for name in self._prometheus},
            alertmanagers={url: _FakeAlertmanager(self, url) for url in self._alertmanagers},
        )

    def read_only(self) -> ReadOnlyClients:
        """The bundle that can only look at it, likewise."""
        dockers: dict[str, DockerReader] = {host: _FakeDockerReader(self, host) for host in self._hosts}
        return ReadOnlyClients(
            dockers=dockers,
            notify_targets=tuple(sorted(self._notify_targets)),
            prometheus={name: _FakePrometheus(self) for name in self._prometheus},
            alertmanagers={url: _FakeAlertmanagerReader(self, url) for url in self._alertmanagers},
        )

    def now(self) -> datetime:
        """The moment it is."""
        return self._clock()

    def add_host(self, host: str) -> None:
        """A Docker engine without containers."""
        self._hosts.add(host)

    def add_notify_target(self, name: str) -> None:
        """A notification target; its messages are ``writes`` of ``notify.send``."""
        self._notify_targets.add(name)

    def take_any_message(self) -> None:
        """Let every name be one of a notification target."""
        self._takes_any_message = True

    def name_prometheus(self, names: Sequence[str]) -> None:
        """Instead of the one Prometheus, servers of these names; all know the same."""
        self._prometheus = list(names)

    def add_alertmanager(self, url: str) -> None:
        """An Alertmanager, up for an hour; all of a world are one cluster, and know what each of them is told."""
        self._alertmanagers.append(url)

    def list_alert(
        self, labels: Mapping[str, str], *, is_inhibited: bool = False, receivers: Sequence[str] = ("remediator",)
    ) -> None:
        """Let the Alertmanagers have an alert that fires."""
        self._alerts[label_key(labels)] = ListedAlert(
            labels=dict(labels),
            annotations={},
            starts_at=utc_text(self._clock()),
            ends_at="",
            generator_url="",
            fingerprint=fingerprint(labels),
            is_active=not is_inhibited,
            is_inhibited=is_inhibited,
            receivers=tuple(receivers),
        )

    def mute_alert(self, labels: Mapping[str, str], *, is_muted: bool) -> None:
        """Let a person silence it, or let no silence be left on it."""
        muted = [one for one in self._silences.values() if one.labels == labels and one.created_by == SOMEBODY]
        for one in muted:
            self.change_silence(one.id, ends_at=self._clock(), status="expired")
        if is_muted:
            self._add_silence(labels, self._clock() + timedelta(days=365), SOMEBODY, "maintenance")

    def forget_alert(self, labels: Mapping[str, str]) -> None:
        """Let them have it no more, as after its end."""
        self._alerts.pop(label_key(labels), None)

    def is_listed(self, key: str) -> bool:
        """Whether the Alertmanagers have an alert of this label key, and one of them answers."""
        return key in self._alerts and any(url not in self._away for url in self._alertmanagers)

    def change_silence(self, silence_id: str, **fields: Any) -> None:
        """What a person does to a silence (``status="expired"``, another ``ends_at``) behind everybody's back."""
        self._silences[silence_id] = replace(self._silences[silence_id], updated_at=self._clock(), **fields)

    def add_container(
        self,
        host: str,
        name: str,
        *,
        status: str = "running",
        labels: Mapping[str, str] | None = None,
        stop_timeout_s: int | None = None,
        cpu: CpuLimit = CpuLimit(),  # noqa: B008 a frozen value
        is_engine: bool = False,
    ) -> ContainerState:
        """Make a container; one of the same name is replaced, under a new id."""
        self._hosts.add(host)
        moment = self._moment()
        seed = f"{host}/{name}/{self._n_moments}".encode()
        state = ContainerState(
            id=hashlib.sha256(seed).hexdigest(),
            name=name,
            status=status,
            pid=self._pid() if status in ("running", "paused") else 0,
            started_at="" if status == "created" else moment,
            finished_at=moment if status in ("exited", "dead") else "",
            exit_code=0,
            labels=dict(labels or {}),
            stop_timeout_s=stop_timeout_s,
            removes_itself=False,
            cpu=cpu,
            is_engine=is_engine,
        )
        self._containers[host, name] = state
        return state

    def put_container(self, host: str, state: ContainerState) -> ContainerState:
        """Let a container be just so, by its name."""
        self._containers[host, state.name] = state
        return state

    def set_status(self, host: str, name: str, status: str) -> ContainerState:
        """Bring a container into a state behind everybody's back: running (a new process), exited, paused, …"""
        state = self.container(host, name)
        if status == "running" and not state.is_running:
            state = self._started(state)
        elif status not in ("running", "paused") and state.is_running:
            state = self._ended(state, status)
        else:
            state = replace(state, status=status)
        self._containers[host, name] = state
        return state

    def set_cpu(self, host: str, name: str, limit: CpuLimit) -> None:
        """Give a container this CPU limit behind everybody's back, whatever it had."""
        self._containers[host, name] = replace(self.container(host, name), cpu=limit)

    def set_n_cpus(self, host: str, n_cpus: int) -> None:
        """How many CPUs the engine can give; as many as anybody wants before."""
        self._n_cpus[host] = n_cpus

    def remove_container(self, host: str, name: str) -> None:
        """Take a container away."""
        del self._containers[host, name]

    def set_away(self, host: str, *, is_away: bool) -> None:
        """A Docker engine or an Alertmanager (its URL) that is away: each call is transient, and nothing is done."""
        (self._away.add if is_away else self._away.discard)(host)

    def sees(self, name: str, *values: float, where: str = "") -> None:
        """What the condition of this name gives from now on: a value for each series, none where nothing is there.

        Args:
            where: only where the query has this text, say a label's value; wins over what was said without.
        """
        self._seen.setdefault(name, {})[where] = tuple(map(float, values))

    def loses(self, name: str, *, where: str = "") -> None:
        """Nobody answers the query of this condition from now on; ``where`` as in ``sees``."""
        self._seen.setdefault(name, {})[where] = TransientActionError(f"Prometheus {PROMETHEUS} cannot be reached")

    def misreads(self, name: str) -> None:
        """The query of this condition is no PromQL."""
        problem = f"Prometheus {PROMETHEUS} cannot use the query: parse error"
        self._seen[name] = {"": InvalidTargetError(problem)}

    def prometheus_away(self, is_away: bool) -> None:
        """A Prometheus that is away: every question is transient."""
        self._is_prometheus_away = is_away

    def query(self, promql: str, name: str) -> tuple[float, ...]:
        """What the Prometheus answers: to a condition of which nothing was said, that there is no series."""
        if self._is_prometheus_away:
            raise TransientActionError(f"Prometheus {PROMETHEUS} cannot be reached")
        said = self._seen.get(name, {})
        # The longest text that fits, which "" always does.
        values = said.get(max((where for where in said if where in promql), key=len, default=""), ())
        if isinstance(values, ActionError):
            raise values.with_traceback(None)
        return values

    def fail(self, call: str, how: Failure, *, times: int = 1) -> None:
        """Let the next calls of this action (``docker.restart``) fail; added to what is scripted already."""
        self._failures.setdefault(call, []).extend([how] * times)

    def interrupt(self, call: str, by: BaseException) -> None:
        """Let the next call of this action be done, and its caller be torn out of it; after those said before."""
        self._interrupts.setdefault(call, []).append(by)

    def n_failures_left(self, call: str) -> int:
        """How many calls of this action are still to fail."""
        return len(self._failures.get(call, ()))

    def n_interrupts_left(self, call: str) -> int:
        """Out of how many calls of this action the caller is still to be torn."""
        return len(self._interrupts.get(call, ()))

    def has_container(self, host: str, name: str) -> bool:
        """Whether there is one of this name."""
        return (host, name) in self._containers

    def container(self, host: str, container: str) -> ContainerState:
        """A container by name, or by full or short id.

        Raises:
            TargetNotFoundError: none.
        """
        for (at_host, name), state in self._containers.items():
            if at_host == host and (name == container or (len(container) >= 12 and state.id.startswith(container))):
                return state
        raise TargetNotFoundError(
            f"container {container}: Docker engine {host} has no such container", target=f"docker:{host}/{container}"
        )

    def n_writes(self, call: str) -> int:
        """How often this call was made, failed ones too."""
        return sum(write.call == call for write in self.writes)

    def look(self, host: str, container: str) -> ContainerState:
        """As ``container``, through the engine: transient while it is away."""
        self._answers(host)
        return self.container(host, container)

    def version(self, host: str) -> str:
        """Of an engine: transient while it is away."""
        self._answers(host)
        return "fake, API 1.41"

    def act(self, call: str, host: str, container_id: str, args: Mapping[str, str]) -> None:
        """One write call to an engine: kept, then failed as scripted or done."""
        self._answers(host)
        state = self.container(host, container_id)
        how = self._next_failure(call)
        target = f"docker:{host}/{state.name}"
        self.writes.append(Write(at=self._clock(), call=call, target=target, args=args, failed=how))
        match how:
            case Failure.TRANSIENT:
                raise TransientActionError(f"{call}: scripted to fail, transient", target=target)
            case Failure.PERMANENT:
                raise PermanentActionError(f"{call}: scripted to fail, permanent", target=target)
            case Failure.UNKNOWN:
                self.add_container(host, state.name, status=state.status, labels=state.labels)
                raise UnknownEffectError(f"{call}: scripted to be unknown", target=target)
        self._containers[host, state.name] = self._after(call, host, state, args)
        self._tear_out(call)
        if how is Failure.TIMEOUT_AFTER_EFFECT:
            raise UnknownEffectError(f"{call}: scripted to time out after its effect", target=target)

    def check_cpu(self, host: str, container_id: str, limit: CpuLimit) -> None:
        """Whether the engine would take this limit for a container: permanent or a conflict where it would not."""
        self._answers(host)
        self._limited(host, self.container(host, container_id), limit)

    def tell(self, to: str, title: str, body: str) -> None:
        """One message: kept, then failed as scripted."""
        if to not in self._notify_targets and not self._takes_any_message:
            known = ", ".join(sorted(self._notify_targets)) or "none"
            raise PermanentActionError(
                f"no notification target is called {to!r} in the settings (configured: {known})", reason=Reason.NOTIFY
            )
        how = self._next_failure("notify.send")
        args = {"title": title, "body": body}
        self.writes.append(Write(at=self._clock(), call="notify.send", target=to, args=args, failed=how))
        self._tear_out("notify.send")
        if how is Failure.TRANSIENT:
            raise TransientActionError(f"notification target {to}: scripted to fail", reason=Reason.NOTIFY)
        if how is not None:
            raise PermanentActionError(f"notification target {to}: scripted to fail", reason=Reason.NOTIFY)

    def alerts(self, url: str) -> tuple[ListedAlert, ...]:
        """All alerts, as the Alertmanager of this URL lists them: transient while it is away."""
        silences = [silence for silence in self.silences(url) if silence.status == "active"]
        found = []
        for alert in self._alerts.values():
            silenced_by = tuple(one.id for one in silences if one.labels.items() <= alert.labels.items())
            found.append(replace(alert, silenced_by=silenced_by, is_active=not silenced_by and not alert.is_inhibited))
        return tuple(found)

    def silences(self, url: str) -> tuple[ListedSilence, ...]:
        """All silences of now, through the Alertmanager of this URL: transient while it is away."""
        self.alertmanager_answers(url)
        now = self._clock()
        return tuple(replace(one, status="expired") if one.ends_at <= now else one for one in self._silences.values())

    def silence(self, url: str, labels: Mapping[str, str], ends_at: datetime, created_by: str, comment: str) -> str:
        """Silence alerts through the Alertmanager of this URL; its id."""
        self.alertmanager_answers(url)
        how = self._begin("alertmanager.silence", url, dict(labels))
        silence_id = self._add_silence(labels, ends_at, created_by, comment)
        self._tear_out("alertmanager.silence")
        self._end("alertmanager.silence", url, how)
        return silence_id

    def _add_silence(self, labels: Mapping[str, str], ends_at: datetime, created_by: str, comment: str) -> str:
        self._n_moments += 1
        silence_id = hashlib.sha256(f"silence/{self._n_moments}".encode()).hexdigest()[:32]
        self._silences[silence_id] = ListedSilence(
            id=silence_id,
            labels=dict(labels),
            status="active",
            ends_at=ends_at,
            updated_at=self._clock(),
            created_by=created_by,
            comment=comment,
        )
        return silence_id

    def expire_silence(self, url: str, silence_id: str) -> None:
        """End a silence through the Alertmanager of this URL."""
        self.alertmanager_answers(url)
        if silence_id not in self._silences:
            raise TargetNotFoundError(f"Alertmanager at {url} has no such silence", target=url)
        how = self._begin("alertmanager.expire", url, {"id": silence_id}, of="alertmanager.silence")
        if self._silences[silence_id].ends_at > self._clock():
            self.change_silence(silence_id, status="expired", ends_at=self._clock())
        self._tear_out("alertmanager.silence")
        self._end("alertmanager.expire", url, how)

    def _begin(self, call: str, target: str, args: Mapping[str, str], of: str = "") -> Failure | None:
        """A call that would change something: kept, and failed where it is scripted to fail undone.

        Args:
            of: the action whose undo it is; what is scripted for that one is for its undo too.
        """
        how = self._next_failure(call) or (self._next_failure(of) if of else None)
        self.writes.append(Write(at=self._clock(), call=call, target=target, args=args, failed=how))
        match how:
            case Failure.TRANSIENT:
                raise TransientActionError(f"{call}: scripted to fail, transient", target=target)
            case Failure.PERMANENT:
                raise InvalidTargetError(f"{call}: scripted to fail, permanent", target=target)
            case Failure.UNKNOWN:
                raise UnknownEffectError(f"{call}: scripted to be unknown", target=target)
        return how

    def _end(self, call: str, target: str, how: Failure | None) -> None:
        if how is Failure.TIMEOUT_AFTER_EFFECT:
            raise UnknownEffectError(f"{call}: scripted to time out after its effect", target=target)

    def alertmanager_answers(self, url: str) -> None:
        """Nothing, but transient while the Alertmanager of this URL is away."""
        if url in self._away:
            raise TransientActionError(f"Alertmanager at {url} cannot be reached", target=url)

    def _answers(self, host: str) -> None:
        if host in self._away:
            raise TransientActionError(f"Docker engine {host} cannot be reached", target=f"docker:{host}")

    def _tear_out(self, call: str) -> None:
        if self._interrupts.get(call):
            raise self._interrupts[call].pop(0)

    def _next_failure(self, call: str) -> Failure | None:
        scripted = self._failures.get(call)
        return scripted.pop(0) if scripted else None

    def _after(self, call: str, host: str, state: ContainerState, args: Mapping[str, str]) -> ContainerState:
        match call:
            case "docker.limit":
                limit = CpuLimit(nano_cpus=int(args["nano_cpus"]), quota_us=int(args["quota_us"]))
                return self._limited(host, state, limit)
            case "docker.restart":
                return self._started(state)
            case "docker.start":
                if state.status == "paused":
                    raise ConflictError(f"container {state.name} is paused", target=state.name)
                return state if state.is_running else self._started(state)
            case "docker.stop":
                return self._ended(state, "exited") if state.is_running else state
            case _:
                if not state.is_running:
                    raise ConflictError(f"container {state.name} is not running", target=state.name)
                if args["signal"] in ("SIGKILL", "9"):
                    return self._ended(state, "exited")
                return replace(state, status="running")  # Docker ends a pause for it, or nothing would take the signal

    def _limited(self, host: str, state: ContainerState, limit: CpuLimit) -> ContainerState:
        """As Docker 20.10 does it: a field of 0 is left as it is, and each way shuts the other out once it is set."""
        n_cpus = self._n_cpus.get(host)
        if n_cpus is not None and limit.nano_cpus > n_cpus * 10**9:
            raise PermanentActionError(f"range of CPUs is from 0.01 to {n_cpus}.00", target=state.name)
        if limit.nano_cpus > 0:
            if state.cpu.period_us > 0 or state.cpu.quota_us > 0:
                raise ConflictError(f"container {state.name} has a CPU period or quota", target=state.name)
            return replace(state, cpu=replace(state.cpu, nano_cpus=limit.nano_cpus))
        if 0 < limit.quota_us < 1_000:
            raise PermanentActionError("CPU cfs quota can not be less than 1ms", target=state.name)
        if limit.quota_us > 0 and state.cpu.nano_cpus > 0:
            raise ConflictError(f"container {state.name} has NanoCpus", target=state.name)
        return replace(state, cpu=replace(state.cpu, quota_us=limit.quota_us if limit.quota_us > 0 else -1))

    def _started(self, state: ContainerState) -> ContainerState:
        return replace(state, status="running", pid=self._pid(), started_at=self._moment())

    def _ended(self, state: ContainerState, status: str) -> ContainerState:
        return replace(state, status=status, pid=0, finished_at=self._moment(), exit_code=137)

    def _pid(self) -> int:
        self._n_moments += 1
        return 1_000 + self._n_moments

    def _moment(self) -> str:
        """Now, with nanoseconds that count up: two moments differ also while the clock stands still."""
        self._n_moments += 1
        return f"{self._clock().astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}{self._n_moments % 1_000:03d}Z"


class _FakeDockerReader:
    """One engine of a world, looked at."""

    def __init__(self, world: FakeWorld, host: str) -> None:
        self._world = world
        self._host = host

    def inspect(self, container: str) -> ContainerState:
        return self._world.look(self._host, container)

    def version(self) -> str:
        return self._world.version(self._host)


class _FakeDocker(_FakeDockerReader):
    """One engine of a world, acted on."""

    def restart(self, container_id: str, *, stop_timeout_s: int, deadline_s: float) -> None:
        args = {"stop_timeout_s": str(stop_timeout_s), "deadline_s": f"{deadline_s:g}"}
        self._world.act("docker.restart", self._host, container_id, args)

    def stop(self, container_id: str, *, stop_timeout_s: int, deadline_s: float) -> None:
        args = {"stop_timeout_s": str(stop_timeout_s), "deadline_s": f"{deadline_s:g}"}
        self._world.act("docker.stop", self._host, container_id, args)

    def start(self, container_id: str, *, deadline_s: float) -> None:
        self._world.act("docker.start", self._host, container_id, {"deadline_s": f"{deadline_s:g}"})

    def signal(self, container_id: str, signal: str, *, deadline_s: float) -> None:
        self._world.act("docker.signal", self._host, container_id, {"signal": signal, "deadline_s": f"{deadline_s:g}"})

    def limit_cpu(self, container_id: str, limit: CpuLimit, *, back: CpuLimit | None = None, deadline_s: float) -> None:
        if back is not None:
            self._world.check_cpu(self._host, container_id, back)
        args = {
            "nano_cpus": str(limit.nano_cpus),
            "quota_us": str(limit.quota_us),
            "deadline_s": f"{deadline_s:g}",
        }
        self._world.act("docker.limit", self._host, container_id, args)


class _FakePrometheus:
    """The Prometheus of a world."""

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def query(self, promql: str, *, name: str = "") -> tuple[float, ...]:
        return self._world.query(promql, name)


class _FakeAlertmanagerReader:
    """One Alertmanager of a world, looked at."""

    def __init__(self, world: FakeWorld, url: str) -> None:
        self._world = world
        self._url = url
        self._started_at = world.now() - timedelta(hours=1)

    def alerts(self) -> tuple[ListedAlert, ...]:
        return self._world.alerts(self._url)

    def started_at(self) -> datetime:
        self._world.alertmanager_answers(self._url)
        return self._started_at

    def silences(self) -> tuple[ListedSilence, ...]:
        return self._world.silences(self._url)


class _FakeAlertmanager(_FakeAlertmanagerReader):
    """One Alertmanager of a world, silenced."""

    def create_silence(
        self,
        labels: Mapping[str, str],
        *,
        duration: timedelta,
        created_by: str,
        comment: str,
        deadline_s: float,  # noqa: ARG002 - no time passes here
    ) -> ListedSilence:
        ends_at = self._world.now() + duration
        silence_id = self._world.silence(self._url, labels, ends_at, created_by, comment)
        return next(one for one in self.silences() if one.id == silence_id)

    def expire_silence(self, silence_id: str, *, deadline_s: float) -> None:  # noqa: ARG002 - as above
        self._world.expire_silence(self._url, silence_id)


class _FakeNotifier:
    """The notification targets of a world."""

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def send(self, to: str, *, title: str, body: str, timeout_s: float) -> None:  # noqa: ARG002 - no time passes here
        self._world.tell(to, title, body)
