"""The composition root: settings → a wired engine, real or dry. No other module builds things."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from remediator import __version__
from remediator.actions import LOOKING, REGISTRY
from remediator.clients.http import Login
from remediator.clients.ports import AlertmanagerReader, Clients, DockerHost, PrometheusReader, ReadOnlyClients
from remediator.clients.prometheus import Prometheus
from remediator.core.action import JsonValue
from remediator.core.alert import RawDelivery
from remediator.core.event import Event, EventType, RecordedEvent, utc_text
from remediator.core.lease import OPEN_STATES, PREFIX
from remediator.core.move import WAITING_FOR
from remediator.core.playbook import PlaybookSet
from remediator.core.run import Phase, Run
from remediator.engine.breaker import Breakers
from remediator.engine.clock import Clock, StoryClock, SystemClock
from remediator.engine.conditions import Conditions
from remediator.engine.difference import difference
from remediator.engine.dispatch import Dispatch, Duty
from remediator.engine.dryrun import Wiring, assumptions, dry_run
from remediator.engine.execute import UNHEARD, Executor
from remediator.engine.fleets import Fleets
from remediator.engine.hindsight import Hindsight
from remediator.engine.leases import Leases
from remediator.engine.life import Life
from remediator.engine.people import PauseSwitch, People, find_run
from remediator.engine.pipeline import Pipeline
from remediator.engine.playtest import Workshop
from remediator.engine.question import Asked, newest_question, why_not
from remediator.engine.receive import Intake, Receipt, Receiver
from remediator.engine.reconcile import SILENCE, Reconciler
from remediator.engine.record import Recorder
from remediator.engine.recover import Keeper, recover
from remediator.engine.reload import Reloader
from remediator.engine.replay import Wanted, replay
from remediator.engine.reserve import Reserver
from remediator.engine.verify import Verifier
from remediator.errors import PlaybooksRefusedError, RequestError, StoreError, StoreUnavailableError
from remediator.loading import LoadContext, Loaded, load
from remediator.settings import (
    AlertmanagerSettings,
    PrometheusServerSettings,
    Settings,
    notify_urls,
    read_secret_file,
    secret_values,
)
from remediator.store import Connection, audit, breakers, inbox, leases, past, room, runs, subjects
from remediator.store.connection import store_path
from remediator.store.engine import Store, open_readonly, open_store
from remediator.store.runs import RunRow
from remediator.store.writer import Tx
from remediator.telemetry import Metrics, configure_logging, get_logger

log = get_logger(__name__)

LATELY = timedelta(days=1)
"""What ``status`` counts the ends of."""

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""Since when the playbooks of a story are in force: what fires when it begins is not left to people (adopted)."""

DRY_RUNS = 2
"""At a time: each asks Docker engines that may hang, in a thread that a person who pauses may need."""

DRY_RUN_ALERTS = 50
"""In one dry run through the API, for the same reason; ``remediator plan`` on the machine has no limit."""

REJECTIONS_PER_MINUTE = 60
"""Refused deliveries that the audit keeps: a misconfigured sender must not fill it. All are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether the engine can do its work.

    Attributes:
        checks: name → "ok", or what is wrong and what to do.
    """

    is_ready: bool
    checks: Mapping[str, str]


def load_playbooks(settings: Settings, paths: Sequence[Path] = (), *, takes_any_message: bool = False) -> Loaded:
    """The playbooks and policies of these settings, or of other paths.

    Args:
        takes_any_message: messages may go to names that the settings do not have.

    Returns:
        What was loaded with every problem; never raises for what is in the files.
    """
    context = LoadContext(
        label_map=settings.to_label_map(),
        ignore_labels=frozenset(settings.ignore_labels),
        vars=cast("Mapping[str, JsonValue]", settings.vars),  # the settings refuse null and floats
        notify_targets=None if takes_any_message else frozenset(settings.notify),
        default_report_to=settings.report_to,
        default_escalate_to=settings.escalate_to,
        public_url=settings.public_url,
        actions=LOOKING,
        fleets=settings.to_fleets(),
        unusable={} if settings.alertmanager.urls else {SILENCE: "needs alertmanager.urls in the settings"},
    )
    return load(list(paths or settings.playbooks), context=context)


def docker_hosts(settings: Settings) -> dict[str, DockerHost]:
    """The configured Docker engines by name."""
    return {
        name: DockerHost(
            name=name,
            url=host.url,
            tls_ca=str(host.tls_ca or ""),
            tls_cert=str(host.tls_cert or ""),
            tls_key=str(host.tls_key or ""),
        )
        for name, host in settings.docker.hosts.items()
    }


