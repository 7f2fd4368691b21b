"""The GPU alerts: what they find and how early, what they miss, and how often they are wrong.

The catalogue of ``bench.gpu_stories``, played by the simulator in ``tests/simulator``, evaluated by promtool with the
shipped rule files (``bench.gpu_timeline``), for three sets of exporters. An alert of severity warning or critical that
nothing in its story explains is false. The seed is one that the rules were not tuned with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from bench.gpu_stories import (
    HOUR,
    LEAD_S,
    MINUTE,
    NEEDS_FINE,
    SETS,
    SHORTEST_OF_TEETH_S,
    SHORTEST_S,
    SLOPES,
    Leak,
    Story,
    Wanted,
    catalogue,
    clusters,
)
from bench.gpu_timeline import Firing, firings
from bench.result import Section, median
from bench.session import Session
from realparts.prometheus import find_program
from simulator import backfill

NAME = "gpu_alerts"

SEED: Final = 101
"""Of whole runs. Rules and estimators are tuned with seeds below 100."""

N_PROMTOOLS: Final = 2

MONTH_S: Final = 30 * 24 * HOUR

_LEAK_ALERTS = ("GPUMemoryLeakSlope", "GPUMemoryOOMSoon")
_BATCH_COST = 24 * 20 * HOUR / 60
"""GPUs times evaluations of what one promtool is given: a batch takes about a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of something that was wanted.

    Attributes:
        first_s: when the first alert fired, of the story; None = never.
        n_alerts: how many there were: one fault should be one.
    """

    wanted: Wanted
    first_s: float | None
    n_alerts: int

    @property
    def is_in_time(self) -> bool:
        return self.first_s is not None and self.first_s <= self.wanted.by_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakFate:
    """What became of a leak: seconds before the memory was full, by alert; none for what never fired.

    Attributes:
        is_open: the story ended before the last moment at which it had to be told.
    """

    leak: Leak
    leads_s: dict[str, float]
    is_open: bool

    @property
    def lead_s(self) -> float | None:
        return max(self.leads_s.values(), default=None)

    @property
    def is_in_time(self) -> bool:
        return self.lead_s is not None and self.lead_s >= LEAD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One story, and what the alerts made of it."""

    story: Story
    fates: tuple[Fate, ...]
    leaks: tuple[LeakFate, ...]
    false: tuple[Firing, ...]

    @property
    def gpu_months(self) -> float:
        return self.story.n_gpus * self.story.duration_s / MONTH_S


def measure(session: Session) -> Section:
    """Play the catalogue to the rules."""
    stories = [story for name in SETS for story in _stories(name, is_quick=session.is_quick)]
    judgements = judge_all(stories, session.folder, session.say)
    return section_of(judgements)


def _stories(exporters: str, *, is_quick: bool) -> list[Story]:
    found = catalogue(exporters, SEED, is_quick=is_quick)
    if not is_quick:
        found += clusters(exporters, SEED, hours=5, step_s=15, n_nodes=2)
        # Our exporter's own code takes most of the time of its stories.
        found += clusters(exporters, SEED, hours=24, step_s=60, n_nodes=6 if exporters == "DCGM" else 2)
    return found


# -- evaluation


def judge_all(stories: Sequence[Story], folder: Path, say: Callable[[str], None]) -> list[Judgement]:
    """Play all of them, two promtools beside each other.

    Raises:
        FileNotFoundError: promtool is not installed.
        RuleError: a rule cannot be evaluated on a story.
    """
    promtool = find_program("promtool")
    batches = batched(stories)
    judged: dict[tuple[str, str], Judgement] = {}
    with ProcessPoolExecutor(N_PROMTOOLS, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(judge_batch, batch, promtool, folder / f"{number}.json") for number, batch in enumerate(batches)
        ]
        for done, job in enumerate(as_completed(jobs), 1):
            for judgement in job.result():
                judged[judgement.story.exporters, judgement.story.name] = judgement
            say(f"{done} of {len(batches)} batches, {len(judged)} of {len(stories)} stories")
    return [judged[story.exporters, story.name] for story in stories]


