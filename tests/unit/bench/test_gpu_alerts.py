"""How a story of the GPU alerts' benchmark is judged, by what fired."""

from __future__ import annotations

from dataclasses import replace

from bench.gpu_alerts import Judgement, batched, judge, section_of
from bench.gpu_stories import SETS, Draft, Explained, Leak, Story, Wanted, catalogue
from bench.gpu_timeline import Firing

HOUR = 3600


def fired(name: str, at_s: int, severity: str = "warning", gpu: str = "0") -> Firing:
    labels = {"alertname": name, "severity": severity, "gpu": gpu, "cluster": "story"}
    return Firing(labels=labels, begins_s=at_s, ends_s=at_s + 60)


def judged(*firings: Firing, leaks: tuple[Leak, ...] = (), wanted: tuple[Wanted, ...] = ()) -> Judgement:
    draft = Draft(name="story", n_gpus=2)
    story = Story(
        name="story",
        family="leaks",
        exporters="DCGM",
        scenario=draft.scenario(HOUR, seed=1),
        step_s=15,
        duration_s=4 * HOUR,
        leaks=leaks,
        wanted=wanted,
        explained=(Explained(labels={"alertname": "GPUMemoryHigh"}, from_s=HOUR, until_s=2 * HOUR),),
    )
    return judge(story, firings)


def leak(*, full_s: float, begins_s: float = HOUR) -> Leak:
    return Leak(gpu="0", gib_per_hour=4, has_teeth=False, begins_s=begins_s, full_s=full_s)


def test_leak_when_it_has_teeth_then_it_must_last_longer_to_be_told() -> None:
    smooth = leak(full_s=HOUR + 79 * 60)
    assert smooth.can_be_told
    assert not replace(smooth, has_teeth=True).can_be_told
    assert replace(smooth, has_teeth=True, full_s=HOUR + 80 * 60).can_be_told


def test_judge_when_two_alerts_tell_of_a_leak_then_the_earlier_is_its_lead() -> None:
    found = judged(
        fired("GPUMemoryLeakSlope", 2 * HOUR),
        fired("GPUMemoryOOMSoon", 3 * HOUR - 600, "critical"),
        leaks=(leak(full_s=3 * HOUR),),
    )
    (fate,) = found.leaks
    assert fate.leads_s == {"GPUMemoryLeakSlope": HOUR, "GPUMemoryOOMSoon": 600}
    assert fate.is_in_time


def test_judge_when_a_leak_is_told_too_late_before_it_began_or_on_another_gpu_then_it_is_not_told_in_time() -> None:
    for other in (
        fired("GPUMemoryOOMSoon", 3 * HOUR - 899),
        fired("GPUMemoryLeakSlope", HOUR - 1),
        fired("GPUMemoryLeakSlope", 2 * HOUR, gpu="1"),
        fired("GPUMemoryHigh", 2 * HOUR),
    ):
        assert not judged(other, leaks=(leak(full_s=3 * HOUR),)).leaks[0].is_in_time


def test_judge_when_the_story_ends_before_a_leak_had_to_be_told_then_it_is_open() -> None:
    assert judged(leaks=(leak(full_s=9 * HOUR),)).leaks[0].is_open
    assert not judged(leaks=(leak(full_s=3 * HOUR),)).leaks[0].is_open


def test_judge_when_nothing_explains_a_warning_then_it_is_false_and_information_never_is() -> None:
    explained = fired("GPUMemoryHigh", HOUR)
    too_late = fired("GPUMemoryHigh", 2 * HOUR + 1)
    other = fired("GPUHot", HOUR, "critical")
    information = fired("GPUPowerNearLimit", HOUR, "info")
    after_the_end = fired("GPUHot", 4 * HOUR)
    assert judged(explained, too_late, other, information, after_the_end).false == (too_late, other)


def test_judge_when_a_fault_is_found_twice_then_the_first_counts_and_both_are_told() -> None:
    wanted = Wanted(labels={"alertname": "GPUHot"}, from_s=HOUR, by_s=HOUR + 300, until_s=2 * HOUR)
    found = judged(fired("GPUHot", HOUR + 120), fired("GPUHot", HOUR + 900), wanted=(wanted,))
    (fate,) = found.fates
    assert (fate.first_s, fate.n_alerts, fate.is_in_time) == (HOUR + 120, 2, True)
    late = judged(fired("GPUHot", HOUR + 301), wanted=(wanted,))
    assert not late.fates[0].is_in_time
    assert late.false == ()


def test_section_of_when_a_leak_is_told_then_the_figures_say_so_and_one_that_is_too_fast_does_not_count() -> None:
    told = judged(
        fired("GPUMemoryLeakSlope", 2 * HOUR),
        fired("GPUECCUncorrectable", HOUR, "critical"),
        leaks=(leak(full_s=3 * HOUR), leak(full_s=HOUR + 49 * 60), leak(full_s=2 * HOUR)),
    )
    section = section_of([told])
    place = "DCGM.leak_4_gb_h"
    assert section.figures[f"{place}.n_leaks"] == 3
    assert section.figures[f"{place}.n_that_can_be_told"] == 2
    assert section.figures[f"{place}.n_told_in_time"] == 1
    assert section.figures[f"{place}.least_lead_min"] == 60
    assert section.figures["DCGM.false.GPUECCUncorrectable"] == 1
    assert [aim.is_reached for aim in section.aims if aim.wanted.startswith("DCGM: ")] == [False, False]
    assert "room for 49 minutes" in section.limits[0]


def test_catalogue_when_it_is_drawn_again_then_it_is_the_same_and_another_seed_is_another() -> None:
    names = ("leak-8-s3", "ecc-s3")
    one, again = ({s.name: s for s in catalogue("DCGM", 3) if s.name in names} for _ in range(2))
    assert one == again
    assert len(one) == len(names)
    (other,) = (story for story in catalogue("DCGM", 4) if story.name == "leak-8-s4")
    assert other.leaks != one["leak-8-s3"].leaks


def test_batched_when_stories_differ_in_step_or_exporters_then_they_are_evaluated_apart() -> None:
    drawn = catalogue("DCGM", 1, is_quick=True)
    stories = [replace(story, exporters=name) for name in SETS for story in drawn]
    batches = batched(stories)
    assert sorted(story.name + story.exporters for batch in batches for story in batch) == sorted(
        story.name + story.exporters for story in stories
    )
    assert all(len({(story.exporters, story.step_s) for story in batch}) == 1 for batch in batches)