def build_app(settings: Settings) -> App:
    """The real engine, wired and not started.

    Raises:
        SettingsError: a notification URL is wrong.
        StoreError: the store cannot be opened, or another engine has it.
    """
    # What only a real engine needs takes as long to import as all else together: no test of a playbook waits for it.
    from remediator.clients.alertmanager import SilencingAlertmanager
    from remediator.clients.dockerd import Dockerd
    from remediator.clients.notifier import AppriseNotifier

    configure_logging(level=settings.log_level, log_format=settings.log_format, secrets=secret_values(settings))
    urls = {name: notify_urls(target) for name, target in settings.notify.items()}
    clients = Clients(
        dockers={name: Dockerd(host) for name, host in docker_hosts(settings).items()},
        notifier=AppriseNotifier(urls),
        notify_targets=tuple(sorted(urls)),
        prometheus=prometheus_readers(settings),
        alertmanagers={
            url: SilencingAlertmanager(url, _login(settings.alertmanager)) for url in settings.alertmanager.urls
        },
    )
    return App(settings, clients)


def _login(wanted: AlertmanagerSettings | PrometheusServerSettings) -> Login:
    """How others' APIs let us in."""
    return Login(
        token=_secret(wanted.token_file),
        username=wanted.username,
        password=_secret(wanted.password_file),
        tls_ca=str(wanted.tls_ca or ""),
    )


def prometheus_readers(settings: Settings) -> dict[str, PrometheusReader]:
    """The configured Prometheus servers by name."""
    return {name: prometheus_reader(name, server) for name, server in settings.prometheus.servers.items()}


def prometheus_reader(name: str, server: PrometheusServerSettings) -> PrometheusReader:
    """One Prometheus."""
    return Prometheus(name, server.url, _login(server))


def fleets_of(conditions: Conditions, settings: Settings) -> Fleets:
    """The sizes of fleets, asked of the only Prometheus that there is."""
    servers = list(settings.prometheus.servers)
    return Fleets(conditions, servers[0] if len(servers) == 1 else "")


def _secret(file: Path | None) -> Callable[[], str] | None:
    return None if file is None else (lambda: read_secret_file(file)[0])


def build_dry_app(settings: Settings) -> DryApp:
    """What ``remediator plan`` uses: it can look and cannot act."""
    return DryApp(settings, read_only_clients(settings), SystemClock())


def read_only_clients(settings: Settings) -> ReadOnlyClients:
    """Clients that can only look."""
    from remediator.clients.alertmanager import Alertmanager
    from remediator.clients.dockerd import DockerdReader

    return ReadOnlyClients(
        dockers={name: DockerdReader(host) for name, host in docker_hosts(settings).items()},
        notify_targets=tuple(sorted(settings.notify)),
        prometheus=prometheus_readers(settings),
        alertmanagers={url: Alertmanager(url, _login(settings.alertmanager)) for url in settings.alertmanager.urls},
    )


def story_workshop() -> Workshop:
    """What playbook tests are played with: the engine itself, alone, on what a story makes for it."""
    return Workshop(
        load=lambda settings, paths: load_playbooks(settings, paths, takes_any_message=not settings.notify),
        build=partial(StoryApp, able_since=LONG_AGO),
        actions=LOOKING,
    )


def replay_deliveries(
    settings: Settings,
    playbooks: Sequence[Path] = (),
    *,
    since: datetime,
    until: datetime | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, Any]:
    """Decide the stored deliveries anew; see ``engine.replay``. Nobody is asked, and the store is only read.

    Args:
        playbooks: files and folders instead of the settings'.
        since, until: aware; None = now.

    Raises:
        PlaybooksRefusedError: the playbooks cannot be loaded.
        StoreError: there is no store, or it cannot be read.
        ReplayError: the engine met an error that nobody foresaw.
    """
    loaded = load_playbooks(settings, playbooks)
    if loaded.problems:
        raise PlaybooksRefusedError([str(problem) for problem in loaded.problems])

    def build(settings: Settings, clients: Clients, clock: StoryClock, loaded: Loaded, then: Hindsight) -> StoryApp:
        return StoryApp(settings, clients, clock, loaded, hindsight=then)

    store = open_readonly(settings.store_url)
    try:
        with TemporaryDirectory(prefix="remediator-replay-") as folder:
            wanted = Wanted(
                since=since,
                until=until or datetime.now(UTC),
                settings=settings,
                loaded=loaded,
                folder=Path(folder),
                on_progress=on_progress,
            )
            return replay(store.read, wanted, build)
    finally:
        store.close()


