"""The simulated cluster: the same in any order, and within what GPUs can be."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster import Cluster, Gpu, State
from simulator.models import HEAT_S
from simulator.scenario import STORIES, load, parse

HOUR = 3600.0


def cluster(text: str) -> Cluster:
    """Of one node, with the job ``a`` on GPUs 0 to 3, unless the text says otherwise."""
    return Cluster(parse("about: x\nduration: 1d\n" + text))


def job(more: str = "", gpus: str = "gpu-01:0-3") -> str:
    return f'jobs: [{{name: a, gpus: ["{gpus}"], docker: a, checkpoint: null, waits: 0{more}}}]\n'


def states(gpu: Gpu, *times: float) -> State:
    return gpu.state(np.array(times))


def hours(first: float, last: float, step_s: float = 60) -> np.ndarray:
    return np.arange(first * HOUR, last * HOUR, step_s)


# -- a pure function of time


@settings(max_examples=30)
@given(st.lists(st.floats(0, 8 * HOUR), min_size=2, max_size=20), st.randoms(use_true_random=False))
def test_state_when_asked_in_any_order_then_is_the_same(times: list[float], random: object) -> None:
    asked = np.array(times)
    order = np.array(random.sample(range(len(times)), len(times)))  # type: ignore[attr-defined]
    one, other = Cluster(load("overheat")).gpus[5], Cluster(load("overheat")).gpus[5]
    together, apart = one.state(asked), other.state(asked[order])
    alone = np.array([other.state(np.array([at])).temperature_c[0] for at in times])
    np.testing.assert_array_equal(together.temperature_c[order], apart.temperature_c)
    np.testing.assert_array_equal(together.temperature_c, alone)


def test_totals_when_asked_bit_by_bit_then_are_those_asked_at_once() -> None:
    one, other = Cluster(load("healthy")).gpus[0], Cluster(load("healthy")).gpus[0]
    times = np.arange(0, 3 * 86400, 7777.0)
    at_once = one.totals.at("energy_j", times)
    np.testing.assert_array_equal(
        at_once, [float(other.totals.at("energy_j", np.array([at]))[0]) for at in times.tolist()]
    )


def test_state_when_the_seed_differs_then_the_cluster_does() -> None:
    one, other = (cluster(f"seed: {seed}\n" + job()).gpus[0] for seed in (1, 2))
    assert one.uuid != other.uuid
    assert (one.state(hours(1, 2)).power_w != other.state(hours(1, 2)).power_w).all()


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_stories_when_played_then_no_gpu_leaves_what_gpus_can_be(path: Path) -> None:
    played = Cluster(load(path.stem))
    times = np.linspace(0, played.scenario.duration, 300)
    for gpu in played.gpus:
        state, model = gpu.state(times), gpu.model
        for values, least, most in (
            (state.busy, 0, 1),
            (state.activity, 0, 1),
            (state.memory_used_mib, 0, gpu.usable_mib),
            (state.temperature_c, 15, model.shutdown_c),
            (state.power_w, 0.8 * model.idle_w, 1.01 * model.default_w),
            (state.clock_mhz, 200, model.clock_mhz),
            (state.nvlink_gb_s, 0, 450),
        ):
            assert (values >= least).all(), (gpu.node.name, gpu.index)
            assert (values <= most).all(), (gpu.node.name, gpu.index)


# -- memory


def test_memory_when_the_allocator_caches_then_it_never_falls_while_the_process_lives() -> None:
    gpu = cluster(job(", evaluation: {every: 1h, lasts: 5m}, memory: {evaluation_gib: 8}")).gpus[0]
    used = gpu.state(hours(0, 12, 10)).memory_used_mib
    assert (np.diff(used) >= 0).all()
    # It grows by steps, not smoothly, once all is loaded.
    after = used[1000:]
    assert set(np.diff(after).round().tolist()) <= {0, 512, 1024, 8 * 1024, 8 * 1024 + 512}


def test_memory_when_the_allocator_frees_then_each_batch_gives_back_what_it_took() -> None:
    gpu = cluster(job(", memory: {allocator: freeing, activations_gib: 30, batch: 10m}")).gpus[0]
    used = gpu.state(hours(1, 5, 10)).memory_used_mib
    hourly = used.reshape(4, -1)
    assert (hourly.max(axis=1) - hourly.min(axis=1) > 20 * 1024).all()
    assert np.ptp(hourly.min(axis=1)) < 200


def test_memory_when_it_settles_then_growth_fades_to_a_plateau() -> None:
    gpu = Cluster(load("plateau")).gpus[0]
    at = gpu.state(np.array([0.2, 3, 12, 24]) * HOUR).memory_used_mib
    grown = np.diff(at)
    assert grown[0] > 4 * 1024
    assert grown[0] > 2 * grown[1] > 2 * grown[2]


def test_memory_when_a_model_is_loaded_then_it_ramps_and_holds_still() -> None:
    gpu = Cluster(load("model-load")).gpus[1]
    used = gpu.state(np.array([0.9, 1.2, 1.5, 1.9, 4, 6]) * HOUR).memory_used_mib
    assert used[0] < 10
    assert (np.diff(used[:4]) > 10 * 1024).all()
    assert abs(used[5] - used[4]) < 600


@pytest.mark.parametrize("rate", [0.05, 0.5, 4, 20])
def test_leak_when_it_runs_then_it_grows_at_its_rate_until_the_gpu_is_full_and_the_job_is_killed(rate: float) -> None:
    played = cluster(job(f", leak: {{gib_per_hour: {rate}, after: 10m, gpus: [1]}}"))
    leaking, beside = played.gpus[1], played.gpus[0]
    a = played.jobs[0]
    ends = a.lives(2000 * HOUR)[0].ends
    assert a.lives(2000 * HOUR)[0].is_killed_by_oom
    half = np.array([ends / 2, ends / 2 + 10 * HOUR / rate / 4])
    grown = np.diff(leaking.state(half).memory_used_mib)[0] - np.diff(beside.state(half).memory_used_mib)[0]
    assert grown == pytest.approx(2.5 * 1024, abs=45)
    last = leaking.state(np.array([ends - 1.5, ends + 1]))
    assert last.memory_used_mib[0] == pytest.approx(leaking.usable_mib, abs=600)
    assert last.memory_used_mib[1] < 10
    # And again, just as long: the leak begins anew with the process.
    second = a.lives(2000 * HOUR)[1]
    assert second.begins == ends + 60
    assert second.ends - second.begins == pytest.approx(ends, abs=1)


def test_memory_when_a_gpu_is_shared_then_it_is_the_sum() -> None:
    played = Cluster(load("shared"))
    gpu, at = played.gpus[0], np.array([0.5 * HOUR])
    parts = [gpu.load(one, rank, at).memory_mib[0] for one, rank, _ in gpu.jobs]
    assert len(parts) == 2
    assert gpu.state(at).memory_used_mib[0] == pytest.approx(sum(parts) + 4)


# -- power and heat


def test_power_when_idle_and_when_busy_then_is_what_such_gpus_draw() -> None:
    gpus = cluster(job()).gpus
    busy, idle = gpus[0].state(hours(1, 2)).power_w, gpus[7].state(hours(1, 2)).power_w
    assert (busy > 0.75 * 700).all()
    assert (busy < 700).all()
    assert (idle > 70).all()
    assert (idle < 80).all()


@pytest.mark.parametrize(("by", "requested"), [("host", 450.0), ("out-of-band", 700.0)])
def test_power_when_capped_then_it_stays_just_below_the_cap_and_clocks_fall(by: str, requested: float) -> None:
    gpu = cluster(job() + f'faults: [{{kind: power-cap, where: "gpu-01:0", at: 1h, watts: 450, by: {by}}}]').gpus[0]
    before, after = gpu.state(hours(0.5, 1)), gpu.state(hours(1, 2))
    assert (after.power_w <= 450).all()
    assert (after.power_w > 0.95 * 450).all()
    assert (after.is_capped.all(), before.is_capped.any()) == (True, False)
    assert (after.requested_w[0], after.enforced_w[0]) == (requested, 450)
    assert after.clock_mhz.max() < before.clock_mhz.min()
    assert after.temperature_c[-1] < before.temperature_c[-1] - 5


def test_temperature_when_work_begins_then_it_approaches_as_a_heat_sink_does() -> None:
    gpu = cluster(job(", start: 1h, ramp: 0s, memory: {settle: 0s}")).gpus[0]
    cold, later, warm = states(gpu, 1 * HOUR - 1, 1 * HOUR + HEAT_S, 2 * HOUR).temperature_c
    assert 25 < cold < 32
    assert 54 < warm < 72
    assert (later - cold) / (warm - cold) == pytest.approx(1 - math.exp(-1), abs=0.12)


def test_temperature_when_a_fan_fails_then_the_gpu_slows_down_at_its_limit_and_recovers() -> None:
    gpu = Cluster(load("overheat")).gpus[5]
    before, during, after = (gpu.state(hours(*span)) for span in ((1, 2), (2.2, 4), (4.2, 5)))
    assert (before.is_hot.any(), after.is_hot.any()) == (False, False)
    # But for its checkpoints, in which it cools down.
    assert during.is_hot.mean() > 0.9
    assert np.median(during.temperature_c) == pytest.approx(gpu.model.slowdown_c, abs=0.5)
    assert during.power_w.mean() < 0.9 * before.power_w.mean()
    assert during.clock_mhz.mean() < before.clock_mhz.mean()
    assert after.temperature_c.mean() == pytest.approx(before.temperature_c.mean(), abs=2)


def test_temperature_when_the_hall_warms_up_then_every_gpu_does() -> None:
    played = Cluster(load("overheat"))
    for gpu in played.gpus:
        before, during = states(gpu, 5.9 * HOUR, 6.9 * HOUR).temperature_c
        assert during - before == pytest.approx(14, abs=4)


# -- work


def test_utilisation_when_training_then_is_high_and_low_while_it_evaluates_or_saves() -> None:
    gpu = Cluster(load("eval-pauses")).gpus[0]
    busy = gpu.state(hours(1, 12)).busy
    assert 0.9 < np.median(busy) < 1
    # Ten minutes of seventy, and 90 s of each 21.5 minutes of training.
    assert ((busy > 0.4) & (busy < 0.6)).mean() == pytest.approx(10 / 70, abs=0.05)
    assert (busy < 0.1).mean() == pytest.approx(90 / 1290, abs=0.04)


def test_utilisation_when_one_rank_is_slow_then_it_idles_and_the_others_spin() -> None:
    gpus = Cluster(load("imbalance")).gpus
    slow, other, before = gpus[4].state(hours(2, 4)), gpus[0].state(hours(2, 4)), gpus[0].state(hours(1, 2))
    assert slow.busy.mean() == pytest.approx(0.6 * before.busy.mean(), abs=0.04)
    assert other.busy.mean() == pytest.approx(before.busy.mean(), abs=0.03)
    assert other.activity.mean() < 0.8 * before.activity.mean()
    assert other.power_w.mean() < 0.85 * before.power_w.mean()


def test_nvlink_when_degraded_then_is_the_share_that_is_left_of_its_peers() -> None:
    gpus = Cluster(load("nvlink-degraded")).gpus
    mean = {gpu.index: gpu.state(hours(2, 4)).nvlink_gb_s.mean() for gpu in gpus}
    assert mean[6] / mean[0] == pytest.approx(0.2, abs=0.02)
    assert mean[2] / mean[0] == pytest.approx(0.5, abs=0.03)
    assert 150 < mean[0] < 200


def test_nvlink_when_a_job_has_one_gpu_then_there_is_none() -> None:
    assert (cluster(job(gpus="gpu-01:0")).gpus[0].state(hours(1, 2)).nvlink_gb_s == 0).all()


def test_service_when_it_is_night_then_it_has_less_to_do() -> None:
    gpu = Cluster(load("healthy")).gpus[6]
    busy = gpu.state(np.arange(86400, 3 * 86400, 300.0)).busy.reshape(2, 24, -1).mean(axis=(0, 2))
    assert busy.max() > 2 * busy.min() > 0


# -- lives and progress


def test_progress_when_a_job_trains_then_it_rises_to_one_and_its_gpus_are_free() -> None:
    played = cluster('jobs: [{name: a, gpus: ["gpu-01:0"], pod: a, length: 6h, evaluation: {every: 1h, lasts: 10m}}]')
    times = hours(0, 10)
    progress = played.jobs[0].progress(times)
    alive = ~np.isnan(progress)
    assert (np.diff(progress[alive]) >= 0).all()
    assert progress[alive][-1] > 0.99
    # 5 minutes to load, 6 h to train, and an evaluation after each hour, the last too.
    assert times[alive][-1] == pytest.approx(6 * HOUR + 300 + 6 * 600, abs=61)
    assert played.gpus[0].state(np.array([9 * HOUR])).memory_used_mib[0] < 10


def test_progress_when_a_job_is_killed_then_it_goes_on_from_its_last_checkpoint() -> None:
    played = Cluster(load("restarts"))
    first, second = played.jobs[0].lives(4 * HOUR)[:2]
    reached = played.jobs[0].progress(np.array([first.ends - 1]))[0]
    assert (first.ends, second.begins) == (1 * HOUR, 1 * HOUR + 60)
    assert 0 < second.progress <= reached
    assert reached - second.progress < 0.5 / 72


def test_node_when_it_reboots_then_its_job_ends_its_boot_time_moves_and_its_cap_is_gone() -> None:
    played = cluster(
        job()
        + """
