"""What happened on a running engine, written down as a test: it passes at once, and says what it cannot tell."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remediator.actions import LOOKING
from remediator.app import load_playbooks, story_workshop
from remediator.clients.ports import CpuLimit
from remediator.core.scenario import Failure
from remediator.engine.playtest import play_file
from remediator.engine.recording import Recording, record_run
from remediator.errors import RequestError
from remediator.loading.scenario_write import write_test
from remediator.loading.scenarios import load_tests
from remediator.store.engine import open_readonly

if TYPE_CHECKING:
    from conftest import Bench

RESTART = """
playbook: restart
match: [alertname = GPUMemoryLeakSlope, container_name != ""]
per: [host, container_name]
hold: 10m
guard:
  cooldown: 2h
  require: [{name: held, query: 'max(used{h="{{ labels.hostname }}",c="{{ labels.container_name }}"})', above: 100}]
steps:
  - name: save
    if: annotations.checkpoint_signal != ""
    action: docker.signal
    params: {container: "{{ labels.container_name }}", signal: "{{ annotations.checkpoint_signal }}"}
    on_failure: continue
  - name: restart
    action: docker.restart
    params: {container: "{{ labels.container_name }}", stop_timeout: 5m}
    timeout: 8m
    retry: {attempts: 3, wait: 2s}
verify:
  - name: ratio
    query: ratio{h="{{ labels.hostname }}",c="{{ labels.container_name }}"}
    below: 0.8
    settle: 3m
    holds: 5m
    within: 20m
report: {to: [ml-platform]}
escalate: {to: [oncall]}
resolved:
  - {action: notify.send, params: {to: [ml-platform], title: "over: {{ labels.container_name }}"}}
"""

ASKING = """
playbook: asking
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
approval: {ask: [oncall], expires: 1h}
steps: [{action: docker.restart, params: {container: "{{ labels.container_name }}"}}]
escalate: {to: [ml-platform]}
"""

THROTTLE = """
playbook: throttle
match: [alertname = GPUHot]
per: [UUID]
ladder: {within: 6h}
steps:
  - {rung: 1, action: docker.limit, params: {container: "{{ labels.container_name }}", cpus: 8}}
  - {rung: 2, action: docker.limit, params: {container: "{{ labels.container_name }}", cpus: 4}}
verify: [{name: temp_c, query: 'temp{u="{{ labels.UUID }}"}', below: 82, settle: 3m, holds: 2m, within: 8m}]
undo:
  when: resolved
  after: 10m
  require: [{name: temp_max_c, query: 'maxtemp{u="{{ labels.UUID }}"}', below: 78}]
  at_most: 12h
