"""Records what real Alertmanagers send, for the tests that read it from ``tests/data/golden/``.

Run by hand, from the checkout's root, when a version is added or a situation is; it takes a minute for each version::

    PYTHONPATH=tests .venv/bin/python -m realparts.golden            # all versions
    PYTHONPATH=tests .venv/bin/python -m realparts.golden 0.34       # that one alone

Situations → ``<version>/<situation>-<body>.json``, the bodies byte for byte as they came, and
``<version>/deliveries.json``, how each came (when, to which path, with which headers). What is in each is not written
here but in ``tests/data/golden/expected.yaml``, by people.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from realparts.alertmanager import RELEASES, Alertmanager, Version, pushed, webhook_config
from realparts.loopback import Received, WebhookReceiver
from realparts.process import wait_until

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"

WITHIN_S = 30.0
"""Each body comes within seconds; a busy machine may take longer."""

LEAK = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07"}
HIDDEN_HEADERS = frozenset({"Host", "Content-Length"})
"""These say where the recorder listened and what the body's size is."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery that a situation waited for."""

    body: str
    received: Received


class Stage:
    """One Alertmanager, the receiver it sends to, and what was taken of what came."""

    def __init__(self, alertmanager: Alertmanager, receiver: WebhookReceiver) -> None:
        self.alertmanager = alertmanager
        self.receiver = receiver
        self.taken: list[Taken] = []
        self._n_seen = 0

    def take(self, body: str, **statuses: str) -> None:
        """Wait for the next delivery of just these alerts (by container) in these statuses; any, when none is named."""

        def is_wanted(received: Received) -> bool:
            alerts = received.payload.get("alerts", [])
            came = {alert["labels"].get("container_name", ""): alert["status"] for alert in alerts}
            return not statuses or came == {name.replace("_", "-"): status for name, status in statuses.items()}

        def has_come() -> bool:
            while self._n_seen < len(self.receiver.received):
                received = self.receiver.received[self._n_seen]
                self._n_seen += 1
                if is_wanted(received):
                    self.taken.append(Taken(body, received))
                    return True
            return False

        wait_until(has_come, f"Alertmanager {self.alertmanager.version} sends {body}", WITHIN_S)

    def fires(self, container: str, *, ago: timedelta = timedelta(0), **annotations: str) -> None:
        self.alertmanager.push(leak(container), annotations, starts_at=datetime.now(UTC) - ago)

    def is_over(self, container: str, **annotations: str) -> None:
        self.alertmanager.resolve(leak(container), annotations)


def leak(container: str) -> dict[str, str]:
    """Labels of an alert that says that a container leaks."""
    return LEAK | {"container_name": container}


def _life(stage: Stage) -> None:
    stage.fires("trainer-0", summary="memory of trainer-0 grows")
    stage.take("1-first", trainer_0="firing")
    stage.take("2-repeat", trainer_0="firing")
    stage.fires("trainer-1", summary="memory of trainer-1 grows")
    stage.take("3-one-more", trainer_0="firing", trainer_1="firing")
    stage.is_over("trainer-0", summary="memory of trainer-0 grows")
    stage.take("4-mixed", trainer_0="resolved", trainer_1="firing")
    stage.is_over("trainer-1", summary="memory of trainer-1 grows")
    stage.take("5-all-resolved", trainer_1="resolved")


def _cut(stage: Stage) -> None:
    now = datetime.now(UTC)
    stage.alertmanager.post(*(pushed(leak(f"trainer-{n}"), {}, now, now + timedelta(days=1)) for n in range(5)))
    stage.take("1-two-of-five", trainer_0="firing", trainer_1="firing")


def _odd_text(stage: Stage) -> None:
    labels = leak("trainer-0") | {
        "model": "<b>\"H100\" & 'co'</b>",
        "path": "C:\\gpu\\ud800",
        "lines": "a\nb\tc\r\u2028d\x00\x1b[31m",
        "emoji": "🙂 温度 é e\u0301",
        "code": "$(id) `id` {{ .Labels }} {{ labels.x }}",
    }
    stage.alertmanager.push(labels, {"summary": 'x > 1 && y < 2 "quoted" <script>'})
    stage.take("1-first")


def _utf8_names(stage: Stage) -> None:
    labels = leak("trainer-0") | {"host.name": "n1", "app.kubernetes.io/name": "träiner 🙂", "告警": "温度"}
    stage.alertmanager.push(labels, {"описание": "горячо"})
    stage.take("1-first")


def _once(stage: Stage) -> None:
    stage.fires("trainer-0")
    stage.take("1-first", trainer_0="firing")


