"""A peer to stand beside: ansible-rulebook with its built-in webhook source, whole, from the package index.

Its own environment in the cache folder, made once → a command that serves, or why there is none. It keeps nothing: an
event is in its memory when it answers. One rule reads every event and fits none, so that it acts on nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.child import Child
from realparts.alertmanager import cache_folder

VERSION = "1.3.2"
PACKAGES = (f"ansible-rulebook=={VERSION}", "ansible-core")
OLDEST_JAVA = 17
"""Its rule engine is Drools, on a Java virtual machine."""

PATH = "/alertmanager"

_RULEBOOK = """
- name: bench
  hosts: all
  sources:
    - eda.builtin.webhook: {{host: 127.0.0.1, port: {port}, token: {token}}}
  rules:
    - name: never
      condition: event.payload.status == "never"
      action: {{none: }}
"""


class NoPeerError(Exception):
    """It cannot be had here; the message says why."""


def peer(folder: Path) -> Child:
    """The peer, not started.

    Raises:
        NoPeerError: no Java, or it cannot be installed.
    """
    java = _java_home()
    bin_folder = _installed() / "bin"

    def command(port: int, token: str) -> list[str]:
        rulebook, inventory = folder / "rulebook.yml", folder / "inventory"
        rulebook.write_text(_RULEBOOK.format(port=port, token=token))
        inventory.write_text("localhost\n")
        return [str(bin_folder / "ansible-rulebook"), "--rulebook", str(rulebook), "--inventory", str(inventory)]

    env = {"JAVA_HOME": str(java), "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": ""}
    return Child(folder, command, name="ansible-rulebook", path=PATH, env=env)


def _java_home() -> Path:
    found = shutil.which("java")
    if found is None:
        raise NoPeerError(f"it needs Java {OLDEST_JAVA}, and there is none")
    said = subprocess.run(
        [found, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    ).stderr
    words = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in said.splitlines())}
    version = words.get("java.specification.version", "0")
    if not version.isdigit() or int(version) < OLDEST_JAVA:
        raise NoPeerError(f"it needs Java {OLDEST_JAVA}, and here is {version}")
    return Path(words["java.home"])


def _installed() -> Path:
    venv = cache_folder() / f"ansible-rulebook-{VERSION}"
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = venv / "made-from"
        if stamp.exists() and stamp.read_text() == " ".join(PACKAGES):
            return venv
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True, capture_output=True)
            subprocess.run(
                [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES],
                check=True, capture_output=True,
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines() or [""]
            raise NoPeerError(f"it cannot be installed: {said[-1][:200]}") from error
        stamp.write_text(" ".join(PACKAGES))
    return venv