class DryApp:
    """Plans and judges; opens the store read-only, where there is one."""

    def __init__(self, settings: Settings, clients: ReadOnlyClients, clock: Clock) -> None:
        self.settings = settings
        self._clients = clients
        self._clock = clock

    def dry_run(self, body: bytes, *, playbooks: Sequence[Path] = (), at: datetime | None = None) -> dict[str, Any]:
        """What would be done for this delivery.

        Args:
            playbooks: files and folders to plan with instead of the settings'.
            at: decided as of this moment, past or to come; None = now. Then the answer has ``at`` and ``assumes`` too.

        Raises:
            DecodeError: it is not a delivery.
            PlaybooksRefusedError: the playbooks cannot be loaded.
            StoreError: the store is there and cannot be read.
        """
        rules = self._load(playbooks)
        with self._wired(at) as (wiring, assumed):
            return dry_run(body, replace(wiring, playbooks=rules)) | assumed

    def difference(self, body: bytes, playbooks: Sequence[Path], *, at: datetime | None = None) -> dict[str, Any]:
        """What other playbooks than the settings' would change for this delivery; takes and raises as ``dry_run``."""
        running, others = self._load(()), self._load(playbooks)
        with self._wired(at) as (wiring, assumed):
            was = dry_run(body, replace(wiring, playbooks=running))
            return difference(was, dry_run(body, replace(wiring, playbooks=others))) | assumed

    def _load(self, paths: Sequence[Path]) -> PlaybookSet:
        loaded = load_playbooks(self.settings, paths)
        if loaded.problems:
            raise PlaybooksRefusedError([str(problem) for problem in loaded.problems])
        return loaded.playbook_set

    @contextmanager
    def _wired(self, at: datetime | None) -> Iterator[tuple[Wiring, dict[str, Any]]]:
        """All but the playbooks, and what the answer says of the moment."""
        now = self._clock.now()
        conditions = Conditions(self._clients.prometheus)
        wiring = Wiring(
            playbooks=PlaybookSet(),
            actions=LOOKING,
            clients=self._clients,
            conditions=conditions,
            fleets=fleets_of(conditions, self.settings),
            now=at or now,
            read=None,
            pause=PauseSwitch(self.settings.pause_file),
        )
        if not self.settings.store_path.exists():
            yield wiring, {} if at is None else _moment(at, assumptions(at, now, None))
            return
        store = open_readonly(self.settings.store_url)
        try:
            if at is None:
                yield replace(wiring, read=store.read), {}
            elif at >= now:
                yield replace(wiring, read=store.read), _moment(at, assumptions(at, now, None))
            else:
                with store.read() as conn:  # one snapshot for all: to look back in takes a while
                    past.look_back(conn, at)
                    assumed = assumptions(at, now, past.log_begins(conn))
                    then = replace(wiring, read=lambda: nullcontext(conn), pause=runs.get_pause)
                    yield then, _moment(at, assumed)
        finally:
            store.close()


def _moment(at: datetime, assumed: Sequence[str]) -> dict[str, Any]:
    return {"at": utc_text(at), "assumes": list(assumed)}