report: {to: [ml-platform]}
escalate: {to: [oncall]}
"""

SAVING = {"checkpoint_signal": "SIGUSR1", "summary": "it grows"}
HOT = {"alertname": "GPUHot", "hostname": "gpu-07", "UUID": "GPU-a", "container_name": "trainer-0"}


@dataclass
class Desk:
    """Where recordings are written and read."""

    bench: Bench
    folder: Path

    def record(self, which: int = 0, **options: Any) -> Recording:
        """The newest run, or an older one, as a recording."""
        run_id = self.bench.runs()[which]["run_id"]
        settings = self.bench.engine.settings
        store = open_readonly(settings.store_url)
        try:
            with store.read() as conn:
                return record_run(
                    conn,
                    run_id,
                    settings,
                    load_playbooks(settings),
                    story_workshop(),
                    **{"is_disguised": False, "now": self.bench.clock.now(), **options},
                )
        finally:
            store.close()

    def written(self, recording: Recording) -> Path:
        path = self.folder / "recorded.test.yaml"
        path.write_text(write_test(recording.file, self.folder, recording.notes))
        return path

    def check(self, recording: Recording) -> str:
        """Written, read back and played, it passes; its text."""
        path = self.written(recording)
        loaded = load_tests([path], actions=LOOKING)
        text = path.read_text()
        assert [problem.located() for problem in loaded.problems] == [], text
        (file,) = loaded.files
        scratch = self.folder / "scratch"
        scratch.mkdir()
        (result,) = play_file(file, file.scenarios, story_workshop(), scratch)
        assert result.problem == "", text
        assert [line for line in result.lines if not line.is_ok] == [], text
        assert recording.is_as_it_was, text
        return text


@pytest.fixture
def desk(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """On an engine that takes its time: no two events are of one moment, and an act lasts for seconds."""
    chance = random.Random(11)
    act = bench.world.act

    def now(clock: Any) -> Any:
        clock.moment += timedelta(microseconds=chance.randint(1, 30_000))
        return clock.moment

    def act_slowly(*call: Any) -> None:
        try:
            act(*call)
        finally:
            bench.clock.moment += timedelta(seconds=chance.uniform(0.1, 45))

    monkeypatch.setattr(type(bench.clock), "now", now)
    monkeypatch.setattr(bench.world, "act", act_slowly)
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(bench, folder)


def leaks(bench: Bench, **more: Any) -> None:
    bench.deliver(bench.fires(bench.leak(), **more))


def ends(bench: Bench) -> None:
    bench.deliver(bench.resolved(bench.leak()))


def repeats(bench: Bench, labels: dict[str, str], times: int, every: str) -> None:
    starts_at = bench.clock.now()
    for _ in range(times):
        bench.after(every)
        bench.deliver({**bench.fires(labels), "startsAt": starts_at.isoformat()})


def succeeded(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 1.02)
    leaks(bench, annotations=SAVING)
    bench.after("14m")
    bench.sees("ratio", 0.3)
    bench.after("20m")
    ends(bench)
    bench.after("1h")


def failed_with_retries(bench: Bench) -> None:
    bench.sees("held", 70_000)
    leaks(bench)
    bench.world.fail("docker.restart", Failure.TRANSIENT, times=3)
    bench.after("30m")
    ends(bench)
    bench.after("1h")


def succeeded_after_a_retry(bench: Bench) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    succeeded(bench)


def ineffective(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.97)
    leaks(bench)
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def unverified(bench: Bench) -> None:
    bench.sees("held", 70_000)
    leaks(bench)
    bench.after("20m")
    bench.world.loses("ratio")
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def refused(bench: Bench) -> None:
    bench.sees("held", 30)
    leaks(bench)
    bench.after("1h")
    ends(bench)


def waited_for_prometheus(bench: Bench) -> None:
    bench.world.loses("held")
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.after("25m")
    leaks(bench)
    bench.after("15m")
    bench.sees("held", 70_000)
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def waited_for_cooldown(bench: Bench) -> None:
    succeeded(bench)
    leaks(bench, annotations=SAVING)
    bench.after("25m")
    leaks(bench, annotations=SAVING)
    bench.after("50m")
    ends(bench)
    bench.after("1h")


def cancelled_in_its_hold(bench: Bench) -> None:
    leaks(bench)
    bench.after("5m")
    ends(bench)
    bench.after("10m")


def repeated_for_hours(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    repeats(bench, bench.leak(), 50, "5m")
    ends(bench)
    bench.after("1h")


def delivered_by_a_pair(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.after("15s")
    leaks(bench)
    bench.after("1h")
    ends(bench)
    bench.after("15s")
    ends(bench)
    bench.after("1h")


def engine_away_in_its_hold(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.after("5m")
    bench.away("2m")
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def engine_killed_in_the_act(bench: Bench) -> None:
    class Killed(BaseException):
        pass

    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.world.interrupt("docker.restart", Killed())
    with pytest.raises(Killed):
        bench.after("11m")
    bench.away("90s")
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def paused_by_a_person(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.after("5m")
    bench.engine.pause("alice", "racks are moved")
    bench.after("15m")
    leaks(bench)
    bench.engine.resume("bob", "racks are moved")
    bench.engine.work()
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def cancelled_by_a_person(bench: Bench) -> None:
    leaks(bench)
    bench.after("5m")
    bench.engine.cancel(bench.runs()[0]["run_id"], "alice", "we do it ourselves")
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def settled_by_a_person(bench: Bench) -> None:
    bench.sees("held", 70_000)
    leaks(bench)
    bench.world.fail("docker.restart", Failure.UNKNOWN)
    bench.after("30m")
    bench.engine.settle(bench.runs()[0]["run_id"], happened=True, actor="alice", reason="I looked")
    bench.after("30m")
    ends(bench)
    bench.after("1h")


def without_an_answer(bench: Bench) -> None:
    bench.world.fail("docker.restart", Failure.TIMEOUT_AFTER_EFFECT)
    succeeded(bench)


def message_that_fails(bench: Bench) -> None:
    bench.world.fail("notify.send", Failure.TRANSIENT, times=2)
    succeeded(bench)


def docker_away(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.world.set_away("gpu-07", is_away=True)
    bench.after("20m")
    bench.world.set_away("gpu-07", is_away=False)
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def container_gone(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.world.remove_container("gpu-07", "trainer-0")
    leaks(bench)
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def fires_still(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.97)
    leaks(bench)
    bench.after("1h")


def expired(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.97)
    leaks(bench)
    bench.after("12h")


def two_alerts_of_one_subject(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    alerts = [bench.leak(gpu="0"), bench.leak(gpu="1")]
    bench.deliver(*(bench.fires(one) for one in alerts))
    bench.after("30m")
    bench.deliver(bench.resolved(alerts[0]))
    bench.after("30m")
    bench.deliver(bench.resolved(alerts[1]))
    bench.after("1h")


def good_at_the_last_moment(bench: Bench) -> None:
    """Seen from the end of an act that took two minutes."""
    act = bench.world.act

    def act_for_minutes(*call: Any) -> None:
        act(*call)
        bench.clock.moment += timedelta(minutes=2)

    bench.world.act = act_for_minutes  # type: ignore[method-assign]
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.97)
    leaks(bench)
    bench.after("10m")
    (restart,) = bench.events("attempt_finished")
    bench.after(f"{int((restart.at - bench.clock.moment).total_seconds()) + 14 * 60 + 20}s")
    bench.sees("ratio", 0.3)
    bench.after("30m")
    assert bench.runs()[0]["outcome"] == "succeeded"
    ends(bench)
    bench.after("1h")


def engine_away_while_it_looks(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.after("15m")
    bench.away("4m")
    bench.after("1h")
    ends(bench)
    bench.after("1h")


def killed_after_a_repeat(bench: Bench) -> None:
    """Which is the last that shows it alive: the beat before it is older."""
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.after("40s", beats=False)
    leaks(bench)
    bench.away("10s")
    bench.after("1h")
    ends(bench)
    bench.after("1h")


FOR_RESTART = [
    (killed_after_a_repeat, "at: 40s, restarts: engine, down: 10s"),
    (succeeded, "checkpoint_signal: SIGUSR1"),
    (failed_with_retries, "fails: docker.restart, with: transient, times: 3"),
    (succeeded_after_a_retry, "fails: docker.restart, with: transient"),
    (ineffective, "ratio: 0.97"),
    (unverified, "ratio: nothing"),
    (refused, "held: 30"),
    (waited_for_prometheus, "held: away"),
    (waited_for_cooldown, "1 other run is told too"),
    (cancelled_in_its_hold, "reason: resolved"),
    (repeated_for_hours, "repeats are left out"),
    (delivered_by_a_pair, "copies: 2"),
    (engine_away_in_its_hold, "restarts: engine, down: 2m"),
    (engine_killed_in_the_act, "restarts: engine, during: docker.restart, down: 1m"),
    (paused_by_a_person, "pauses: alice, reason: racks are moved"),
    (cancelled_by_a_person, "cancels: alice"),
    (settled_by_a_person, "settles: alice, as: happened"),
    (without_an_answer, "with: timeout_after_effect"),
    (message_that_fails, "fails: notify.send, with: transient"),
    (docker_away, "gpu-07: away"),
    (container_gone, "world: {docker: {gpu-07: {}}}"),
    (fires_still, "it had not been resolved"),
    (expired, "at: 0s, fires"),
    (two_alerts_of_one_subject, "fires: [gpu_memory_leak_slope, gpu_memory_leak_slope_2]"),
    (engine_away_while_it_looks, "restarts: engine, down: 4m"),
    (good_at_the_last_moment, "acts take no time"),
]


@pytest.mark.parametrize(("happens", "words"), [pytest.param(*row, id=row[0].__name__) for row in FOR_RESTART])
def test_recording_when_played_then_comes_out_as_it_was(
    happens: Callable[[Bench], None], words: str, desk: Desk
) -> None:
    desk.bench.playbook(RESTART)
    desk.bench.start()
    happens(desk.bench)

    assert words in desk.check(desk.record())


def hot(bench: Bench, temp_c: float) -> None:
    bench.sees("temp_c", temp_c)
    bench.sees("temp_max_c", 70)
    bench.deliver(bench.fires(HOT))


def cool(bench: Bench) -> None:
    bench.deliver(bench.resolved(HOT))


def ladder_up_and_back(bench: Bench) -> None:
    hot(bench, 91)
    bench.after("10m")
    bench.sees("temp_c", 74)
    bench.after("20m")
    cool(bench)
    bench.after("1h")


def undo_waits_until_it_is_cool(bench: Bench) -> None:
    hot(bench, 74)
    bench.sees("temp_max_c", 90)
    bench.after("20m")
    cool(bench)
    bench.after("25m")
    bench.sees("temp_max_c", 70)
    bench.after("1h")


def hot_again_begins_higher(bench: Bench) -> None:
    hot(bench, 74)
    bench.after("20m")
    cool(bench)
    bench.after("2h")
    hot(bench, 74)
    bench.after("20m")
    cool(bench)
    bench.after("1h")


def others_changed_the_limit(bench: Bench) -> None:
    hot(bench, 74)
    bench.after("20m")
    bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(nano_cpus=6_000_000_000))
    cool(bench)
    bench.after("1h")


def made_anew_meanwhile(bench: Bench) -> None:
    hot(bench, 74)
    bench.after("20m")
    bench.world.add_container("gpu-07", "trainer-0")
    cool(bench)
    bench.after("1h")


def kept_after_twelve_hours(bench: Bench) -> None:
    hot(bench, 74)
    repeats(bench, HOT, 26, "30m")
    cool(bench)
    bench.after("1h")


def has_a_limit_of_its_own(bench: Bench) -> None:
    bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(nano_cpus=6_000_000_000))
    hot(bench, 91)
    bench.after("20m")
    cool(bench)
    bench.after("1h")


def taken_back_by_a_person(bench: Bench) -> None:
    hot(bench, 74)
    bench.after("20m")
    bench.engine.undo(bench.runs()[0]["run_id"], "", "alice", "we need it")
    bench.engine.work()
    bench.after("10m")
    cool(bench)
    bench.after("1h")


def lent_still(bench: Bench) -> None:
    hot(bench, 74)
    bench.after("20m")
    cool(bench)
    bench.after("3m")


FOR_THROTTLE = [
    ladder_up_and_back, undo_waits_until_it_is_cool, hot_again_begins_higher, others_changed_the_limit,
    made_anew_meanwhile, kept_after_twelve_hours, has_a_limit_of_its_own, taken_back_by_a_person, lent_still,
]  # fmt: skip


@pytest.mark.parametrize("happens", FOR_THROTTLE, ids=lambda happens: happens.__name__)
def test_recording_of_a_ladder_when_played_then_comes_out_as_it_was(
    happens: Callable[[Bench], None], desk: Desk
) -> None:
    desk.bench.playbook(THROTTLE)
    desk.bench.start()
    happens(desk.bench)

    desk.check(desk.record())


def approved(bench: Bench) -> None:
    leaks(bench)
    bench.after("20m")
    bench.engine.approve(bench.runs()[0]["run_id"], "alice", "go")
    bench.engine.work()
    bench.after("20m")
    ends(bench)


def denied(bench: Bench) -> None:
    leaks(bench)
    bench.after("20m")
    bench.engine.deny(bench.runs()[0]["run_id"], "alice", "it is in use")
    bench.engine.work()
    bench.after("20m")
    ends(bench)


def nobody_answers(bench: Bench) -> None:
    leaks(bench)
    bench.after("2h")
    ends(bench)


def resolved_while_asking(bench: Bench) -> None:
    leaks(bench)
    bench.after("20m")
    ends(bench)
    bench.after("20m")


@pytest.mark.parametrize(
    "happens", [approved, denied, nobody_answers, resolved_while_asking], ids=lambda happens: happens.__name__
)
def test_recording_of_a_question_when_played_then_comes_out_as_it_was(
    happens: Callable[[Bench], None], desk: Desk
) -> None:
    desk.bench.playbook(ASKING)
    desk.bench.start()
    happens(desk.bench)

    desk.check(desk.record())


# -- what it hangs on --------------------------------------------------------------------------------------------------

LIMITED = """
policy: site
protect: [host =~ "login-.*", team = databases]
max_disruptive_acts: {count: 2, per: 1h}
"""


def limited_by_another(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench, annotations=SAVING)
    bench.after("5m")
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("25m")
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("40m")
    bench.deliver(bench.resolved(bench.leak("trainer-1")))
    ends(bench)
    bench.after("1h")


def protected_by_a_label(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.world.add_container("gpu-07", "trainer-0", labels={"team": "databases", "secret": "hunter2"})
    leaks(bench)
    bench.after("20m")
    ends(bench)
    bench.after("1h")


@pytest.mark.parametrize("happens", [limited_by_another, protected_by_a_label], ids=lambda happens: happens.__name__)
def test_recording_under_a_policy_when_played_then_comes_out_as_it_was(
    happens: Callable[[Bench], None], desk: Desk
) -> None:
    desk.bench.playbook(RESTART)
    desk.bench.playbook(LIMITED, "site.policy.yaml")
    desk.bench.start()
    happens(desk.bench)

    text = desk.check(desk.record())

    assert "policies" in text or "site.policy.yaml" in text
    assert "hunter2" not in text


URL = "http://alertmanager:9093"


def silenced_for_a_while(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    bench.world.list_alert(bench.leak())
    bench.world.mute_alert(bench.leak(), is_muted=True)
    leaks(bench)
    bench.after("30m")
    bench.world.mute_alert(bench.leak(), is_muted=False)
    bench.after("30m")
    bench.world.forget_alert(bench.leak())
    ends(bench)
    bench.after("1h")


def alertmanager_away_for_a_while(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    bench.world.list_alert(bench.leak())
    bench.world.set_away(URL, is_away=True)
    leaks(bench)
    bench.after("30m")
    bench.world.set_away(URL, is_away=False)
    bench.after("30m")
    bench.world.forget_alert(bench.leak())
    ends(bench)
    bench.after("1h")


def gone_without_a_word(bench: Bench) -> None:
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    bench.world.list_alert(bench.leak())
    leaks(bench)
    bench.after("40m")
    bench.world.forget_alert(bench.leak())
    bench.after("1h")


@pytest.mark.parametrize(
    "happens",
    [silenced_for_a_while, alertmanager_away_for_a_while, gone_without_a_word],
    ids=lambda happens: happens.__name__,
)
def test_recording_where_an_alertmanager_is_asked_when_played_then_comes_out_as_it_was(
    happens: Callable[[Bench], None], desk: Desk
) -> None:
    desk.bench.playbook(RESTART)
    desk.bench.world.add_alertmanager(URL)
    desk.bench.start(alertmanager={"urls": [URL]})
    happens(desk.bench)

    desk.check(desk.record())


def stopped_by_its_resolve(bench: Bench) -> None:
    bench.sees("saved", 4)
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    leaks(bench)
    bench.after("3m")
    ends(bench)
    bench.after("30m")


def failed_in_its_first_step(bench: Bench) -> None:
    bench.sees("saved", 5_000)
    leaks(bench)
    bench.after("30m")
    ends(bench)
    bench.after("30m")


def verified_step_by_step(bench: Bench) -> None:
    bench.sees("saved", 5_000)
    leaks(bench)
    bench.after("3m")
    bench.sees("saved", 4)
    bench.after("30m")
    ends(bench)
    bench.after("30m")


STEPWISE = """
playbook: stepwise
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
stop_on_resolve: true
steps:
  - name: save
    action: docker.signal
    params: {container: "{{ labels.container_name }}", signal: SIGUSR1}
    verify: [{name: saved, query: 'age{c="{{ labels.container_name }}"}', below: 120, within: 10m}]
  - name: restart
    action: docker.restart
    params: {container: "{{ labels.container_name }}"}
    retry: {attempts: 3, wait: 5m, max_wait: 5m}
