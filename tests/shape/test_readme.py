"""The pages at the root: their playbook loads, their commands exist, their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from remediator.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


@pytest.mark.parametrize("page", PAGES)
def test_page_when_it_links_to_a_file_then_that_file_exists(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_page_when_it_names_a_command_then_that_command_exists(page: str) -> None:
    named = set(re.findall(r"`remediator ([a-z]+)", (ROOT / page).read_text()))
    assert named - set(COMMANDS) == set()


@pytest.mark.parametrize("page", PAGES)
def test_page_when_it_names_a_make_target_then_make_knows_it(page: str) -> None:
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / page).read_text(), re.M))
    assert named - known == set()


def test_readme_when_its_playbook_is_checked_then_it_loads(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(playbook: .+?)```", README, re.S)
    assert found is not None
    (tmp_path / "restart-on-leak.yaml").write_text(found[1])
    (tmp_path / "remediator.toml").write_text(
        f'playbooks = ["{tmp_path}"]\n[docker.hosts.gpu-07]\nurl = "unix:///var/run/docker.sock"\n'
        '[notify.oncall]\nurls = ["syslog://"]\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "remediator", "--config", "remediator.toml", "check"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "ok"), done.stdout + done.stderr