class App:
    """The running engine: what the web and the acceptance tests drive.

    Args:
        clients: the real ones, or a test's. Without Alertmanagers deliveries alone say what fires.
        load: reads the playbooks; None = from the settings' folders.
        jitter: see ``Executor``; None = random.
        is_alone: one thread drives it (``work``), on a clock that it moves itself, with a store that nobody needs
            afterwards: what stories are played on.
        hindsight: what neighbours said, for a replay: then no Prometheus and no Alertmanager is asked.
        able_since: see ``Reloader``.
    """

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        *,
        clock: Clock | None = None,
        load: Callable[[], Loaded] | None = None,
        jitter: Callable[[], float] | None = None,
        is_alone: bool = False,
        hindsight: Hindsight | None = None,
        able_since: datetime | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._clients = clients
        self._clock = clock or SystemClock()
        self._store: Store = open_store(settings.store_url, is_scratch=is_alone)
        self._is_alone = is_alone
        self._is_stopping = False
        self._hindsight = hindsight
        self._dry_runs = threading.BoundedSemaphore(DRY_RUNS)
        self._asks_at: datetime | None = None
        self._rejections: list[datetime] = []
        self._waiting: tuple[float, Mapping[str, int]] = (float("-inf"), {})
        store, recorder, when = self._store, Recorder(self.metrics), self._clock
        self._recorder = recorder
        pause = PauseSwitch(settings.pause_file)
        self._pause = pause
        asked = Conditions(clients.prometheus, self.metrics, is_alone=is_alone)
        conditions = self.conditions = asked if hindsight is None else hindsight.conditions
        self._life = Life(store, when)
        self._reloader = Reloader(
            load or (lambda: load_playbooks(settings)), store, recorder, when, self.metrics, able_since
        )
        self._fleets = fleets_of(conditions, settings)
        reserver = Reserver(store, recorder, REGISTRY, clients, conditions, self._fleets, when, pause)
        executor = Executor(store, recorder, REGISTRY, clients, when, **({} if jitter is None else {"jitter": jitter}))
        verifier = Verifier(store, recorder, conditions)
        self.pipeline = Pipeline(
            store, recorder, self._reloader, REGISTRY, reserver, executor, verifier, when, self._life, pause,
            settings.escalate_to,
        )  # fmt: skip
        self._dispatch = Dispatch(self._advance, when, settings.workers, recorder.note_bug)
        executor.attach(self._dispatch.wake)
        self._leases = Leases(
            store, recorder, REGISTRY, clients, when, pause, ask=conditions.ask,
            n_places=lambda: self._reloader.now.playbooks.policy.max_concurrent_runs, wake=self._dispatch.wake,
        )  # fmt: skip
        self._intake = Intake(
            store, recorder, self._reloader, REGISTRY, when, self._life, self._dispatch, settings.expire_after
        )
        self._receiver = Receiver(store, recorder, self._intake, self.metrics)
        self._reconciler = self._make_reconciler(clients.alertmanagers) if hindsight is None else None
        hear = self._reconciler.hear if self._reconciler is not None else None
        self.pipeline.attach(self._dispatch, hear if hindsight is None else hindsight.hear)
        self._breakers = Breakers(store, recorder, self._reloader, when, self._dispatch)
        self._people = People(store, recorder, self._reloader, REGISTRY, when, self._dispatch, self._life)
        self._keeper = Keeper(
            self._life,
            self._intake,
            store,
            self._dispatch,
            watched=settings.playbooks if settings.watch_playbooks and load is None else (),
            on_change=lambda: self.reload("file change"),
            on_beat=self._beat,
            note_bug=recorder.note_bug,
        )
        if not is_alone:  # nobody scrapes it
            self._watch_gauges()

    def _make_reconciler(self, readers: Mapping[str, AlertmanagerReader]) -> Reconciler | None:
        if not readers:
            return None
        reconciler = Reconciler(
            readers,
            receiver=self.settings.alertmanager.receiver,
            starts=self.settings.reconcile.starts,
            store=self._store,
            recorder=self._recorder,
            intake=self._intake,
            accept=self.accept,
            clock=self._clock,
            metrics=self.metrics,
            is_alone=self._is_alone,
        )
        self._intake.tell_of_cut_groups(reconciler.note_cut)
        return reconciler

    # -- life

    def start(self) -> None:
        """Load the playbooks, take up what the last engine left, take deliveries.

        Raises:
            PlaybooksRefusedError: there is no older set to fall back to, and one without playbooks lets alerts pass.
            StoreError: the store is away.
        """
        self.prepare()
        self._dispatch.start()
        self._intake.start()
        self._keeper.start()
        self.conditions.probe()
        if self._reconciler is not None:
            self._reconciler.start()

    def prepare(self) -> None:
        """All of ``start`` but the threads: tests drive ``work`` themselves. Raises as ``start``."""
        try:
            self._life.start()
            self._note(EventType.ENGINE_STARTED, {"version": __version__, "pid": os.getpid()})
            report = self._reloader.reload("start")
            if not report["ok"]:
                raise PlaybooksRefusedError(list(self._reloader.problems))
        except BaseException:
            self._store.close()
            raise
        n_left = recover(self._store, self._dispatch)
        log.info("engine started", version=__version__, playbooks=report["playbooks"], runs_taken_up=n_left)
        self._warn_of_no_playbook()
        self._watch_breakers()

    def _advance(self, what: str, duty: Duty) -> datetime | None:
        """Let a run, or the leases on a target, go as far as they can now."""
        if self._hindsight is not None:
            self._hindsight.is_about(what)
        return self._leases.advance(what) if what.startswith(PREFIX) else self.pipeline.advance(what, duty)

    def work(self) -> datetime | None:
        """Do all that is due now, in this thread: for tests, which move the clock and start no threads.

        Returns:
            When something is due next, None when nothing is.
        """
        self._look_at_pause_file()
        if self._reconciler is not None:
            self._asks_at = self._reconciler.step()
        self._intake.expire()  # after it: what an Alertmanager has does not expire, however far the clock was moved
        while self._intake.handle_waiting():
            if self._reconciler is not None:
                self._asks_at = self._reconciler.step()  # what was cut from a group is fetched at once
        return min((at for at in (self._asks_at, self._dispatch.run_due()) if at is not None), default=None)

    def stop(self) -> None:
        """Take nothing new, let what runs end within ``shutdown_grace``, close the store.

        What does not end in time is found by the next start as an attempt without an end, and looked at first.
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        is_clean = self._dispatch.stop(self.settings.shutdown_grace)
        if self._reconciler is not None:
            self._reconciler.stop()
        self._keeper.stop()
        self._intake.stop()
        try:
            self._life.beat()
            self._note(EventType.ENGINE_STOPPED, {"left_running": self._dispatch.n_running()})
        except StoreUnavailableError as error:
            log.error("the stop could not be recorded", problem=str(error))
        self._store.close()
        log.info("engine stopped", clean=is_clean)

    def _note(self, kind: EventType, data: Mapping[str, Any]) -> None:
        event = Event(type=kind, at=self._clock.now(), data=data)
        self._store.write(lambda tx: self._recorder.append(tx, event))

    # -- deliveries

    def accept(self, raw: RawDelivery) -> Receipt:
        """Commit one delivery; its alerts are handled afterwards.

        Raises:
            DecodeError, UnsupportedVersionError: never valid (400).
            StoreUnavailableError: send it again (503).
        """
        return self.submit(raw).result()

    def submit(self, raw: RawDelivery) -> Future[Receipt]:
        """As ``accept``, but for whoever waits in another way: the future's result is the committed delivery's receipt.

        Raises:
            DecodeError, UnsupportedVersionError: never valid (400).
            StoreUnavailableError: send it again (503); the future can raise it as well.
        """
        if self._is_stopping:
            raise StoreUnavailableError("the engine is stopping; send it again")
        return self._receiver.submit(raw)

    def reject(self, source: str, received_at: datetime, http_status: int, problem: str, n_bytes: int) -> Future[None]:
        """Record that a delivery was refused. Raises nothing: the refusal stands whether it is recorded or not.

        Returns:
            Done once it is recorded or cannot be; never fails.
        """
        recorded: Future[None] = Future()
        fresh = [at for at in self._rejections if received_at - at < timedelta(minutes=1)]
        self._rejections = fresh
        log.warning("delivery refused", source=source, http_status=http_status, problem=problem, n_bytes=n_bytes)
        if len(fresh) >= REJECTIONS_PER_MINUTE:
            recorded.set_result(None)
            return recorded
        fresh.append(received_at)
        data: dict[str, JsonValue] = {
            "source": source,
            "http_status": http_status,
            "detail": problem,
            "n_bytes": n_bytes,
        }
        event = Event(type=EventType.DELIVERY_REJECTED, at=received_at, data=data)

        def is_done(commit: Future[RecordedEvent]) -> None:
            error = commit.exception()
            if error is not None:
                log.error("a refused delivery could not be recorded", problem=str(error))
            if recorded.set_running_or_notify_cancel():  # nobody has given up waiting
                recorded.set_result(None)

        try:
            commit = self._store.submit(lambda tx: self._recorder.append(tx, event))
        except StoreUnavailableError as error:
            commit = Future()
            commit.set_exception(error)
        commit.add_done_callback(is_done)
        return recorded

    # -- what it says of itself

    def readiness(self) -> Readiness:
        """Whether deliveries are taken and acted on."""
        store = self._store.is_ok()
        checks = {
            "store": store,
            "playbooks": "; ".join(self._reloader.problems) or "ok",
            "inbox": "ok" if self._intake.is_alive else "the inbox thread does not run: restart the engine",
            "workers": "ok" if self._dispatch.is_alive else "a worker does not run: restart the engine",
            "engine": "stopping" if self._is_stopping else "ok",
            "messages": self._reach() if store == "ok" else "ok",  # not known, and one thing to mend is enough
            "prometheus": self._sight(),
        }
        # A bad playbook file leaves the whole old set in force, other deliveries may be acted on though nobody is told,
        # or nothing can be verified: all show, and take nobody out of service.
        vital = (value for name, value in checks.items() if name not in ("playbooks", "messages", "prometheus"))
        return Readiness(is_ready=all(value == "ok" for value in vital), checks=checks)

    def _reach(self) -> str:
        """Whether the last escalation reached anybody; a message that arrived since says that the way is open again."""
        try:
            unheard = self._read(lambda conn: runs.get_control(conn, UNHEARD))
        except StoreError:
            return "ok"
        if unheard is None:
            return "ok"
        return (
            f"the last escalation (run {unheard['run_id']}) reached nobody at {unheard['at'][:19]}Z: look at that run"
            " (remediator runs --state all), and at notify in the settings"
        )

    def _sight(self) -> str:
        """Whether each Prometheus answers; why one does not is for the log and for doctor: anybody may ask this."""
        silent = ", ".join(self.conditions.silent())
        return (
            f"no answer from {silent}: what they are asked waits or ends unverified (remediator doctor)"
            if silent
            else "ok"
        )

    def reload(self, actor: str) -> dict[str, Any]:
        """Load the playbooks anew, all or nothing; see ``Reloader.reload``."""
        report = self._reloader.reload(actor)
        if not report["ok"]:
            log.error("playbooks not loaded, the old set stays in force", problems=report["problems"])
        self._warn_of_no_playbook()
        self._watch_breakers()
        recover(self._store, self._dispatch)
        return report

    def _warn_of_no_playbook(self) -> None:
        """An empty folder is allowed, and mostly a mount or a path that is not what somebody thinks."""
        if not self._reloader.now.playbooks.playbooks:
            log.warning("no playbook is in force: nothing will be done about any alert")

    def _beat(self) -> None:
        self.conditions.probe()
        self._look_at_pause_file()

    def _look_at_pause_file(self) -> None:
        if self._pause.has_file_changed():
            recover(self._store, self._dispatch)

    def status(self) -> dict[str, Any]:
        """What a person wants to see first."""
        in_force = self._reloader.now.playbooks
        with self._store.read() as conn:
            n_episodes, n_subjects = subjects.n_open(conn)
            pause = self._pause(conn)
            waiting = [self._run_dict(conn, row) for row in runs.list_runs(conn, "open", 100)]
            unsettled = runs.unsettled(conn)
            phases = runs.count_by_phase(conn)
            waiting_for = runs.count_waiting(conn)
            ended = runs.count_ended(conn, self._clock.now() - LATELY)
            n_adopted = subjects.n_adopted(conn)
            n_waiting = inbox.n_unhandled(conn)
            n_leases = leases.count_by_state(conn)
            seq, head = audit.head(conn)
        readiness = self.readiness()
        return {
            "version": __version__,
            "ready": readiness.is_ready,
            "checks": dict(readiness.checks),
            "up_since": utc_text(self._life.up_since),
            "mode": in_force.policy.mode.value,
            "tripped_breakers": [one for one in self.breakers() if one["tripped"] and one["in_force"]],
            "paused": {"by": pause.by, "reason": pause.reason, "at": pause.at} if pause is not None else None,
            "playbooks": [playbook.name for playbook in in_force.playbooks],
            "open_alerts": n_episodes,
            "open_subjects": n_subjects,
            "adopted_subjects": n_adopted,
            "deliveries_waiting": n_waiting,
            "open_leases": sum(n_leases.values()),
            "runs_by_phase": phases,
            "waiting_for": waiting_for,
            "ended_lately": [{"outcome": outcome, "reason": reason, "n": n} for outcome, reason, n in ended],
            "open_runs": waiting,
            "unsettled_runs": unsettled,
            "audit": {"seq": seq, "hash": head},
        }

    def runs(self, limit: int, state: str) -> list[dict[str, Any]]:
        """Runs, newest first; ``state`` is open, ended or all."""
        with self._store.read() as conn:
            return [self._run_dict(conn, row) for row in runs.list_runs(conn, state, limit)]

    def run(self, run_id: str) -> dict[str, Any]:
        """One run with its events.

        Raises:
            RequestError: 404.
        """
        with self._store.read() as conn:
            row = find_run(conn, run_id)
            shown = self._run_dict(conn, row)
            recorded = audit.log_of_run(conn, row.id)
        events = [
            {
                "seq": one.seq,
                "at": utc_text(one.event.at),
                "type": one.event.type.value,
                "actor": one.event.actor,
                "outcome": one.event.outcome,
                "target": one.event.target,
                "data": one.event.data,
            }
            for one in recorded
        ]
        return {**shown, "events": events}

    def _run_dict(self, conn: Connection, row: RunRow) -> dict[str, Any]:
        """A run as the API gives it."""
        asked = self._asked(conn, row.id)[1] if row.phase is Phase.ASKING else None
        return _run_dict(row, asked if asked is not None and asked.is_open else None)

    def _asked(self, conn: Connection, run_id: str) -> tuple[Run, Asked | None]:
        return newest_question(audit.log_of_run(conn, run_id), self._life.gaps, self._clock.now())

    # -- people

    def pause(self, actor: str, reason: str) -> dict[str, Any]:
        """See ``People.pause``."""
        return self._people.pause(actor, reason)

    def resume(self, actor: str, reason: str) -> dict[str, Any]:
        """See ``People.resume``."""
        answer = self._people.resume(actor, reason)
        self._leases.wake_all()
        return answer

    def undo(self, run_id: str, step: str, actor: str, reason: str) -> dict[str, Any]:
        """See ``Leases.undo``."""
        return self._leases.undo(run_id, step, actor, reason)

    def leases(self, limit: int, *, is_all: bool) -> list[dict[str, Any]]:
        """See ``Leases.list``."""
        return self._leases.list(limit, is_all=is_all)

    def breakers(self) -> list[dict[str, Any]]:
        """See ``Breakers.list_all``."""
        return self._breakers.list_all()

    def reset_breaker(self, name: str, actor: str, reason: str) -> dict[str, Any]:
        """See ``Breakers.reset``."""
        return self._breakers.reset(name, actor, reason)

    def cancel(self, run_id: str, actor: str, reason: str) -> dict[str, Any]:
        """See ``People.cancel``."""
        return self._people.cancel(run_id, actor, reason)

    def settle(self, run_id: str, happened: bool, actor: str, reason: str) -> dict[str, Any]:
        """See ``People.settle``."""
        return self._people.settle(run_id, happened=happened, actor=actor, reason=reason)

    def approve(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]:
        """See ``People.approve``."""
        return self._people.approve(run_id, actor, reason, question)

    def deny(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]:
        """See ``People.deny``."""
        return self._people.deny(run_id, actor, reason, question)

    def note(self, run_id: str, actor: str, text: str) -> dict[str, Any]:
        """See ``People.note``."""
        return self._people.note(run_id, actor, text)

    def question(self, run_id: str) -> tuple[Run, Asked | None, str]:
        """A run, what people were last asked about it (None: nothing), and why no answer can be given ("": it can).

        Raises:
            RequestError: 404.
        """
        with self._store.read() as conn:
            run, asked = self._asked(conn, find_run(conn, run_id).id)
        return run, asked, why_not(run, asked, self._clock.now())

    def run_by_hand(
        self, playbook: str, labels: Mapping[str, str], annotations: Mapping[str, str], actor: str
    ) -> dict[str, Any]:
        """See ``People.run_by_hand``."""
        return self._people.run_by_hand(playbook, labels, annotations, actor)

    def dry_run(self, body: bytes) -> dict[str, Any]:
        """What would be done for this delivery, with clients that can only look.

        Raises:
            DecodeError: it is not a delivery.
            RequestError: too many alerts (422), or too many dry runs at a time (503).
        """
        if not self._dry_runs.acquire(blocking=False):
            raise RequestError("other dry runs are under way; ask again in a moment", http_status=503)
        try:
            with self._looking() as wiring:
                return dry_run(body, wiring, limit=DRY_RUN_ALERTS)
        finally:
            self._dry_runs.release()

    @cached_property
    def _looks(self) -> tuple[ReadOnlyClients, Conditions]:
        """For dry runs, which may not hold the engine's own; kept, since conditions remember who does not answer."""
        clients = read_only_clients(self.settings)
        return clients, Conditions(clients.prometheus)

    @contextmanager
    def _looking(self) -> Iterator[Wiring]:
        """What a dry run may hold of a running engine: nothing that leads to its clients, actions or writer."""
        clients, conditions = self._looks
        store = open_readonly(self.settings.store_url)
        try:
            yield Wiring(
                playbooks=self._reloader.now.playbooks,
                actions=LOOKING,
                clients=clients,
                conditions=conditions,
                fleets=fleets_of(conditions, self.settings),
                now=self._clock.now(),
                read=store.read,
                pause=PauseSwitch(self.settings.pause_file),
            )
        finally:
            store.close()

    # -- gauges

    def _watch_gauges(self) -> None:
        metrics = self.metrics
        metrics.watch(metrics.store_ok, lambda: float(self._store.is_ok() == "ok"))
        metrics.watch(metrics.paused, lambda: float(self._read(self._pause) is not None))
        metrics.watch(metrics.open_episodes, lambda: float(self._read(subjects.n_open)[0]))
        metrics.watch(metrics.open_subjects, lambda: float(self._read(subjects.n_open)[1]))
        metrics.watch(metrics.inbox_deliveries, lambda: float(self._read(inbox.n_unhandled)))
        metrics.watch(metrics.inbox_oldest, self._inbox_age_s)
        path = store_path(self.settings.store_url)
        metrics.watch(metrics.store_size, lambda: float(room.n_bytes_used(path)))
        metrics.watch(metrics.store_free, lambda: float(room.n_bytes_free(path)))
        metrics.watch(metrics.time, lambda: self._clock.now().timestamp())
        for phase in Phase:
            if phase is not Phase.CLOSED:
                metrics.watch(metrics.open_runs.labels(phase.value), partial(self._n_runs_in, phase))
        for state in OPEN_STATES:
            metrics.watch(metrics.leases.labels(state), partial(self._n_leases, state))
        for reason in WAITING_FOR:
            metrics.watch(metrics.waiting_runs.labels(reason.value), partial(self._n_waiting_for, reason.value))
        metrics.watch(metrics.due_runs, lambda: float(self._dispatch.counts()[0]))
        metrics.watch(metrics.overdue_runs, lambda: float(self._dispatch.counts()[1]))

    def _watch_breakers(self) -> None:
        """One gauge for each breaker in force; policies come and go."""
        gauge = self.metrics.breaker_tripped
        gauge.clear()
        for breaker in self._reloader.now.playbooks.policy.breakers:
            self.metrics.watch(gauge.labels(breaker.name), partial(self._is_tripped, breaker.name))

    def _is_tripped(self, name: str) -> float:
        row = self._read(lambda conn: breakers.get_breaker(conn, name))
        return float(row is not None and row.tripped_at is not None)

    def _inbox_age_s(self) -> float:
        oldest = self._read(lambda conn: inbox.unhandled(conn, 1))
        return max(0.0, (self._clock.now() - oldest[0].received_at).total_seconds()) if oldest else 0.0

    def _n_leases(self, state: str) -> float:
        return float(self._read(leases.count_by_state).get(state, 0))

    def _n_waiting_for(self, reason: str) -> float:
        """Asked once for all reasons of a scrape: in a storm thousands wait."""
        asked_at, counts = self._waiting
        if time.monotonic() - asked_at > 1:
            counts = self._read(runs.count_waiting)
            self._waiting = (time.monotonic(), counts)
        return float(counts.get(reason, 0))

    def _n_runs_in(self, phase: Phase) -> float:
        return float(self._read(runs.count_by_phase).get(phase.value, 0))

    def _read(self, question: Callable[[Any], Any]) -> Any:
        with self._store.read() as conn:
            return question(conn)