def batched(stories: Iterable[Story]) -> list[list[Story]]:
    """Stories that are evaluated at once: alike in their exporters, steps and about in length. The costliest first."""
    batches: list[list[Story]] = []
    costs: list[float] = []
    for story in sorted(stories, key=lambda one: (one.exporters, one.step_s, -one.duration_s)):
        last = batches[-1][0] if batches else None
        is_alike = last is not None and (last.exporters, last.step_s) == (story.exporters, story.step_s)
        # A batch is evaluated to the end of its longest story.
        cost = story.n_gpus * (last.duration_s if last and is_alike else story.duration_s) / story.step_s
        if is_alike and costs[-1] + cost <= _BATCH_COST:
            batches[-1].append(story)
            costs[-1] += cost
        else:
            batches.append([story])
            costs.append(cost)
    return [batch for _, batch in sorted(zip(costs, batches, strict=True), key=lambda pair: -pair[0])]


def judge_batch(stories: Sequence[Story], promtool: Path, file: Path) -> list[Judgement]:
    """Play stories that are alike to one promtool.

    Args:
        file: where its test is written.
    """
    step_s, duration_s = stories[0].step_s, max(story.duration_s for story in stories)
    series = [
        one
        for story in stories
        for one in backfill.series(
            story.scenario, step_s=step_s, duration_s=story.duration_s, sources=(*SETS[story.exporters], "trainer")
        )
    ]
    fired = firings(promtool, file, series, scrape_s=step_s, evaluate_s=step_s, duration_s=duration_s)
    return [judge(story, [one for one in fired if one.labels["cluster"] == story.name]) for story in stories]


def judge(story: Story, fired: Sequence[Firing]) -> Judgement:
    """What the alerts made of a story: of those that began before its end."""
    fired = [one for one in fired if one.begins_s < story.duration_s]
    fates = []
    for wanted in story.wanted:
        times = [
            one.begins_s
            for one in fired
            if _has(one, wanted.labels) and wanted.from_s <= one.begins_s <= wanted.until_s
        ]
        if story.exporters not in wanted.cannot or times:
            fates.append(Fate(wanted=wanted, first_s=min(times, default=None), n_alerts=len(times)))
    leaks = []
    for leak in story.leaks:
        leads = {
            alert: leak.full_s - min(times)
            for alert in _LEAK_ALERTS
            if (
                times := [
                    one.begins_s
                    for one in fired
                    if _has(one, {"alertname": alert, "gpu": leak.gpu}) and leak.begins_s <= one.begins_s < leak.full_s
                ]
            )
        }
        leaks.append(LeakFate(leak=leak, leads_s=leads, is_open=leak.full_s - LEAD_S > story.duration_s))
    explained = [
        *((one.labels, one.from_s, one.until_s) for one in story.wanted),
        *((one.labels, one.from_s, one.until_s) for one in story.explained),
    ]
    false = [
        one
        for one in fired
        if one.labels["severity"] in ("warning", "critical")
        and not any(_has(one, labels) and first <= one.begins_s <= last for labels, first, last in explained)
    ]
    return Judgement(story=story, fates=tuple(fates), leaks=tuple(leaks), false=tuple(false))


def _has(firing: Firing, labels: Mapping[str, str]) -> bool:
    return all(firing.labels.get(name, "") == value for name, value in labels.items())


# -- the answer


