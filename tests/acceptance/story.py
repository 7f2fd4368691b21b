"""A timeline of things done to the world and of what must come of them, in the style of Alertmanager's own tests.

Rows in order, each a deed (``fires``, ``resolves``, …) or an expectation with its window, played against real
processes → passes, or fails with expected and happened side by side. What happens to the story's containers, what
people are told and how runs end is all watched: what no row expects is a failure, and so is what did not come in time.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from acceptance.engine import Engine
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver

WINDOW_S = 60.0
"""Most of what is expected comes within two seconds; a machine under load may take this long."""

QUIET_S = 1.5
"""After the last row: long enough for a second restart or a second message to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Something that happened.

    Attributes:
        kind: ``restarted`` (a container was started anew), ``told`` (a message came), ``ended`` (a run).
        about: container or words.
        more: outcome and reason of a run, or the text of a message.
    """

    at: float
    kind: str
    about: str
    more: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.about} {self.more}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something done to the world."""

    words: str
    do: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Something that must happen, once, within ``within_s`` of this row's turn and not ``before_s`` seconds into the
    story."""

    kind: str
    about: str
    more: str = ""
    within_s: float = WINDOW_S
    before_s: float = 0.0

    def fits(self, seen: Seen) -> bool:
        return (
            seen.kind == self.kind and seen.about == self.about and self.more in seen.more and seen.at >= self.before_s
        )

    def __str__(self) -> str:
        since = f" not before {self.before_s:g} s" if self.before_s else ""
        return f"{self.kind} {self.about} {self.more}".rstrip() + since


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """Waits until a claim about the world holds."""

    words: str
    is_so: Callable[[], bool]
    within_s: float = WINDOW_S


Row = Deed | Expected | Until


def restarted(container: str, **window: float) -> Expected:
    """Docker has started the container anew."""
    return Expected(kind="restarted", about=container, **window)


def ended(container: str, outcome: str, reason: str = "none", **window: float) -> Expected:
    """The run about the container has ended so."""
    return Expected(kind="ended", about=container, more=f"{outcome} {reason}", **window)


def told(container: str, words: str, **window: float) -> Expected:
    """People got a message about the container that holds these words."""
    return Expected(kind="told", about=container, more=words, **window)


def passes(seconds: float) -> Deed:
    """Time passes."""
    return Deed(words=f"{seconds:g} s pass", do=lambda: time.sleep(seconds))


@contextlib.contextmanager
def played(stories: Sequence[Callable[..., None]], world: object) -> Iterator[dict[str, Future[None]]]:
    """All stories, played in one world at the same time, by name: most of each is waiting."""
    with ThreadPoolExecutor(len(stories)) as pool:
        yield {story.__name__: pool.submit(story, world) for story in stories}


def titles(people: WebhookReceiver) -> list[str]:
    """Of the messages that came, oldest first."""
    return [str(json.loads(got.body)["title"]) for got in people.received]


class DockerEvents:
    """Follows a Docker engine's events of one kind, of every container, with their times. A context manager.

    Args:
        kind: as Docker calls it: ``start``, ``update``, …
    """

    def __init__(self, docker: DockerEngine, kind: str) -> None:
        self._docker = docker
        self._stream = docker.client.events(decode=True, filters={"type": "container", "event": [kind]})
        self._events: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._follow, name="docker events", daemon=True)
        self._thread.start()

    def of(self, container: str, *, after: float) -> list[float]:
        """When it happened to it, unix time. ``after``: not before then, though word of it may have come later."""
        return [at for at, name in [*self._events] if name == container and at > after]

    def _follow(self) -> None:
        with contextlib.suppress(Exception):  # however the stream ends, what came is kept
            for event in self._stream:
                self._events.append((event["timeNano"] / 1e9, event["Actor"]["Attributes"]["name"]))

    def close(self) -> None:
        """Stop following."""
        self._stream.close()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DockerStarts(DockerEvents):
    """Every start of every container."""

    def __init__(self, docker: DockerEngine) -> None:
        super().__init__(docker, "start")
        self._lock = threading.Lock()

    def started_at(self, container: str) -> str:
        """Docker's own word for its newest start (State.StartedAt), with all nine digits, as the log has it."""
        with self._lock:  # stories are played in threads, docker-py's client is made for one
            found: str = self._docker.client.api.inspect_container(container)["State"]["StartedAt"]
        seconds, _, fraction = found.removesuffix("Z").partition(".")
        return f"{seconds}.{fraction:0<9}Z"


