"""``docs/operations.md`` and the pages on how to do one thing, typed as they say against a real engine process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pages import Reader, blocks_of, reader
from realparts.process import free_port

DOCS = Path(__file__).resolve().parents[2] / "docs"

SETTINGS = """
listen = "127.0.0.1:9095"
store_url = "sqlite:////var/lib/remediator/remediator.db"
playbooks = ["/etc/remediator/playbooks"]
pause_file = "/etc/remediator/PAUSE"

[[auth.tokens]]
name = "alertmanager"
roles = ["deliver"]
file = "/etc/remediator/deliver.token"

[[auth.tokens]]
name = "oncall"
roles = ["view", "operate"]
file = "/etc/remediator/operate.token"
"""

PLAYBOOK = "playbook: nothing\nmatch: [alertname = Nothing]\nsteps: [{action: noop}]\n"

START = f"""
<!-- file: remediator.toml -->
```toml
{SETTINGS}
```
<!-- file: playbooks/nothing.yaml -->
```yaml
{PLAYBOOK}
```
<!-- file: deliver.token -->
```text
deliver-0123456789
```
<!-- file: operate.token -->
```text
operate-0123456789
```
<!-- stays up on 127.0.0.1:9095 -->
```console
$ remediator serve
```
```console
$ export REMEDIATOR_TOKEN_FILE=/etc/remediator/operate.token
```
"""
"""What the pages take for granted: an installed engine that runs."""


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Reader]:
    """In the folder of the settings of a running engine, where nothing is outside the test's own folder."""
    instead = {
        "127.0.0.1:9095": f"127.0.0.1:{free_port()}",
        "/etc/remediator": str(tmp_path / "etc"),
        "/var/lib/remediator": str(tmp_path / "lib"),
        "/var/backups/remediator": str(tmp_path / "backups"),
    }
    for folder in ("etc", "lib", "backups"):
        (tmp_path / folder).mkdir()
    shutil.copy(DOCS / "verify_audit.py", tmp_path / "etc")  # where an auditor has put it
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with reader(tmp_path / "etc", instead, env) as made:
        made.read(START)
        yield made


@pytest.mark.system
def test_operations_when_followed_command_by_command_then_all_is_as_it_says(person: Reader) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("the sqlite3 command is not installed (Debian: sqlite3)")
    assert person.read((DOCS / "operations.md").read_text("utf-8")) > 10


@pytest.mark.parametrize("page", ["rotate-tokens.md", "pause-at-night.md", "verify-the-audit.md"])
def test_howto_when_followed_command_by_command_then_all_is_as_it_says(page: str, person: Reader) -> None:
    assert person.read((DOCS / "howto" / page).read_text("utf-8")) > 2


RECEIVERS = [
    block.text for block in blocks_of((DOCS / "alertmanager.md").read_text("utf-8")) if block.file == "alertmanager.yml"
]


@pytest.mark.alertmanager
@pytest.mark.parametrize("config", RECEIVERS, ids=["with a token", "with TLS"])
def test_receiver_when_checked_by_amtool_then_it_is_valid(
    config: str, find_tool: Callable[[str], Path], tmp_path: Path
) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(config)
    done = subprocess.run(
        [find_tool("amtool"), "check-config", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_webhook_when_asked_as_the_page_on_alertmanager_says_then_the_engine_itself_answers(person: Reader) -> None:
    page = (DOCS / "alertmanager.md").read_text("utf-8")
    (command,) = [block.text for block in blocks_of(page) if block.language == "sh"]
    assert person.read(f"```console\n$ {command.strip()}\n401\n```\n") == 1