def section_of(judgements: Sequence[Judgement]) -> Section:
    """The table, the figures, the aims."""
    by_set = {name: [one for one in judgements if one.story.exporters == name] for name in SETS}
    section = Section(
        name=NAME,
        title="GPU alerts",
        about=(
            f"{len(judgements)} stories of the simulated cluster, {sum(one.gpu_months for one in judgements):.1f}"
            f" GPU-months, seed {SEED}; the shipped rule files, evaluated by promtool each 15 s (stories of up to seven"
            " hours), 60 s, or 120 s (those of two days)."
            " Leaks: how many were told at least 15 minutes before the memory was full, of those that can be, by"
            " GPUMemoryLeakSlope or GPUMemoryOOMSoon; then the shortest and the median time that was left. Faults: how"
            " many were found in time, of those that these exporters show. False alarms: warnings and critical alerts"
            " that nothing in their story explains."
        ),
        columns=("", *SETS),
    )
    _leak_rows(section, by_set)
    _fault_rows(section, by_set)
    _false_rows(section, by_set)
    too_fast = sorted(
        {
            (fate.leak.gib_per_hour, round((fate.leak.full_s - fate.leak.begins_s) / MINUTE))
            for one in judgements
            for fate in one.leaks
            if not fate.leak.can_be_told
        }
    )
    section.limits += [
        f"A leak that fills the memory within {SHORTEST_S // MINUTE} minutes cannot be told 15 minutes before: half an"
        " hour is the shortest in which a leak is no batch, evaluation or load. Beneath teeth it takes"
        f" {SHORTEST_OF_TEETH_S // MINUTE}: longer than the longest tooth, an hour. Too fast were "
        + (", ".join(f"{slope:g} GB/h with room for {minutes} minutes" for slope, minutes in too_fast) or "none")
        + "; whatever the room, memory above its threshold is told by GPUMemoryHigh.",
        "Without our exporter a leak is seen in the memory of the whole GPU, and below 256 MiB/h not at all: so little"
        " cannot be told from what else comes and goes on it.",
        f"In stories of 60 s and more {', '.join(NEEDS_FINE)} cannot fire, since they count samples of some minutes."
        " They are also fewer lows for an envelope than the shipped 15 s give.",
        "The simulator's jobs are physical, but they are not yours: false alarms here are of its patterns.",
    ]
    return section


def _leak_rows(section: Section, by_set: dict[str, list[Judgement]]) -> None:
    for slope in SLOPES:
        cells, n_too_fast = [], 0
        for name, judgements in by_set.items():
            fates = [fate for one in judgements for fate in one.leaks if fate.leak.gib_per_hour == slope]
            n_too_fast = max(n_too_fast, sum(not fate.leak.can_be_told for fate in fates))
            cells.append(_leads(section, f"{name}.leak_{slope:g}_gb_h", fates))
        if any(cells):
            section.rows.append((f"leak, {slope:g} GB/h" + (f", {n_too_fast} too fast" * bool(n_too_fast)), *cells))
    for alert in _LEAK_ALERTS:
        cells = []
        for name, judgements in by_set.items():
            fates = [
                LeakFate(
                    leak=fate.leak,
                    leads_s={a: lead for a, lead in fate.leads_s.items() if a == alert},
                    is_open=fate.is_open,
                )
                for one in judgements
                for fate in one.leaks
            ]
            cells.append(_leads(section, f"{name}.{alert}", fates))
        section.rows.append((f"all, by {alert}", *cells))
    for name, judgements in by_set.items():
        fates = [fate for one in judgements for fate in one.leaks if fate.leak.can_be_told]
        if not fates:
            continue
        n_told = sum(fate.is_in_time for fate in fates)
        section.aim(
            f"{name}: every leak that can be told is told 15 minutes before",
            f"{n_told} of {len(fates)}",
            is_reached=n_told == len(fates),
        )


def _leads(section: Section, place: str, fates: Sequence[LeakFate]) -> str:
    """A cell, and its figures."""
    can_be = [fate for fate in fates if fate.leak.can_be_told]
    if not fates:
        return ""
    leads = [fate.lead_s for fate in can_be if fate.lead_s is not None]
    n_told = sum(fate.is_in_time for fate in can_be)
    n_open = sum(fate.is_open and fate.lead_s is None for fate in can_be)
    section.figures |= {
        f"{place}.n_leaks": len(fates),
        f"{place}.n_that_can_be_told": len(can_be),
        f"{place}.n_told_in_time": n_told,
        f"{place}.n_told_late": len(leads) - n_told,
        f"{place}.n_not_told_before_the_story_ends": n_open,
    }
    if not leads:
        return f"{n_told}/{len(can_be)}"
    section.figures |= {
        f"{place}.least_lead_min": round(min(leads) / MINUTE, 1),
        f"{place}.median_lead_min": round(median(leads) / MINUTE, 1),
    }
    return f"{n_told}/{len(can_be)}: {_short(min(leads))}, {_short(median(leads))}"


