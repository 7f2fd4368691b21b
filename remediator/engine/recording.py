"""``test --record``: an incident from the store, written down as a playbook test.

Takes the store, opened read-only, whether an engine runs or not, and a run → ``Recording``: a test file that tells what
happened, and expects what came of it. What one run did may hang on others (a cooldown, a limit, a target that another
had): these are told too, as far as the log shows that they counted. The scenario is played at once, with the playbooks
that are there now; where it comes out otherwise than it was, the file says so.

Must never: write to the store, or expect what did not happen without saying so.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from remediator.core.action import JsonValue
from remediator.core.alert import AlertStatus, unpack_alert
from remediator.core.decode import decode
from remediator.core.disguise import Disguise
from remediator.core.event import Event, EventType, RecordedEvent
from remediator.core.happening import happenings
from remediator.core.incident import ended_text
from remediator.core.playbook import Playbook, PlaybookSet
from remediator.core.recorded_words import Heard
from remediator.core.recording import Record, Told, tell
from remediator.core.run import fold
from remediator.core.scenario import BEGINS, Expectation, Happening, Scenario, ScenarioAlert, TestFile, World, compare
from remediator.core.units import print_duration
from remediator.engine.cast import Cast, cast_of
from remediator.engine.people import find_run
from remediator.engine.playtest import LONGEST, Workshop, play_file
from remediator.errors import DeliveryError, PlaybooksRefusedError, RequestError
from remediator.loading import Loaded
from remediator.loading.document import entries_of
from remediator.settings import Settings
from remediator.store import Connection, audit, inbox, incidents, recorded, runs, subjects

AFTER = timedelta(minutes=5)
"""So long after the last word the other one of a pair may deliver the same."""

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

SHORT = timedelta(minutes=5)
"""A story that is over by then is expected by the second."""

ALERTMANAGER = "http://alertmanager:9093"
"""Stands for the site's own: in a story each answers the same."""

PROMETHEUS = "http://prometheus:9090"
"""Likewise."""

FLEET = 1_000
"""Stands for the size of a fleet that a Prometheus is asked for: the log does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A run, as a test file.

    Attributes:
        file: with one scenario; its paths are absolute.
        notes: what it cannot tell, and what it leaves out, a sentence each.
        is_as_it_was: played with the playbooks that are there now, it came out as it was.
    """

    file: TestFile
    notes: tuple[str, ...]
    is_as_it_was: bool


def record_run(
    conn: Connection,
    which: str,
    settings: Settings,
    loaded: Loaded,
    workshop: Workshop,
    *,
    is_disguised: bool,
    now: datetime,
) -> Recording:
    """Write a run down.

    Args:
        which: its id, or the beginning of one.
        loaded: the playbooks that it is to be played with, without problems.
        is_disguised: without a name of the site's: of hosts, containers, people.
        now: what has not ended by then has no end in the log.

    Raises:
        RequestError: 404 no such run, or none of its playbooks any more; 409 it has not ended; 422 it has no story.
        StoreError: the log cannot be read.
        PlaybooksRefusedError: the playbooks have problems.
    """
    if loaded.problems:
        raise PlaybooksRefusedError([str(problem) for problem in loaded.problems])
    row = find_run(conn, which)
    if row.ended_at is None:
        raise RequestError(f"run {row.id} has not ended ({row.phase.value}): record it when it has", http_status=409)
    if fold(_log(conn, row.id)).plan.is_by_hand:
        raise RequestError(f"run {row.id} was begun by hand, and a story begins with an alert; nothing can be recorded")
    group = cast_of(conn, row.id, loaded.playbook_set.policy)
    record = _record(conn, group, now, settings.expire_after)
    told = tell(record)
    labels = {name: alert.labels for name, alert in told.alerts.items()}
    was = happenings(_of_runs(record), told.begins, labels)
    playbooks = _playbooks(record, loaded, row.playbook)
    site = _settings(settings, told, playbooks, loaded.playbook_set)
    if is_disguised:
        hidden = Disguise(told, was, playbooks, loaded.playbook_set.policy)
        told, was = hidden.told, hidden.was
        site = site | ({"vars": hidden.variables(site["vars"])} if "vars" in site else {})
    policies = _policies(loaded)
    file = TestFile(
        file="the recording",
        paths=tuple(dict.fromkeys(Path(one.file).absolute() for one in playbooks)) + policies,
        alerts=told.alerts,
        scenarios=(),
        settings=site,
        world=World(docker=_without_labels(told.world, loaded.playbook_set)),
        begins=BEGINS if is_disguised else told.begins,
    )
    name = f"{row.playbook}, as recorded: {ended_text(row.outcome, row.reason)}"
    scenario = Scenario(name=name, line=1, story=told.story, expect=())
    fitted, is_as_it_was, more = _rehearse(file, scenario, was, told, workshop)
    notes = (*_of_fleets(settings), *_of_cast(group), *_of_changes(record, playbooks), *told.notes, *more)
    return Recording(
        file=replace(file, scenarios=(fitted,)), notes=tuple(dict.fromkeys(notes)), is_as_it_was=is_as_it_was
    )


