"""The first screen of the README: its playbook is a real one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_readme_when_its_playbook_is_checked_then_it_loads(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(playbook: .+?)```", README, re.S)
    assert found is not None
    (tmp_path / "restart-on-leak.yaml").write_text(found[1])
    (tmp_path / "remediator.toml").write_text(
        f'playbooks = ["{tmp_path}"]\n[docker.hosts.gpu-07]\nurl = "unix:///var/run/docker.sock"\n'
        '[notify.oncall]\nurls = ["syslog://"]\n[alertmanager]\nurls = ["http://alertmanager:9093"]\n'
        '[prometheus.servers.here]\nurl = "http://prometheus:9090"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "remediator", "--config", "remediator.toml", "check"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "ok"), done.stdout + done.stderr


ALERTS = """\
playbooks: [restart-on-leak.yaml]
alerts:
  leak: {labels: {alertname: GPUMemoryLeakSlope, hostname: gpu-07, container_name: trainer-0}}
world: {docker: {gpu-07: {trainer-0: {}}}}
"""


def test_readme_when_its_test_is_played_on_its_playbook_then_it_passes(tmp_path: Path) -> None:
    playbook, scenarios = (re.search(rf"```yaml\n({key}:.+?)```", README, re.S) for key in ("playbook", "scenarios"))
    assert playbook is not None
    assert scenarios is not None
    (tmp_path / "restart-on-leak.yaml").write_text(playbook[1])
    (tmp_path / "restart-on-leak.test.yaml").write_text(ALERTS + scenarios[1])
    done = subprocess.run(
        [sys.executable, "-m", "remediator", "test", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