verify: [{alert: resolved, within: 20m}]
report: {to: [ml-platform]}
escalate: {to: [oncall]}
"""


@pytest.mark.parametrize(
    "happens",
    [stopped_by_its_resolve, failed_in_its_first_step, verified_step_by_step],
    ids=lambda happens: happens.__name__,
)
def test_recording_of_steps_that_are_verified_when_played_then_comes_out_as_it_was(
    happens: Callable[[Bench], None], desk: Desk
) -> None:
    desk.bench.playbook(STEPWISE)
    desk.bench.start()
    happens(desk.bench)

    desk.check(desk.record())


def test_recording_when_a_person_resets_a_breaker_then_comes_out_as_it_was(desk: Desk) -> None:
    bench = desk.bench
    bench.playbook(RESTART.replace("cooldown: 2h", "cooldown: 0s"))
    bench.playbook("policy: site\nbreaker: {percent: 99, of: all, within: 6h, or_failures: 1}\n", "site.policy.yaml")
    bench.start(fleets={"all": {"kind": "container", "size": 500}})
    ineffective(bench)
    leaks(bench)
    bench.after("30m")
    leaks(bench)
    bench.engine.reset_breaker("site", "alice", "a bad release, withdrawn")
    bench.engine.work()
    bench.after("1h")
    ends(bench)
    bench.after("1h")

    text = desk.check(desk.record())

    assert "resets: alice" in text
    assert "waits: breaker" in text


def test_recording_of_a_playbook_that_observes_when_played_then_comes_out_as_it_was(desk: Desk) -> None:
    desk.bench.playbook(RESTART.replace("playbook: restart", "playbook: restart\nmode: observe"))
    desk.bench.start()
    succeeded(desk.bench)

    text = desk.check(desk.record())

    assert "ends: observed" in text


def test_recording_when_two_playbooks_restart_one_container_then_tells_both(desk: Desk) -> None:
    bench = desk.bench
    bench.playbook(RESTART)
    bench.playbook(RESTART.replace("playbook: restart", "playbook: other").replace("hold: 10m", "hold: 12m"), "b.yaml")
    bench.start()
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    leaks(bench)
    bench.after("20m")
    leaks(bench)
    bench.after("2h")
    ends(bench)
    bench.after("1h")
    which = [row["playbook"] for row in bench.runs()].index("other")

    text = desk.check(desk.record(which))

    assert "playbook: other" in text


def test_recording_when_numbers_differ_from_alert_to_alert_then_each_has_its_own(desk: Desk) -> None:
    bench = desk.bench
    bench.playbook(RESTART)
    bench.playbook(LIMITED, "site.policy.yaml")
    bench.start()
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    bench.sees("ratio", 0.99, where="trainer-1")
    leaks(bench, annotations=SAVING)
    bench.after("5m")
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("25m")
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("2h")
    bench.deliver(bench.resolved(bench.leak("trainer-1")))
    ends(bench)
    bench.after("1h")

    text = desk.check(desk.record())

    assert "gpu_memory_leak_slope_2" in text
    assert "1 other run is told too" in text


# -- what has no story -------------------------------------------------------------------------------------------------


def test_recording_when_the_run_goes_on_then_says_to_wait(desk: Desk) -> None:
    desk.bench.playbook(RESTART)
    desk.bench.start()
    leaks(desk.bench)

    with pytest.raises(RequestError, match="has not ended"):
        desk.record()


def test_recording_when_a_person_began_the_run_then_says_that_it_has_no_alert(desk: Desk) -> None:
    desk.bench.playbook(RESTART)
    desk.bench.start()
    desk.bench.sees("held", 10)
    desk.bench.engine.run_by_hand("restart", desk.bench.leak(), {}, "alice")
    desk.bench.engine.work()

    with pytest.raises(RequestError, match="begun by hand"):
        desk.record()


def test_recording_when_its_playbook_is_gone_then_says_so(desk: Desk) -> None:
    desk.bench.playbook(RESTART)
    desk.bench.start()
    refused(desk.bench)
    desk.bench.playbook(THROTTLE)

    with pytest.raises(RequestError, match="no playbook is called restart any more"):
        desk.record()


def test_recording_when_its_playbook_was_changed_then_keeps_what_was_and_says_so(desk: Desk) -> None:
    desk.bench.playbook(RESTART)
    desk.bench.start()
    succeeded(desk.bench)
    desk.bench.playbook(RESTART.replace("above: 100", "above: 100000"))

    recording = desk.record()

    assert not recording.is_as_it_was
    assert any("has been changed since" in note for note in recording.notes)
    assert any("does not come out as it was" in note for note in recording.notes)
    assert "docker.restart" in [one.value for one in recording.file.scenarios[0].expect]


# -- under other names -------------------------------------------------------------------------------------------------

CANARIES = {
    "hostname": "canary-host-77",
    "instance": "canary-host-77:9400",
    "container_name": "canary-trainer",
    "UUID": "GPU-canary-1234",
    "exported_pod": "canary-pod-5x",
    "exported_namespace": "canary-team",
    "rack": "canary-rack",
    "severity": "canary-severe",
}
NOTES = {
    "checkpoint_signal": "SIGUSR1",
    "summary": "canary-trainer of canary-customer on canary-host-77 leaks",
    "runbook": "https://canary.example/wiki",
}


def test_recording_under_other_names_when_played_then_comes_out_as_it_was_and_names_nothing(desk: Desk) -> None:
    bench = desk.bench
    bench.hosts.append("canary-host-77")
    bench.world.add_container("canary-host-77", "canary-trainer", labels={"team": "canary-crew"})
    bench.playbook(RESTART.replace("over: {{ labels", "{{ vars.site }}: {{ labels"))
    bench.playbook(LIMITED, "site.policy.yaml")
    bench.start(
        vars={"site": "canary-site"},
        fleets={"all": {"kind": "container", "query": "count(canary_up)"}},
        public_url="https://canary.example",
    )
    bench.sees("held", 70_000)
    bench.sees("ratio", 0.3)
    labels = {"alertname": "GPUMemoryLeakSlope", **CANARIES}
    alert = bench.fires(labels, annotations=NOTES, generatorURL="http://canary-prometheus/graph")
    bench.deliver(alert, externalURL="http://canary-alertmanager", groupLabels={"rack": "canary-rack"})
    bench.after("5m")
    bench.engine.pause("canary-alice", "canary-reason")
    bench.after("10m")
    bench.engine.resume("canary-bob", "canary-reason")
    bench.engine.work()
    bench.after("1h")
    bench.deliver(bench.resolved(labels))
    bench.after("1h")

    text = desk.check(desk.record(is_disguised=True))

    assert re.findall(r"(?i).*canary.*", text) == []
    assert "GPUMemoryLeakSlope" in text, "what a matcher asks for has to stay"
    assert "SIGUSR1" in text, "what an act takes too"
    assert "docker:host-1/container-1" in text


def test_recording_under_other_names_when_a_policy_asks_for_a_beginning_then_keeps_it(desk: Desk) -> None:
    bench = desk.bench
    bench.hosts.append("login-canary")
    bench.world.add_container("login-canary", "trainer-0")
    bench.playbook(RESTART)
    bench.playbook(LIMITED, "site.policy.yaml")
    bench.start()
    bench.sees("held", 70_000)
    labels = {**bench.leak(), "hostname": "login-canary"}
    bench.deliver(bench.fires(labels))
    bench.after("20m")
    bench.deliver(bench.resolved(labels))
    bench.after("1h")

    text = desk.check(desk.record(is_disguised=True))

    assert "canary" not in text
    assert "login-1" in text, "the one that the policy protects is protected still"