# -- what there is -----------------------------------------------------------------------------------------------------


def _log(conn: Connection, run_id: str) -> list[Event]:
    return [one.event for one in audit.log_of_run(conn, run_id)]


def _record(conn: Connection, group: Cast, now: datetime, expire_after: timedelta) -> Record:
    """All that the store has of these runs and their alerts.

    Raises:
        RequestError: no delivery of theirs is there any more.
    """
    subject_ids = [row.subject_id for run_id in group.run_ids if (row := runs.get_run(conn, run_id)) is not None]
    found = [subjects.get_episode(conn, one) for one in incidents.episodes_of_subjects(conn, subject_ids)]
    episodes = [one for one in found if one is not None]
    alerts: dict[str, ScenarioAlert] = {}
    is_edited = False
    own = {*incidents.episodes_of_subjects(conn, subject_ids[:1])}
    for episode in sorted(episodes, key=lambda one: one.id not in own):
        alert = _alert(episode)
        first_seen = alerts.setdefault(episode.label_key, alert)
        is_edited |= first_seen.annotations != alert.annotations
    about = {one.seq: one for one in incidents.events_about(conn, "", subject_ids, list(group.run_ids))}
    for episode in episodes:
        about |= {one.seq: one for one in incidents.events_about(conn, episode.id, [], [])}
    first = min((one.event.delivery_id for one in about.values() if one.event.delivery_id), default=0)
    last = max(one.event.at for one in about.values())
    until = now if any(one.ended_at is None for one in episodes) else last + AFTER
    heard = tuple(_heard(conn, first, until, alerts)) if first else ()
    if not heard:
        raise RequestError("none of the deliveries that it began with is in the store any more; nothing can be told")
    about |= {one.seq: one for one in _of_engine(conn, heard[0].at, until)}
    return Record(
        run_ids=group.run_ids,
        events=tuple(about[seq].event for seq in sorted(about)),
        heard=heard,
        alerts={key: alerts[key] for one in heard for key in one.members},
        has_edited_annotations=is_edited,
        episodes={one.id: one.label_key for one in episodes},
        gaps=tuple(recorded.gaps(conn)),
        paused_by=_paused_by(conn, heard[0].at),
        until=now,
        expire_after=expire_after,
    )


def _alert(episode: subjects.Episode) -> ScenarioAlert:
    """The alert as it was when it began to fire."""
    alert = unpack_alert(cast("Mapping[str, Mapping[str, Any]]", episode.alert)["alert"])
    return ScenarioAlert(name="", labels=alert.labels, annotations=alert.annotations, generator_url=alert.generator_url)


def _heard(conn: Connection, first: int, until: datetime, alerts: Mapping[str, ScenarioAlert]) -> Iterator[Heard]:
    """The deliveries that have one of these alerts."""
    # Decoding takes its time, and most deliveries of a busy site are of others. An odd name may be escaped.
    names = {alert.labels.get("alertname", "") for alert in alerts.values()}
    marks = [name.encode() for name in names] if all(name.isascii() and name.isprintable() for name in names) else [b""]
    for stored in inbox.deliveries_from(conn, first, until):
        if not any(mark in stored.body for mark in marks):
            continue
        try:
            group = decode(stored.body, stored.received_at)
        except DeliveryError:
            continue  # it was taken by an engine that reads more than this one
        members = {
            alert.label_key: alert.status is AlertStatus.FIRING for alert in group.alerts if alert.label_key in alerts
        }
        if members:
            yield Heard(id=stored.id, at=stored.received_at, members=members, n_truncated=group.n_truncated)