@dataclass
class Stage:
    """The world of one story: an engine, Docker, people; and the containers that it is about.

    Attributes:
        containers: names; what happens to others is others' story.
    """

    engine: Engine
    starts: DockerStarts
    people: WebhookReceiver
    containers: Sequence[str]
    began: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._n_told = len(self.people.received)
        self._first_start = {name: self.starts.started_at(name) for name in self.containers}

    def seen(self) -> list[Seen]:
        """All that has happened so far, oldest first."""
        found = [
            Seen(at=at - self.began, kind="restarted", about=name)
            for name in self.containers
            for at in self.starts.of(name, after=self.began)
        ]
        for message in self.people.received[self._n_told :]:
            text = f"{message.payload['title']}\n{message.payload['message']}"
            found += [
                Seen(at=message.at.timestamp() - self.began, kind="told", about=name, more=text)
                for name in self.containers
                if name in message.payload["title"]
            ]
        for run in self.runs():
            if run["ended_at"]:
                at = datetime.fromisoformat(run["ended_at"]).timestamp() - self.began
                more = f"{run['outcome']} {run['reason']}"
                found.append(Seen(at=at, kind="ended", about=run["per"]["container_name"], more=more))
        return sorted(found, key=lambda one: one.at)

    def runs(self) -> list[dict[str, Any]]:
        """The runs about these containers, oldest first; none while the engine does not answer."""
        try:
            runs = self.engine.runs()
        except OSError:  # requests' errors are
            return []
        return [run for run in runs if run["per"].get("container_name") in self.containers]

    def n_delivered(self, container: str, status: str) -> int:
        """How many stored deliveries said so of the container."""
        rows = self.engine.query("SELECT body FROM delivery")
        words = (f'"container_name":"{container}"'.encode(), f'"status":"{status}"'.encode())
        return sum(all(word in body for word in words) for (body,) in rows)

    def delivered(self, container: str, status: str = "firing", more: int = 1) -> Until:
        """``more`` further deliveries that say so have come, counted from this row's turn."""
        counted: list[int] = []

        def is_so() -> bool:
            n = self.n_delivered(container, status)
            counted.append(n)
            return n >= counted[0] + more

        return Until(words=f"{more} more deliveries: {container} {status}", is_so=is_so)

    def was_delivered(self, container: str, status: str, times: int = 1) -> Until:
        """So many deliveries that say so are stored."""
        return Until(
            words=f"delivered {times} times: {container} {status}",
            is_so=lambda: self.n_delivered(container, status) >= times,
        )

    def play(self, *rows: Row, quiet_s: float = QUIET_S) -> None:
        """Play the story.

        Raises:
            AssertionError: something expected did not come, or something came that nobody expected.
        """
        script: list[str] = []
        taken: list[Seen] = []
        for row in rows:
            turn = time.time() - self.began
            match row:
                case Deed():
                    script.append(f"{turn:6.1f}  {row.words}")
                    row.do()
                case Until():
                    if not _wait(row.is_so, row.within_s):
                        self._fail(script, f"{row.words}: not so after {row.within_s:g} s")
                    script.append(f"{turn:6.1f}  {row.words}")
                case Expected():
                    found: list[Seen] = []

                    def came(row: Expected = row, found: list[Seen] = found) -> bool:
                        found[:] = [one for one in self.seen() if one not in taken and row.fits(one)][:1]
                        return bool(found)

                    if not _wait(came, row.within_s):
                        self._fail(script, f"expected and not seen within {row.within_s:g} s: {row}")
                    taken.extend(found)
                    script.append(f"{found[0].at:6.1f}  expected: {row}")
        time.sleep(quiet_s)
        unexpected = [str(one) for one in self.seen() if one not in taken]
        if unexpected:
            self._fail(script, f"nobody expected: {unexpected}")
        for name in self.containers:
            was_restarted = any(one.kind == "restarted" and one.about == name for one in taken)
            assert (self.starts.started_at(name) != self._first_start[name]) == was_restarted, name

    def _fail(self, script: list[str], why: str) -> None:
        happened = [f"{one.at:6.1f}  {one}".replace("\n", " | ") for one in self.seen()]
        runs = [f"        {run['phase']} {run['outcome']} {run['waits_for']} {run['per']}" for run in self.runs()]
        log = self.engine.log_lines()[-15:]
        parts = [why, "", "story:", *script, "", "happened:", *happened, "", "runs:", *runs, "", "log:", *log]
        raise AssertionError("\n".join(parts))


def _wait(is_so: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.25)
    return True