faults:
  - {kind: node-reboot, where: gpu-01, at: 2h, lasts: 5m}
  - {kind: power-cap, where: "gpu-01:0", at: 1h, watts: 400}
  - {kind: ecc-corrected, where: "gpu-01:0", at: 1h, lasts: 30m, per_hour: 40}
  - {kind: ecc-uncorrected, where: "gpu-01:1", at: 1h, count: 1}
"""
    )
    gpu, node = played.gpus[0], played.nodes["gpu-01"]
    times = np.array([1.9, 2.01, 2.2]) * HOUR
    state = gpu.state(times)
    assert state.is_here.tolist() == [True, False, True]
    assert state.requested_w.tolist() == [400, 400, 700]
    assert node.booted(times).tolist() == [-20 * 86400, -20 * 86400, 2 * HOUR + 300]
    assert gpu.volatile(gpu.corrected, times).tolist() == [20, 20, 0]
    assert gpu.corrected(times).tolist() == [20, 20, 20]
    failed = played.gpus[1]
    assert failed.is_remap_pending(times).tolist() == [True, True, False]
    assert failed.remapped(times).tolist() == [0, 0, 1]


def test_gpu_when_lost_then_it_is_away_and_its_job_cannot_start() -> None:
    played = Cluster(load("xid"))
    lost = played.gpus[4]
    assert states(lost, 3.9 * HOUR, 4.1 * HOUR).is_here.tolist() == [True, False]
    vision = next(one for one in played.jobs if one.job.name == "vision")
    assert np.isnan(vision.ages(np.array([5 * HOUR]))[0]).all()
    assert lost.xids == ((4 * HOUR, 79),)