_OF_ENGINE = (
    *(EventType.ENGINE_STARTED, EventType.PAUSED, EventType.RESUMED),
    *(EventType.BREAKER_TRIPPED, EventType.BREAKER_RESET),
)


def _of_engine(conn: Connection, since: datetime, until: datetime) -> Iterator[RecordedEvent]:
    for kind in _OF_ENGINE:
        yield from audit.list_events(conn, audit.AuditFilter(since=since, until=until, type=kind))


def _paused_by(conn: Connection, at: datetime) -> tuple[str, str]:
    """Who held all acting at a moment, and why."""
    newest = recorded.last_event(conn, [EventType.PAUSED, EventType.RESUMED], at)
    if newest is None or newest.type is EventType.RESUMED:
        return "", ""
    return newest.actor, str(newest.data["reason"])


def _of_runs(record: Record) -> list[Event]:
    return [event for event in record.events if event.run_id in record.run_ids]


# -- what it is played with --------------------------------------------------------------------------------------------


def _playbooks(record: Record, loaded: Loaded, wanted: str) -> tuple[Playbook, ...]:
    """The playbooks of these runs, the wanted one first.

    Raises:
        RequestError: that one is gone.
    """
    names = dict.fromkeys([wanted, *(event.playbook for event in record.events if event.type is EventType.PLAN_MADE)])
    found = [playbook for name in names if (playbook := loaded.playbook_set.named(name)) is not None]
    if not found or found[0].name != wanted:
        raise RequestError(
            f"no playbook is called {wanted} any more, and a recording is played with the playbooks that are there;"
            " name its file or folder as PATH",
            http_status=404,
        )
    return tuple(found)


def _policies(loaded: Loaded) -> tuple[Path, ...]:
    """Files that hold a policy."""
    found = [document.file for document in loaded.documents if "policy" in entries_of(document.root)]
    return tuple(dict.fromkeys(Path(file).absolute() for file in found))


def _settings(
    settings: Settings, told: Told, playbooks: Sequence[Playbook], in_force: PlaybookSet
) -> dict[str, JsonValue]:
    """What of the site's settings counts: names, limits and label names; no address and no login."""
    wanted = {"label_map", "ignore_labels", "expire_after", "report_to", "escalate_to"}
    kept = settings.model_dump(mode="json", include=wanted, exclude_defaults=True, exclude_none=True)
    found: dict[str, JsonValue] = {name: value for name, value in kept.items() if value}
    used = {name.removeprefix("vars.") for name in _names(playbooks) if name.startswith("vars.")}
    if variables := {name: value for name, value in in_force.vars.items() if name in used}:
        found["vars"] = variables
    if settings.fleets:
        found["fleets"] = {
            name: {"kind": fleet.kind.value, "size": fleet.size or FLEET} for name, fleet in settings.fleets.items()
        }
    steps = (step for playbook in playbooks for case in playbook.cases for step in case.steps)
    if told.asks_alertmanager or any(step.action.startswith("alertmanager.") for step in steps):
        found["alertmanager"] = {"urls": [ALERTMANAGER]}
    if len(settings.prometheus.servers) > 1:
        found["prometheus"] = {"servers": {name: {"url": PROMETHEUS} for name in settings.prometheus.servers}}
    return found


def _names(playbooks: Iterable[Playbook]) -> set[str]:
    """All that the templates of these playbooks name."""
    found: set[str] = set()
    for case in (case for playbook in playbooks for case in playbook.cases):
        for step in (*case.steps, *case.resolved):
            found |= {name for template in step.params.values() for name in template.names}
            found |= step.condition.names if step.condition is not None else set()
        found |= {name for condition in case.conditions for name in condition.query.names}
    return found


def _without_labels(world: World, in_force: PlaybookSet) -> dict[str, Any]:
    """Containers have many labels; those count that a policy asks for."""
    policy = in_force.policy
    asked = {line.matcher.label for line in (*policy.protect, *policy.require_labels)} | {"remediator.io/ignore"}
    found: dict[str, Any] = {}
    for host, containers in world.docker.items():
        if isinstance(containers, str):
            found[host] = containers
            continue
        found[host] = {name: _thinned(keys, asked) for name, keys in containers.items()}
    return found


def _thinned(keys: Any, asked: set[str]) -> Any:
    if not isinstance(keys, Mapping) or "labels" not in keys:
        return keys
    labels = {name: value for name, value in keys["labels"].items() if name in asked}
    others = {name: value for name, value in keys.items() if name != "labels"}
    return others | ({"labels": labels} if labels else {})


