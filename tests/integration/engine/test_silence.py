"""A run that silences its own alert: it still knows that it fires, hears of its end, and ends the silence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from remediator.core.scenario import Failure

URLS = ("http://am-1:9093", "http://am-2:9093")

QUIET = """
steps:
  - {name: quiet, action: alertmanager.silence, params: {duration: 2h}}
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
escalate: {to: [oncall]}
"""

LADDER = """
steps:
  - {name: quiet, rung: 1, action: alertmanager.silence, params: {duration: 2h}}
  - {name: slow, rung: 1, action: docker.limit, params: {container: "{{ labels.container_name }}", cpus: 3}}
  - {name: slower, rung: 2, action: docker.limit, params: {container: "{{ labels.container_name }}", cpus: 2}}
ladder: {within: 6h}
verify: [{name: temp_c, query: 'max(temp_c)', below: 82, within: 1m}]
escalate: {to: [oncall]}
"""


@pytest.fixture
def quiet(bench: Any) -> Any:
    """An engine that asks two Alertmanagers of one cluster, and a playbook that silences and restarts."""
    for url in URLS:
        bench.world.add_alertmanager(url)
    return bench.restarts(steps=QUIET)


def start(bench: Any) -> Any:
    bench.start(alertmanager={"urls": list(URLS), "receiver": "remediator"})
    bench.after("1m")
    return bench


def fires(bench: Any) -> dict[str, str]:
    """The alert comes, and the Alertmanagers have it; its labels."""
    labels: dict[str, str] = bench.leak()
    bench.world.list_alert(labels)
    bench.deliver(bench.fires(labels))
    return labels


def silences(bench: Any) -> list[Any]:
    found: list[Any] = list(bench.world.silences(URLS[-1]))
    return found


def alive(bench: Any) -> int:
    return sum(silence.is_alive for silence in silences(bench))


def lease_states(bench: Any) -> list[str]:
    return [lease["state"] for lease in bench.engine.leases(100, is_all=True)]


def test_silence_when_a_run_makes_it_then_it_mutes_the_alert_and_names_the_run(quiet: Any) -> None:
    labels = fires(start(quiet))
    (silence,) = silences(quiet)
    assert (dict(silence.labels), silence.created_by) == (labels, "remediator")
    assert quiet.run()["run_id"] in silence.comment
    assert quiet.acts() == [f"alertmanager.silence {URLS[0]}", "docker.restart docker:gpu-07/trainer-0"]
    assert (quiet.ended()[0], lease_states(quiet)) == ("succeeded", ["open"])


def test_silence_when_the_playbook_says_which_alerts_then_it_mutes_those(quiet: Any) -> None:
    labels = 'labels: {hostname: "{{ labels.hostname }}"}'
    quiet.restarts(steps=QUIET.replace("duration: 2h", f"duration: 2h, {labels}"))
    fires(start(quiet))
    (silence,) = silences(quiet)
    assert dict(silence.labels) == {"hostname": "gpu-07"}
    describes = quiet.run()["events"][0]["data"]["plan"]["steps"][0]["describes"]
    assert describes == 'silence hostname="gpu-07" for 2h'


def test_silence_when_its_alert_resolves_under_it_then_the_episode_ends_and_then_the_silence(quiet: Any) -> None:
    labels = fires(start(quiet))
    quiet.after("20m")
    assert alive(quiet) == 1
    quiet.world.forget_alert(labels)  # no `resolved` is delivered: the silence mutes it
    quiet.after("7m")
    assert [event.data["reason"] for event in quiet.events("episode_ended")] == ["absent"]
    assert alive(quiet) == 1
    quiet.after("10m")
    assert (alive(quiet), lease_states(quiet)) == (0, ["undone"])
    assert quiet.told() == []


def test_silence_when_the_alert_fires_on_then_it_ends_by_itself_and_nobody_is_told_of_that(
    quiet: Any,
) -> None:
    fires(start(quiet))
    quiet.after("1h59m")
    assert alive(quiet) == 1
    quiet.after("2m")
    assert (alive(quiet), lease_states(quiet)) == (0, ["undone"])
    assert quiet.world.n_writes("alertmanager.expire") == 0
    assert ["still fires" in message for message in quiet.told()] == [True]


def test_silence_when_a_person_ended_it_then_nothing_is_ended_again_and_nobody_is_told(quiet: Any) -> None:
    labels = fires(start(quiet))
    quiet.after("2m")
    quiet.world.change_silence(silences(quiet)[0].id, status="expired", ends_at=quiet.clock.now())
    quiet.world.forget_alert(labels)
    quiet.after("20m")
    assert (lease_states(quiet), quiet.world.n_writes("alertmanager.expire"), quiet.told()) == (["undone"], 0, [])


def test_silence_when_no_answer_came_and_it_was_made_then_it_is_found_and_not_made_twice(quiet: Any) -> None:
    quiet.world.fail("alertmanager.silence", Failure.TIMEOUT_AFTER_EFFECT)
    fires(start(quiet))
    quiet.after("5m")
    assert (len(silences(quiet)), quiet.world.n_writes("alertmanager.silence")) == (1, 1)
    assert (quiet.ended()[0], lease_states(quiet)) == ("succeeded", ["open"])


def test_silence_when_no_answer_came_and_it_was_not_made_then_it_is_tried_again_after_its_time_out(quiet: Any) -> None:
    quiet.world.fail("alertmanager.silence", Failure.UNKNOWN)
    fires(start(quiet))
    quiet.after("30s")
    assert silences(quiet) == []
    quiet.after("5m")
    assert (len(silences(quiet)), quiet.world.n_writes("alertmanager.silence")) == (1, 2)
    assert quiet.ended()[0] == "succeeded"


class Killed(BaseException):
    """The process ends here."""


def test_silence_when_the_engine_is_killed_before_it_knows_then_the_next_one_finds_it(
    quiet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = quiet.world.silence

    def silence_and_die(*args: Any) -> str:
        silence(*args)
        raise Killed

    monkeypatch.setattr(quiet.world, "silence", silence_and_die)
    start(quiet)
    with pytest.raises(Killed):
        fires(quiet)
    quiet.stop()
    monkeypatch.undo()
    start(quiet)
    assert (len(silences(quiet)), quiet.ended()[0], lease_states(quiet)) == (1, "succeeded", ["open"])


def test_silence_when_one_of_two_is_away_then_the_other_is_told(quiet: Any) -> None:
    start(quiet)
    quiet.world.set_away(URLS[0], is_away=True)
    fires(quiet)
    assert quiet.acts()[0] == f"alertmanager.silence {URLS[1]}"
    assert alive(quiet) == 1


def test_turn_of_the_next_rung_when_only_our_own_silence_mutes_it_then_it_comes(bench: Any) -> None:
    bench.world.add_alertmanager(URLS[0])
    bench.restarts(steps=LADDER).start(alertmanager={"urls": [URLS[0]]})
    bench.world.sees("temp_c", 90.0)
    bench.after("1m")
    bench.world.list_alert(bench.leak())
    bench.deliver(bench.fires(bench.leak()))
    bench.after("2m")
    assert bench.acts()[-1] == "docker.limit docker:gpu-07/trainer-0"
    assert bench.world.n_writes("docker.limit") == 2


def test_turn_of_the_next_rung_when_somebody_silences_it_too_then_it_waits(bench: Any) -> None:
    bench.world.add_alertmanager(URLS[0])
    bench.restarts(steps=LADDER).start(alertmanager={"urls": [URLS[0]]})
    bench.world.sees("temp_c", 90.0)
    bench.after("1m")
    bench.world.list_alert(bench.leak())
    bench.deliver(bench.fires(bench.leak()))
    alertmanager = bench.world.clients().alertmanagers[URLS[0]]
    alertmanager.create_silence(
        {"hostname": "gpu-07"}, duration=timedelta(minutes=30), created_by="alice", comment="mine", deadline_s=1
    )
    bench.after("20m")
    assert (bench.world.n_writes("docker.limit"), bench.run()["waits_for"]) == (1, ["turn:silenced"])
    bench.after("11m")
    assert bench.world.n_writes("docker.limit") == 2
