"""What was delivered, decided anew: by the playbooks that decided it nothing differs, by others what they would do."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.engine.conftest import START, Bench, new_bench
from remediator.app import App, read_only_clients, replay_deliveries
from remediator.clients.alertmanager import Alertmanager, SilencingAlertmanager
from remediator.clients.dockerd import Dockerd, DockerdReader
from remediator.clients.notifier import AppriseNotifier
from remediator.clients.prometheus import Prometheus
from remediator.core.scenario import Failure
from remediator.errors import RequestError

CONTAINER = 'container: "{{ labels.container_name }}"'
ESCALATE = "escalate: {to: [oncall]}\nreport: {to: [ml-platform]}\n"
RESTART = f"steps: [{{name: restart, action: docker.restart, params: {{{CONTAINER}}}}}]\n{ESCALATE}"
LADDER = f"""
verify: [{{name: memory, query: "mem", below: 0.8, within: 2m}}]
ladder: {{within: 1h}}
steps:
  - {{name: tell, rung: 1, action: docker.signal, params: {{{CONTAINER}, signal: SIGUSR1}}}}
  - {{name: anew, rung: 2, action: docker.restart, params: {{{CONTAINER}}}}}
{ESCALATE}"""
LEASE = f"""
steps: [{{name: cap, action: docker.limit, params: {{{CONTAINER}, cpus: 1}}, undo: {{after: 5m, at_most: 1h}}}}]
{ESCALATE}"""
ASKS = "approval: {ask: [oncall], expires: 1h}\n"
BREAKER = "policy: site\nbreaker: {percent: 50, of: trainers, within: 1h}\n"
IN_MEMORY = Path("/dev/shm")  # no disk is waited for

FLEETS = {"trainers": {"kind": "container", "size": 2}}


def playbook(more: str = "", *, name: str = "restart", steps: str = RESTART) -> str:
    match = "match: [alertname = GPUMemoryLeakSlope]\nper: [host, container_name]\n"
    return f"playbook: {name}\n{match}{steps}\n{more}\n"


def replayed(bench: Bench, *playbooks: Path, **more: Any) -> dict[str, Any]:
    """From before the first delivery to now."""
    until = bench.clock.moment + timedelta(seconds=1)
    wanted = {"since": START - timedelta(days=1), "until": until, **more}
    return replay_deliveries(bench.engine.settings, playbooks, **wanted)


def kinds(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["playbook"]) for one in answer["differences"]]


def other(bench: Bench, *texts: str) -> Path:
    """A folder with another set."""
    folder = bench.folder / "other"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.yaml").write_text(text)
    return folder


def leaks(bench: Bench, container: str = "trainer-0", *, lasts: str = "20m") -> None:
    """An alert fires, is repeated, and is over."""
    bench.deliver(bench.fires(bench.leak(container)))
    bench.after("5m")
    bench.deliver(bench.fires(bench.leak(container), ago="5m"))
    bench.after(lasts)
    bench.deliver(bench.resolved(bench.leak(container)))
    bench.after("1m")


# -- by the same playbooks nothing differs -----------------------------------------------------------------------------


def acts_and_cools_down(bench: Bench) -> None:
    bench.playbook(playbook("hold: 2m\nguard: {cooldown: 1h}"))
    bench.start()
    for _ in range(3):
        leaks(bench)


def is_restarted(bench: Bench) -> None:
    bench.playbook(playbook("hold: 10m"))
    bench.start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("4m")
    bench.away("20m")
    bench.after("2m")
    bench.deliver(bench.fires(bench.leak(), ago="26m"))
    bench.after("30m")


def is_approved_and_denied(bench: Bench) -> None:
    bench.playbook(playbook(ASKS))
    bench.start()
    for answer in (App.approve, App.deny, None):
        bench.deliver(bench.fires(bench.leak()))
        bench.after("7m")
        if answer is not None:
            answer(bench.engine, bench.runs()[0]["run_id"], "alice", "seen")
            bench.engine.work()
        bench.after("90m")
        bench.deliver(bench.resolved(bench.leak()))
        bench.after("6h")


def lends(bench: Bench) -> None:
    bench.playbook(playbook(steps=LEASE))
    bench.start()
    leaks(bench)
    bench.after("20m")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("10m")
    bench.engine.undo(bench.runs()[0]["run_id"], "", "alice", "enough")
    bench.engine.work()
    bench.after("2h")


def climbs(bench: Bench) -> None:
    bench.playbook(playbook(steps=LADDER))
    bench.sees("memory", 0.95)
    bench.start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("3m")
    bench.sees("memory", 0.4)
    bench.after("20m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.sees("memory")
    bench.after("2h")
    leaks(bench, "trainer-1")


def is_delivered_twice(bench: Bench) -> None:
    bench.playbook(playbook("hold: 1m"))
    bench.start()
    for word in (bench.fires, bench.fires, bench.resolved, bench.resolved, bench.fires):
        bench.deliver(word(bench.leak()))
        bench.after("15s")
        bench.deliver(word(bench.leak(), ago="15s"))
        bench.after("5m")


def trips_a_breaker(bench: Bench) -> None:
    bench.playbook(playbook())
    bench.playbook(BREAKER, "site.policy.yaml")
    bench.start(fleets=FLEETS)
    bench.deliver(bench.fires(bench.leak("trainer-0")), bench.fires(bench.leak("trainer-1")))
    bench.after("30m")
    bench.engine.reset_breaker("site", "alice", "known")
    bench.engine.work()
    bench.after("1h")


def is_paused(bench: Bench) -> None:
    bench.playbook(playbook())
    bench.start()
    bench.engine.pause("alice", "maintenance")
    bench.deliver(bench.fires(bench.leak("trainer-0")))
    bench.after("30m")
    bench.engine.resume("alice", "done")
    bench.engine.work()
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("30m")


def is_cancelled(bench: Bench) -> None:
    bench.playbook(playbook("hold: 1h"))
    bench.start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("10m")
    bench.engine.cancel(bench.runs()[0]["run_id"], "alice", "planned")
    bench.engine.work()
    bench.after("2h")


def is_settled(bench: Bench) -> None:
    bench.playbook(playbook(steps=RESTART.replace("docker.restart", "docker.stop")))
    bench.start()
    bench.world.fail("docker.stop", Failure.UNKNOWN, times=5)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1h")
    for row in bench.runs():
        with contextlib.suppress(RequestError):
            bench.engine.settle(row["run_id"], True, "alice", "looked")
    bench.after("1h")


def is_run_by_hand(bench: Bench) -> None:
    bench.playbook(playbook("guard: {cooldown: 2h}"))
    bench.start()
    bench.engine.run_by_hand("restart", bench.leak(), {}, "alice")
    bench.engine.work()
    bench.after("10m")
    leaks(bench)
    bench.after("3h")


def expires(bench: Bench) -> None:
    bench.playbook(playbook("hold: 3h"))
    bench.start(expire_after="2h")
    bench.deliver(bench.fires(bench.leak()))
    for _ in range(5):
        bench.after("1h")


def is_answered_badly(bench: Bench) -> None:
    bench.playbook(playbook("guard: {require: [{name: up, query: up, equals: 1}], cooldown: 0s}"))
    bench.sees("up", 1)
    bench.start()
    bench.world.fail("docker.restart", Failure.TRANSIENT, times=2)
    bench.world.fail("docker.restart", Failure.PERMANENT)
    leaks(bench)
    bench.sees("up", 0)
    leaks(bench)
    bench.sees("up")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("15m")
    bench.sees("up", 1)
    bench.after("15m")
    bench.world.remove_container("gpu-07", "trainer-1")
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("15m")
    bench.world.set_away("gpu-07", is_away=True)
    bench.deliver(bench.resolved(bench.leak()))
    bench.deliver(bench.fires(bench.leak()))
    bench.after("15m")
    bench.world.set_away("gpu-07", is_away=False)
    bench.after("15m")


def takes_its_time(bench: Bench) -> None:
    """Each act takes 40 s, in which others wait; what helps is seen 15 s after it."""
    bench.playbook(playbook("guard: {cooldown: 10m}", steps=LADDER))
    bench.playbook("policy: site\nmax_concurrent_runs: 1\n", "site.policy.yaml")
    bench.sees("memory", 0.95)
    bench.start()
    act = bench.world.act

    def slow(*args: Any) -> None:
        act(*args)
        bench.clock.moment += timedelta(seconds=40)
        bench.engine._life.note_alive()

    bench.world.act = slow  # type: ignore[method-assign]
    bench.deliver(bench.fires(bench.leak("trainer-0")), bench.fires(bench.leak("trainer-1")))
    bench.after("3m")
    bench.sees("memory", 0.4)
    bench.after("45m")
    bench.deliver(bench.resolved(bench.leak("trainer-0")), bench.resolved(bench.leak("trainer-1")))
    bench.after("20m")


STORIES = [
    takes_its_time, acts_and_cools_down, is_restarted, is_approved_and_denied, lends, climbs, is_delivered_twice,
    trips_a_breaker, is_paused, is_cancelled, is_settled, is_run_by_hand, expires, is_answered_badly,
]  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_replay_when_by_the_same_playbooks_then_nothing_differs(bench: Bench, story: Callable[[Bench], None]) -> None:
    story(bench)
    answer = replayed(bench)
    assert answer["differences"] == []
    assert answer["runs"]["same"] == len(bench.runs()) > 0
    assert [one for one in answer["people"] if not one["means"]] == []
    assert answer["assumed"] == []


# -- by others ---------------------------------------------------------------------------------------------------------


def told(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """What differs in the one run that does."""
    assert len(answer["differences"]) == 1
    return {one["what"]: (one["was"], one["would_be"]) for one in answer["differences"][0]["what"]}


def test_replay_when_a_playbook_is_removed_then_its_runs_are_gone(bench: Bench) -> None:
    acts_and_cools_down(bench)
    answer = replayed(bench, other(bench, playbook(name="other").replace("GPUMemoryLeakSlope", "Other")))
    assert kinds(answer) == [("gone", "restart")] * 3
    first = answer["differences"][0]
    assert first["incident"] == f"remediator incident {first['run_id']}"
    assert first["targets"] == ["docker:gpu-07/trainer-0"]
    assert first["would_be"] is None
    assert answer["by_playbook"] == [{"playbook": "restart", "same": 0, "new": 0, "gone": 3, "different": 0}]


def test_replay_when_a_playbook_is_new_then_its_runs_are_new_and_rest_on_assumptions(bench: Bench) -> None:
    acts_and_cools_down(bench)
    stops = playbook(name="stop", steps=RESTART.replace("docker.restart", "docker.stop"))
    answer = replayed(bench, bench.folder / "playbooks", other(bench, stops.replace("per: [host, ", "per: [rank, ")))
    assert {one for one in kinds(answer) if one[1] == "stop"} == {("new", "stop")}


def test_replay_when_the_hold_is_longer_then_it_acts_later_or_not_at_all(bench: Bench) -> None:
    bench.playbook(playbook())
    bench.start()
    leaks(bench, lasts="2h")
    leaks(bench, "trainer-1", lasts="10m")
    answer = replayed(bench, other(bench, playbook("hold: 30m")))
    later, never = answer["differences"]
    assert later["what"] == [{"what": "acts_after", "was": "0s", "would_be": "30m"}]
    assert {one["what"]: (one["was"], one["would_be"]) for one in never["what"]}["ends"] == (
        "acted",
        "cancelled (resolved)",
    )


def test_replay_when_a_policy_protects_then_it_would_refuse(bench: Bench) -> None:
    bench.playbook(playbook())
    bench.start()
    leaks(bench)
    protects = "policy: site\nprotect:\n  - name = trainer-0\n"
    answer = replayed(bench, other(bench, playbook(), protects))
    assert told(answer)["ends"] == ("acted", "refused (protected)")
    assert answer["differences"][0]["kind"] == "different"
    assert "trainer-0 is protected by" in answer["differences"][0]["would_be"]["why"]


def test_replay_when_the_cooldown_changes_then_it_no_longer_waits(bench: Bench) -> None:
    acts_and_cools_down(bench)
    answer = replayed(bench, other(bench, playbook("hold: 2m\nguard: {cooldown: 0s}")))
    assert kinds(answer) == [("different", "restart")] * 2
    assert {"what": "waits", "was": "cooldown", "would_be": ""} in answer["differences"][0]["what"]


def test_replay_when_params_change_then_says_which(bench: Bench) -> None:
    bench.playbook(playbook())
    bench.start()
    leaks(bench)
    answer = replayed(
        bench, other(bench, playbook(steps=RESTART.replace("{container", "{stop_timeout: 2m, container")))
    )
    was, would_be = told(answer)["acts"]
    assert '"stop_timeout"' not in was
    assert '"stop_timeout": "2m"' in would_be


def test_replay_when_people_are_asked_now_then_their_answers_of_then_mean_nothing_more(bench: Bench) -> None:
    is_approved_and_denied(bench)
    answer = replayed(bench, other(bench, playbook()))
    assert [(one["did"], one["means"]) for one in answer["people"]] == [("approve", False), ("deny", False)]
    assert "it asked nobody" in answer["people"][0]["why"]


def test_replay_when_nobody_was_asked_then_says_what_it_assumed(bench: Bench) -> None:
    bench.playbook(playbook("mode: observe"))
    bench.start()
    leaks(bench)
    measures = 'verify: [{name: memory, query: "mem", below: 0.8, within: 2m}]'
    answer = replayed(bench, other(bench, playbook(measures)))
    assert told(answer)["ends"] == ("observed (mode_observe)", "acted")
    assert answer["differences"][0]["rests_on"] == ["act", "condition", "message"]
    assert [(one["kind"], one["times"]) for one in answer["assumed"]] == [("act", 1), ("message", 1), ("condition", 1)]
    assert answer["assumed"][0]["runs"] == [answer["differences"][0]["run_id"]]


def test_replay_when_the_bound_changes_then_the_recorded_number_is_compared_with_it(bench: Bench) -> None:
    bench.playbook(playbook('verify: [{name: memory, query: "mem", below: 0.8, within: 2m}]'))
    bench.sees("memory", 0.9)
    bench.start()
    leaks(bench)
    assert bench.ended()[0] == "ineffective"
    answer = replayed(bench, other(bench, playbook('verify: [{name: memory, query: "mem", below: 0.95, within: 2m}]')))
    assert answer["assumed"] == []
    assert answer["differences"] == []  # whether it helped is not decided


def test_replay_when_the_window_begins_later_then_earlier_acts_still_count(bench: Bench) -> None:
    bench.playbook(playbook("guard: {cooldown: 1h}"))
    bench.start()
    leaks(bench)
    since = bench.clock.moment
    leaks(bench)
    answer = replayed(bench, since=since)
    assert answer["differences"] == []
    assert answer["runs"]["recorded"] == 1
    assert answer["deliveries"] == {"decided": 3, "warm_up": 3, "refused": 0}


def test_replay_when_something_fired_before_the_warm_up_then_it_is_left_alone(bench: Bench) -> None:
    """Acted on at its first repeat, it would hold up what the window begins with."""
    bench.playbook(playbook("guard: {cooldown: 25h}"))
    bench.start(expire_after="30h")
    bench.deliver(bench.fires(bench.leak()))
    for day in range(4):
        bench.after("1d")
        bench.deliver(bench.fires(bench.leak(), ago=f"{day + 1}d"))
    bench.after("10m")
    since = bench.clock.moment
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1m")
    leaks(bench)
    answer = replayed(bench, since=since)
    assert answer["differences"] == []
    assert answer["runs"]["recorded"] == answer["runs"]["same"] == 1


def test_replay_when_the_set_was_another_for_a_time_then_says_so(bench: Bench) -> None:
    bench.playbook(playbook("hold: 5m"))
    bench.start()
    leaks(bench)
    bench.playbook(playbook())
    bench.reload()
    leaks(bench)
    assert any("went on with others (restart)" in note for note in replayed(bench)["notes"])


def test_replay_when_an_engine_runs_then_its_store_is_only_read(bench: Bench) -> None:
    acts_and_cools_down(bench)
    before = bench.events()
    replayed(bench, other(bench, playbook()))
    assert bench.events() == before
    assert bench.clock.moment > START


def test_replay_when_there_is_nothing_then_says_so(bench: Bench) -> None:
    bench.playbook(playbook())
    bench.start()
    answer = replayed(bench)
    assert answer["differences"] == []
    assert answer["notes"] == ["no delivery is stored of this time: there is nothing to decide"]


def test_replay_when_it_is_wired_then_no_real_client_is_in_reach(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that could touch a neighbour is made: whoever makes one fails."""
    acts_and_cools_down(bench)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a replay makes no real client")

    for client in (Dockerd, DockerdReader, AppriseNotifier, Prometheus, Alertmanager, SilencingAlertmanager):
        monkeypatch.setattr(client, "__init__", refuse)
    with pytest.raises(AssertionError, match="no real client"):
        read_only_clients(bench.engine.settings)
    assert replayed(bench)["differences"] == []


