"""The flow from a delivery to a closed run, on a real store and a world in memory."""

from __future__ import annotations

from typing import Any

LEAK = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": "trainer-0"}

RESTART = """
playbook: restart
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
steps:
  - name: restart
    action: docker.restart
    params: {container: "{{ labels.container_name }}"}
escalate: {to: [oncall]}
report: {to: [ml-platform]}
"""


def start(bench: Any, playbook: str = RESTART) -> None:
    bench.playbook(playbook)
    bench.world.add_container("gpu-07", "trainer-0")
    bench.start()
    bench.after("1m")


def test_flow_when_an_alert_fires_then_the_container_is_restarted_once_and_reported(bench: Any) -> None:
    start(bench)
    bench.deliver(bench.fires(LEAK))
    for _ in range(5):
        bench.after("1m")
        bench.deliver(bench.fires(LEAK, ago="1m"))
    assert bench.did() == ["docker.restart docker:gpu-07/trainer-0", "tell ml-platform"]
    assert bench.ended() == ("succeeded", "none")


def test_flow_when_resolved_then_the_run_is_closed_and_a_new_firing_waits_for_the_cooldown(bench: Any) -> None:
    start(bench)
    bench.deliver(bench.fires(LEAK))
    bench.after("5m")
    bench.deliver(bench.resolved(LEAK))
    assert bench.run()["phase"] == "closed"
    bench.after("5m")
    bench.deliver(bench.fires(LEAK))
    newest = bench.runs()[0]
    assert (newest["phase"], newest["waits_for"]) == ("waiting", ["cooldown:cooldown"])
    bench.after("25m")
    assert [call for call in bench.did() if "restart" in call] == ["docker.restart docker:gpu-07/trainer-0"] * 2