# -- what comes of it --------------------------------------------------------------------------------------------------


def _rehearse(
    file: TestFile, scenario: Scenario, was: Sequence[Happening], told: Told, workshop: Workshop
) -> tuple[Scenario, bool, list[str]]:
    """Play it, and expect what was where it is what comes.

    In a story an act takes no time and nobody is late: the times of what comes are the story's.

    Returns:
        The scenario with its expectations, whether it comes out as it was, and what is to be said of that.
    """
    with tempfile.TemporaryDirectory(prefix="remediator-record-") as folder:
        result = next(iter(play_file(file, [scenario], workshop, Path(folder))))
    if result.problem:
        problem = re.sub(rf"^{re.escape(file.file)}:\d+: ", "", result.problem, flags=re.MULTILINE)
        return replace(scenario, expect=_expected(was)), False, [f"It could not be played: {problem}"]
    labels = {name: one.labels for name, one in file.alerts.items()}
    comes = happenings([one.event for one in result.events], file.begins, labels)
    by_then = [one for one in comes if one.at < told.until]
    lines = compare([_at_any_time(one) for one in was], by_then)
    if not all(line.is_ok for line in lines):
        missed = sum(line.happened is None or not line.is_ok for line in lines)
        note = (
            f"Played now, it does not come out as it was ({missed} differ). The expectations below are what the log"
            " has: look whether the playbook has changed, or whether a story cannot tell what made it so."
        )
        return replace(scenario, expect=_expected(was)), False, [note]
    notes = []
    if any(abs(one.at - other.at) >= MINUTE for one, other in zip(_by_time(was), _by_time(by_then), strict=True)):
        notes.append("In a story acts take no time: what came after one comes earlier here than it came then.")
    if len(by_then) < len(comes):
        notes.append(f"What is expected from {print_duration(told.until)} on had not happened yet.")
    is_short = all(one.at < SHORT for one in comes)
    return replace(scenario, expect=_expected(comes, SECOND if is_short else MINUTE)), True, notes


def _by_time(happened: Iterable[Happening]) -> list[Happening]:
    """As people read them."""
    return sorted(happened, key=lambda one: one.at)


def _at_any_time(one: Happening) -> Expectation:
    return Expectation(at=timedelta(0), within=LONGEST, kind=one.kind, value=one.value, details=_details(one))


def _details(one: Happening) -> dict[str, JsonValue]:
    """What of a happening is worth to be expected: not the text of messages, and no id that is new each time."""
    target = str(one.details.get("target", ""))
    found = {key: value for key, value in one.details.items() if key != "says"}
    if "target" in found and not target.startswith("docker:"):
        del found["target"]
    return found


def _expected(happened: Iterable[Happening], within: timedelta = MINUTE) -> tuple[Expectation, ...]:
    """Each within the minute, or the second, in which it happened."""
    return tuple(
        Expectation(at=one.at - one.at % within, within=within, kind=one.kind, value=one.value, details=_details(one))
        for one in _by_time(happened)
    )


def _of_fleets(settings: Settings) -> Iterator[str]:
    for name in sorted(name for name, fleet in settings.fleets.items() if fleet.size is None):
        yield f"The size of fleet {name} is not in the log; {FLEET} stands for it."


def _of_cast(group: Cast) -> Iterator[str]:
    if len(group.run_ids) > 1:
        n = len(group.run_ids) - 1
        yield f"{n} other {'run is' if n == 1 else 'runs are'} told too, since what this one did hung on them."
    if group.n_left_out:
        yield f"{group.n_left_out} more that it hung on are left out: this story would be too long."
    for _ in group.by_hand:
        yield "A run that a person had begun by hand counted too; a story cannot tell of it."


def _of_changes(record: Record, playbooks: Sequence[Playbook]) -> Iterator[str]:
    """Playbooks that are not what they were."""
    now = {playbook.name: playbook.sha256 for playbook in playbooks}
    plans = [event for event in record.events if event.type is EventType.PLAN_MADE]
    for name in dict.fromkeys(event.playbook for event in plans):
        then = {
            cast("Mapping[str, Any]", event.data["plan"])["playbook_sha256"]
            for event in plans
            if event.playbook == name
        }
        if name not in now:
            yield f"The playbook {name} had a part in it, and there is none of that name any more."
        elif now[name] not in then:
            yield f"The playbook {name} has been changed since."