# -- whatever happened -------------------------------------------------------------------------------------------------

WHAT = st.one_of(
    st.tuples(st.just("fires"), st.sampled_from(["trainer-0", "trainer-1"]), st.sampled_from(["0s", "3m"])),
    st.tuples(st.just("resolves"), st.sampled_from(["trainer-0", "trainer-1"])),
    st.tuples(st.just("passes"), st.sampled_from(["1m", "6m", "31m", "2h"])),
    st.tuples(st.just("away"), st.sampled_from(["10s", "20m"])),
    st.tuples(st.just("sees"), st.sampled_from([0.5, 0.9, None])),
    st.tuples(st.just("fails"), st.sampled_from([Failure.TRANSIENT, Failure.PERMANENT])),
    st.tuples(st.just("does"), st.sampled_from(["approve", "deny", "pause", "resume", "cancel", "undo", "reset"])),
)
SETS = [
    [playbook("guard: {cooldown: 30m, max_runs: {count: 2, per: 3h}}"), BREAKER],
    [playbook("hold: 2m", steps=LADDER), playbook(name="cap", steps=LEASE)],
    [playbook(ASKS), playbook("guard: {cooldown: 0s}", name="cap", steps=LEASE), BREAKER],
]


@given(story=st.lists(WHAT, min_size=5, max_size=25), chosen=st.sampled_from(SETS))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_replay_whatever_happened_then_by_the_same_playbooks_nothing_differs(
    story: list[tuple[str, Any]], chosen: list[str]
) -> None:
    folder = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    bench = new_bench(folder)
    try:
        for number, text in enumerate(chosen):
            bench.playbook(text, f"{number}.yaml")
        bench.sees("memory", 0.9)
        bench.start = partial(bench.start, fleets=FLEETS)  # type: ignore[method-assign]  # also after a kill
        bench.start()
        for what, *args in story:
            with contextlib.suppress(RequestError, IndexError):
                happens(bench, what, *args)
            bench.after("1s")
        assert replayed(bench)["differences"] == []
    finally:
        bench.stop()
        shutil.rmtree(folder)