class StoryApp(App):
    """The engine alone: what stories are played on (``engine.playtest``), and deliveries are decided anew (``replay``).

    Args:
        clients: of a world in memory.
        hindsight, able_since: see ``App``.
    """

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        clock: StoryClock,
        loaded: Loaded,
        *,
        hindsight: Hindsight | None = None,
        able_since: datetime | None = None,
    ) -> None:
        super().__init__(
            settings,
            clients,
            clock=clock,
            load=lambda: loaded,
            jitter=lambda: 0.0,
            is_alone=True,
            hindsight=hindsight,
            able_since=able_since,
        )

    def dues(self) -> dict[str, datetime]:
        """When each run and each stack of leases is looked at next, of those that are due at all."""
        return self._dispatch.dues()

    def events_after(self, seq: int) -> list[RecordedEvent]:
        """What the log has behind this place, oldest first."""
        with self._store.read() as conn:
            return audit.events_behind(conn, seq)

    def log_of(self, run_id: str) -> list[Event]:
        """A run's events, in the log's order."""
        return [one.event for one in self._read(lambda conn: audit.log_of_run(conn, run_id))]

    def asks_at(self) -> datetime | None:
        """When the Alertmanagers are asked next; None without any."""
        return self._asks_at

    def expiries(self) -> dict[str, datetime]:
        """Label key of what fires → when it expires, should nothing more be heard of it."""
        return self._intake.expiries()

    def known_run(self, run_id: str) -> tuple[Run, Phase, datetime] | None:
        """A run, where it is, and when its subject was last heard of; None where there is none of this id."""
        row = self._read(lambda conn: runs.get_run(conn, run_id))
        if row is None:
            return None
        run = self.pipeline.run(run_id)
        last_word_at = self._read(lambda conn: subjects.last_word_at(conn, run.plan.subject_id))
        return run, row.phase, last_word_at or run.created_at

    def is_paused(self) -> bool:
        """Whether a person holds all acts."""
        return self._read(self._pause) is not None

    def begin_again(self, firing: Sequence[subjects.Episode], able: Mapping[str, tuple[str, datetime]]) -> None:
        """Let these fire already, and these playbooks be able to act since then; for replays, before ``prepare``.

        Args:
            able: playbook → its able key, and since when.
        """

        def work(tx: Tx) -> None:
            for one in firing:
                subjects.insert_episode(tx.conn, one, 0)
            for name, (key, since) in able.items():
                runs.set_able(tx.conn, name, key, since)

        self._store.write(work)

    def take_again(self, deliveries: Sequence[inbox.StoredDelivery], move: Callable[[datetime], None]) -> int:
        """See ``Intake.take_again``."""
        return self._intake.take_again(deliveries, move)

    def end_again(self, label_key: str, reason: str, at: datetime) -> None:
        """See ``Intake.end_again``."""
        self._intake.end_again(label_key, reason, at)

    def lease_ends(self) -> list[datetime]:
        """The latest ends of what is lent."""
        rows: list[leases.LeaseRow] = self._read(lambda conn: leases.list_leases(conn, 10_000, is_all=False))
        ends = [row.lease.opened_at + row.lease.undo.at_most for row in rows if row.lease.kept_at is None]
        return [*ends, *(row.lease.ends_at for row in rows if row.lease.ends_at is not None)]

    def n_unexpected(self) -> int:
        """How many errors it met that nobody foresaw."""
        samples = [one for family in self.metrics.unexpected_errors.collect() for one in family.samples]
        return int(sum(one.value for one in samples if one.name.endswith("_total")))

    def note_steady(self, until: datetime | None) -> None:
        """See ``Conditions.steady_until``."""
        self.conditions.steady_until = until

    def note_alive(self) -> None:
        """See ``Life.note_alive``."""
        self._life.note_alive()

    def halt(self) -> None:
        """As a kill: nothing is finished; the store's lock goes with the process."""
        self._life.beat()
        self._store.close()


def _run_dict(row: RunRow, asked: Asked | None) -> dict[str, Any]:
    return {
        "run_id": row.id,
        "playbook": row.playbook,
        "case": row.case,
        "per": dict(row.per),
        "phase": row.phase.value,
        "outcome": row.outcome,
        "reason": row.reason,
        "waits_for": list(row.waits_for),
        "created_at": utc_text(row.created_at),
        "ended_at": utc_text(row.ended_at) if row.ended_at is not None else "",
        "due_at": utc_text(row.due_at) if row.due_at is not None else "",
        "has_acted": row.has_acted,
        "asks": list(asked.question.ask) if asked is not None else [],
        "question": asked.number if asked is not None else 0,
        "expires_at": utc_text(asked.expires_at) if asked is not None else "",
    }