def _short(seconds: float) -> str:
    return f"{seconds / HOUR:.1f} h" if seconds >= 2 * HOUR else f"{seconds / MINUTE:.0f} min"


def _fault_rows(section: Section, by_set: dict[str, list[Judgement]]) -> None:
    fates = {
        name: [(_title(fate.wanted), fate) for one in judgements for fate in one.fates]
        for name, judgements in by_set.items()
    }
    for title in sorted({title for found in fates.values() for title, _ in found}):
        cells = []
        for name, found in fates.items():
            own = [fate for other, fate in found if other == title]
            in_time = sum(fate.is_in_time for fate in own)
            late = sum(fate.first_s is not None and not fate.is_in_time for fate in own)
            if not own:
                cells.append("not shown")
                continue
            place = f"{name}.{title.replace(', ', '.')}"
            section.figures |= {
                f"{place}.n_faults": len(own),
                f"{place}.n_found_in_time": in_time,
                f"{place}.n_found_late": late,
                f"{place}.most_alerts_of_one": max(fate.n_alerts for fate in own),
            }
            delays = [fate.first_s - fate.wanted.from_s for fate in own if fate.first_s is not None]
            if delays and title.partition(",")[0] not in _LEAK_ALERTS:
                section.figures[f"{place}.median_delay_s"] = round(median(delays))
            after = f": {_short(median(delays))}" if delays else ""
            cells.append(f"{in_time}/{len(own)}{after}" + (f", {late} late" if late else ""))
        section.rows.append((title, *cells))
    for name, found in fates.items():
        if found:
            n_found = sum(fate.is_in_time for _, fate in found)
            section.aim(
                f"{name}: every fault that it shows is found in time",
                f"{n_found} of {len(found)}",
                is_reached=n_found == len(found),
            )


def _title(wanted: Wanted) -> str:
    severity = wanted.labels.get("severity", "")
    return wanted.labels["alertname"] + (f", {severity}" if severity else "")


def _false_rows(section: Section, by_set: dict[str, list[Judgement]]) -> None:
    families = list(dict.fromkeys(one.story.family for judgements in by_set.values() for one in judgements))
    for family in families:
        cells = []
        for name, judgements in by_set.items():
            own = [one for one in judgements if one.story.family == family]
            cells.append(_false(section, f"{name}.{family.replace(' ', '_').replace(',', '')}", own))
        section.rows.append((f"false alarms: {family}", *cells))
    cells = [
        _false(section, f"{name}.healthy", [one for one in judgements if one.story.is_healthy])
        for name, judgements in by_set.items()
    ]
    section.rows.append(("false alarms where nothing is wrong", *cells))
    for name, judgements in by_set.items():
        false = [firing for one in judgements for firing in one.false]
        months = sum(one.gpu_months for one in judgements)
        by_alert: dict[str, int] = {}
        for firing in false:
            alert = firing.labels["alertname"]
            by_alert[alert] = by_alert.get(alert, 0) + 1
        section.figures |= {f"{name}.false.{alert}": n for alert, n in sorted(by_alert.items())}
        told = ", ".join(f"{n} {alert}" for alert, n in sorted(by_alert.items()))
        section.aim(
            f"{name}: no false alarm",
            f"{len(false)} in {months:.2f} GPU-months" + (f" ({told})" if told else ""),
            is_reached=not false,
        )


def _false(section: Section, place: str, judgements: Sequence[Judgement]) -> str:
    months = sum(one.gpu_months for one in judgements)
    if not months:
        return ""
    n_false = sum(len(one.false) for one in judgements)
    section.figures |= {
        f"{place}.gpu_months": round(months, 3),
        f"{place}.n_false_alarms": n_false,
        f"{place}.false_alarms_per_gpu_month": round(n_false / months, 2),
    }
    return f"{n_false} in {months:.2f} months"