def _of_any_shape(stage: Stage) -> None:
    stage.fires("trainer-0")
    stage.take("1-first")


def _moved_start(stage: Stage) -> None:
    stage.fires("trainer-0", ago=timedelta(minutes=1))
    stage.take("1-first", trainer_0="firing")
    stage.fires("trainer-0", ago=timedelta(minutes=8))  # the other Prometheus, which has seen it for longer
    stage.take("2-repeat", trainer_0="firing")


def _ran_out(stage: Stage) -> None:
    now = datetime.now(UTC)
    stage.alertmanager.post(pushed(leak("trainer-0"), {}, now, now + timedelta(seconds=3)))
    stage.take("1-first", trainer_0="firing")
    stage.take("2-resolved", trainer_0="resolved")


def _bare(stage: Stage) -> None:
    stage.alertmanager.post({"labels": leak("trainer-0")})
    stage.take("1-first", trainer_0="firing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is played to a fresh Alertmanager.

    Attributes:
        name: begins the files' names.
        play: pushes alerts, and takes what comes of them.
        since: the first version that knows what it needs.
        path: of the receiver's address.
        keys: of ``webhook_config``, besides the address.
    """

    name: str
    play: Callable[[Stage], None]
    since: Version = "0.25"
    path: str = "/api/v1/alertmanager"
    keys: Mapping[str, Any] = field(default_factory=dict)


IN_ONE_GROUP = {"group_by": ["alertname"], "repeat_interval": "3s"}

SITUATIONS = (
    Situation(name="life", play=_life, keys={"route": IN_ONE_GROUP}),
    Situation(
        name="cut",
        play=_cut,
        keys={"route": IN_ONE_GROUP | {"group_wait": "2s", "repeat_interval": "1h"}, "webhook": {"max_alerts": 2}},
    ),
    Situation(name="bare", play=_bare),
    Situation(name="odd-text", play=_odd_text),
    Situation(name="utf8-names", play=_utf8_names, since="0.28"),
    Situation(name="escaped-receiver", play=_once, keys={"name": "ok.team-x (night)"}),
    Situation(name="moved-start", play=_moved_start, keys={"route": {"repeat_interval": "2s"}}),
    Situation(name="ran-out", play=_ran_out),
    Situation(
        name="templated-url",
        play=_once,
        since="0.31",
        path="/api/v1/alertmanager?of={{ .GroupLabels.container_name }}",
    ),
    Situation(name="route-labels", play=_once, since="0.34", keys={"route": {"labels": {"team": "gpu"}}}),
    Situation(
        name="custom-payload",
        play=_of_any_shape,
        since="0.34",
        keys={"webhook": {"payload": {"text": "{{ .GroupLabels.alertname }}", "status": "{{ .Status }}"}}},
    ),
)


def situations(version: Version) -> list[Situation]:
    """Those that a version can be played."""
    return [situation for situation in SITUATIONS if float(situation.since) <= float(version)]


def record(situation: Situation, version: Version, folder: Path) -> list[Taken]:
    """Play a situation to a fresh Alertmanager.

    Args:
        situation: which; one of ``situations(version)``.
        version: of the Alertmanager.
        folder: for its files.

    Raises:
        TimeoutError: a body did not come.
    """
    with WebhookReceiver() as receiver:
        config = webhook_config(f"{receiver.url}{situation.path}", **situation.keys)
        alertmanager = Alertmanager(folder, config, version=version)
        alertmanager.start()
        try:
            stage = Stage(alertmanager, receiver)
            situation.play(stage)
        finally:
            alertmanager.kill()
    return stage.taken


def write(version: Version, folder: Path) -> int:
    """Record every situation of one version anew and give the number of bodies."""
    target = folder / version
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    index: list[dict[str, Any]] = []
    for situation in situations(version):
        with tempfile.TemporaryDirectory() as scratch:
            taken = record(situation, version, Path(scratch))
        for one in taken:
            name = f"{situation.name}-{one.body}.json"
            (target / name).write_bytes(one.received.body)
            headers = {name: text for name, text in one.received.headers.items() if name not in HIDDEN_HEADERS}
            index.append(
                {"body": name, "at": one.received.at.isoformat(), "path": one.received.path, "headers": headers}
            )
    (target / "deliveries.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    return len(index)


if __name__ == "__main__":
    known: tuple[Version, ...] = get_args(Version)
    wanted = [version for version in known if version in sys.argv[1:]] if sys.argv[1:] else known
    if not wanted:
        sys.exit(f"there are recordings of {', '.join(known)}")
    for version in wanted:
        print(f"Alertmanager {RELEASES.get(version, version)}: {write(version, GOLDEN)} bodies", file=sys.stderr)
