"""``docs/quickstart.md``, done as it says: a real Docker engine, a real Alertmanager, the commands typed one by one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from conftest_realparts import do_without
from pages import reader
from realparts.alertmanager import find_binary
from realparts.docker_engine import IMAGE, DockerEngine
from realparts.process import free_port

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "quickstart.md").read_text("utf-8")


@pytest.mark.docker
@pytest.mark.alertmanager
def test_quickstart_when_followed_command_by_command_then_all_is_as_it_says(
    private_docker_engine: DockerEngine, tmp_path: Path
) -> None:
    if shutil.which("docker") is None:
        pytest.skip("the docker command is not installed (Debian: docker.io or docker-cli)")
    try:
        alertmanager = find_binary("0.25")
    except FileNotFoundError as error:
        do_without("alertmanager", str(error))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "alertmanager").symlink_to(alertmanager)
    # A reader's engine would fetch it.
    private_docker_engine.client.images.get(IMAGE).tag("busybox")
    folder = tmp_path / "quickstart"
    folder.mkdir()
    instead = {
        "127.0.0.1:9095": f"127.0.0.1:{free_port()}",
        "127.0.0.1:9093": f"127.0.0.1:{free_port()}",
        "unix:///var/run/docker.sock": private_docker_engine.url,
    }
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with reader(folder, instead, {"PATH": path, "DOCKER_HOST": private_docker_engine.url}) as person:
        assert person.read(PAGE) > 15