def happens(bench: Bench, what: str, *args: Any) -> None:
    match what:
        case "fires":
            bench.deliver(bench.fires(bench.leak(args[0]), ago=args[1]))
        case "resolves":
            bench.deliver(bench.resolved(bench.leak(args[0])))
        case "passes":
            bench.after(args[0])
        case "away":
            bench.away(args[0])
        case "sees":
            bench.sees("memory", *([] if args[0] is None else [args[0]]))
        case "fails":
            bench.world.fail("docker.restart", args[0])
        case "does":
            does(bench, args[0])
            bench.engine.work()


def does(bench: Bench, what: str) -> None:
    engine = bench.engine
    match what:
        case "pause":
            engine.pause("alice", "work")
        case "resume":
            engine.resume("alice", "done")
        case "reset":
            engine.reset_breaker("site", "alice", "known")
        case "undo":
            engine.undo([row["run_id"] for row in bench.runs() if row["has_acted"]][0], "", "alice", "enough")  # noqa: RUF015
        case "cancel":
            engine.cancel(bench.runs()[0]["run_id"], "alice", "no")
        case "approve" | "deny":
            asking = next((row["run_id"] for row in bench.runs() if row["phase"] == "asking"), "")
            (engine.approve if what == "approve" else engine.deny)(asking, "alice", "seen")
