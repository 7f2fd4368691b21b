"""What a set of playbooks costs: microseconds an alert, by the index and by asking every playbook."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any

from bench.result import Section, median
from bench.session import Session
from remediator.core.match import PlaybookIndex
from remediator.core.matcher import Matcher, MatchOp
from remediator.core.playbook import Case, GuardRules, Playbook, PlaybookSet
from remediator.core.policy import Mode

NAME = "matching"

SIZES = (10, 1_000, 10_000)
N_NAMES = 2_000
"""Alert names that the playbooks speak of."""
N_OWNERS = 12
N_ALERTS = 300
ROUNDS = 5

Labels = dict[str, str]


class Odd(StrEnum):
    """What some of the playbooks have instead of ``alertname = NAME``; the words that people read."""

    EQUALITY = "equality alone"
    OWNER = "5 % name an owner"
    REGEX = "1 % have regexes alone"
    HEAVY = "50 % have regexes alone"


SHARES_PCT = {Odd.EQUALITY: 0, Odd.OWNER: 5, Odd.REGEX: 1, Odd.HEAVY: 50}
AIMED_AT = (Odd.EQUALITY, Odd.OWNER, Odd.REGEX)


def measure(session: Session) -> Section:
    """Match the same alerts against sets of each size, both ways."""
    section = Section(
        name=NAME,
        title="Matching",
        about=(
            f"{N_ALERTS} random alerts of 8 labels against playbooks that have one of {N_NAMES:,} alert names, a team's"
            " regex (none in the first set) and up to two more matchers. Some have no alert name: they name an owner"
            " instead, as many others do, or have regexes alone. Where half of them have, one in ten of those begins"
            " with nothing that an index can go by. The naive way asks every playbook; both must find the same."
            f" Median of {ROUNDS} rounds; no value is remembered from one alert to the next."
        ),
        columns=("playbooks", "index µs/alert", "alerts/s", "naive µs/alert", "ratio", "index made in ms"),
    )
    for odd in Odd:
        for size in SIZES:
            session.say(f"{size:,} playbooks, {odd}")
            _measure_one(section, size, odd, is_quick=session.is_quick)
    for odd in AIMED_AT:
        us = float(section.figures[f"{SIZES[-1]}.{odd.name.lower()}.index_us"])
        section.aim(f"{SIZES[-1]:,} playbooks, {odd}: at most 50 µs an alert", f"{us:.0f} µs", is_reached=us <= 50)
    section.limits.append(
        "How many playbooks stand under a value or a beginning that the alert has, and how many have none to stand"
        " under: these are asked, and a regex that is more than a list of values takes microseconds. The number of the"
        " others hardly counts."
    )
    return section


def _measure_one(section: Section, size: int, odd: Odd, *, is_quick: bool) -> None:
    dice = random.Random(f"{size} {odd}")  # noqa: S311  # the same set every time
    playbooks = tuple(_playbook(dice, number, odd) for number in range(size))
    began = time.perf_counter()
    index = PlaybookIndex(PlaybookSet(playbooks=playbooks))
    made_in_ms = (time.perf_counter() - began) * 1000
    alerts = [_alert(dice) for _ in range(N_ALERTS)]
    for alert in alerts[:: 30 if is_quick else 1]:
        by_index = [match.playbook.name for match in index.match(alert)]
        if by_index != [playbook.name for playbook in _naive(playbooks, alert)]:
            raise RuntimeError(f"the index finds something else than the naive way for {alert}")
    index_us = _us_per_alert(index.match, alerts)
    naive_us = _us_per_alert(lambda labels: _naive(playbooks, labels), alerts[: 10 if is_quick else 50], rounds=1)
    section.rows.append(
        (
            f"{size:,}, {odd}", f"{index_us:.1f}", f"{1e6 / index_us:,.0f}", f"{naive_us:,.1f}",
            f"{naive_us / index_us:.0f}", f"{made_in_ms:.1f}",
        )
    )  # fmt: skip
    place = f"{size}.{odd.name.lower()}"
    section.figures |= {
        f"{place}.index_us": round(index_us, 2),
        f"{place}.index_alerts_per_s": round(1e6 / index_us),
        f"{place}.naive_us": round(naive_us, 2),
        f"{place}.made_in_ms": round(made_in_ms, 2),
    }


def _us_per_alert(match: Callable[[Labels], Any], alerts: list[Labels], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        for alert in alerts:
            match(alert)
        taken.append((time.perf_counter() - began) / len(alerts) * 1e6)
    return median(taken)


def _naive(playbooks: tuple[Playbook, ...], labels: Labels) -> list[Playbook]:
    return [playbook for playbook in playbooks if all(matcher.matches(labels) for matcher in playbook.match)]


def _playbook(dice: random.Random, number: int, odd: Odd) -> Playbook:
    first = Matcher(label="alertname", op=MatchOp.EQUAL, value=f"Alert{dice.randrange(N_NAMES)}")
    if dice.randrange(100) < SHARES_PCT[odd]:
        match odd:
            case Odd.OWNER:
                first = Matcher(label="owner", op=MatchOp.EQUAL, value=f"owner-{dice.randrange(N_OWNERS)}")
            case Odd.REGEX | Odd.HEAVY:
                begins = "(Alert|Warning)" if odd is Odd.HEAVY and not dice.randrange(10) else "Alert"
                value = f"{begins}{dice.randrange(N_NAMES // 10)}.*"
                first = Matcher(label="alertname", op=MatchOp.REGEX, value=value)
    team = Matcher(label="team", op=MatchOp.REGEX, value=f"ml-{dice.randrange(12)}|ops")
    more = [
        Matcher(label="severity", op=MatchOp.NOT_EQUAL, value="info"),
        Matcher(label="container_name", op=MatchOp.NOT_EQUAL, value=""),
    ]
    case = Case(
        name="", match=(), ignore=None, mode=Mode.ENFORCE, owner="bench", per=("host", "container_name"),
        stop_on_resolve=True, latched=False, hold=timedelta(0),
        guard=GuardRules(cooldown=timedelta(0), max_runs=None, tell_after=timedelta(hours=1)),
        steps=(), verify=(), resolved=(), report_to=(), escalate_to=(),
    )  # fmt: skip
    match = (first, *dice.sample(more, dice.randint(0, 2)), *(() if odd is Odd.EQUALITY else (team,)))
    return Playbook(name=f"playbook-{number}", description="", match=match, cases=(case,), sha256="", able_key="")


def _alert(dice: random.Random) -> Labels:
    return {
        "alertname": f"Alert{dice.randrange(N_NAMES)}",
        "severity": dice.choice(("info", "warning", "critical")),
        "hostname": f"gpu-{dice.randrange(100):03d}",
        "container_name": f"trainer-{dice.randrange(1000)}",
        "team": f"ml-{dice.randrange(12)}",
        "gpu": str(dice.randrange(8)),
        "UUID": f"GPU-{dice.randrange(800):04d}",
        "owner": f"owner-{dice.randrange(N_OWNERS)}",
    }
