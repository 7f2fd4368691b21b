"""A page of the documentation as its reader takes it: files to write, commands to type, and what they should say.

A page in Markdown → its fenced blocks, each with the comment right above it, which a reader does not see:

    <!-- file: NAME -->               the block is that file
    <!-- stays up on HOST:PORT -->    its command is a server, up when that address takes connections
    <!-- until it shows this -->      looked at again until it does
    <!-- not run: WHY -->

In a ``console`` block a line after ``$ `` is a command and what follows is what it shows; ``…`` stands for anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from realparts.process import Process
from remediator.cli import cli

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n)?^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)

WITHIN_S = 60.0
"""What a page says that a command shows is there after some seconds; under load later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; ``mark`` is the comment above it, "" without one."""

    language: str
    text: str
    mark: str

    @property
    def file(self) -> str:
        """The file that it is, "" when it is none."""
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else ""

    @property
    def is_run(self) -> bool:
        """Whether a reader types it, and so does the test."""
        return self.language == "console" and not self.mark.startswith("not run: ")

    def commands(self) -> list[tuple[str, str]]:
        """Each command with what it shows."""
        parts = re.split(r"^\$ ", self.text.replace("\\\n", " "), flags=re.MULTILINE)
        assert not parts[0].strip(), f"a console block begins with `$ `, not with {parts[0]!r}"
        return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts[1:])]


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page, in order; those inside a list without its indentation."""
    return [
        Block(language=found["language"], text=textwrap.dedent(found["text"]), mark=found["mark"] or "")
        for found in _BLOCK.finditer(page)
    ]


def parse(words: list[str]) -> None:
    """Let click read a command line; nothing is run."""
    # As click itself does it, each under its parent: a command keeps the help option that its first context gives it.
    command: click.Command = cli
    context = click.Context(cli, info_name="remediator", **cli.context_settings)
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"{name} is no command"
        command = found
        if isinstance(found, click.Group):
            context = click.Context(found, info_name=name, parent=context, **found.context_settings)
    command.make_context(command.name, words, parent=context)


def _folded(text: str) -> str:
    """Without what differs from one terminal to the next: runs of spaces, and empty lines at either end."""
    return "\n".join(re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines())


def fits(shown: str, said: str) -> bool:
    """Whether a command said what the page shows."""
    pattern = re.escape(_folded(shown)).replace("…", ".*?")
    return re.fullmatch(pattern, _folded(said), re.DOTALL) is not None


class Reader:
    """Somebody who does what a page says, in an empty folder.

    Args:
        folder: where.
        instead: texts of the page → what they are on this machine (addresses, sockets, paths).
        env: beside what this process has.
    """

    def __init__(self, folder: Path, instead: Mapping[str, str], env: Mapping[str, str]) -> None:
        self._folder = folder
        self._instead = instead
        # A terminal of this width, so that tables are folded as the page shows them.
        self._env = {"COLUMNS": "160", **env}
        self._exports: list[str] = []
        self._servers: list[Process] = []

    def read(self, page: str) -> int:
        """Do it all; AssertionError at the first thing that is not as the page says.

        Returns:
            How many commands were run.
        """
        for text, here in self._instead.items():
            page = page.replace(text, here)
        n_run = 0
        for block in blocks_of(page):
            if block.file:
                path = self._folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.is_run:
                for command, shown in block.commands():
                    self._type(command, shown, block.mark)
                    n_run += 1
        return n_run

    def _type(self, command: str, shown: str, mark: str) -> None:
        if mark.startswith("stays up on "):
            self._serve(command, mark.removeprefix("stays up on "))
            return
        if command.startswith("export "):
            self._exports.append(command)
        deadline = time.monotonic() + (WITHIN_S if mark == "until it shows this" else 0.0)
        while not fits(shown, said := self._run(command)):
            assert time.monotonic() < deadline, f"$ {command}\n{said}\nis not what the page shows:\n{shown}"
            time.sleep(0.5)

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", "\n".join([*self._exports, command])],
            cwd=self._folder,
            env=os.environ | self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        return done.stdout

    def _serve(self, command: str, address: str) -> None:
        host, _, port = address.rpartition(":")

        def is_up() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return True
            return False

        server = Process(
            ["bash", "-c", "\n".join([*self._exports, f"exec {command}"])],
            self._folder, is_up=is_up, name=f"{command.split()[0]}-{port}", env=dict(self._env),
        )  # fmt: skip
        server.start()
        self._servers.append(server)

    def stop(self) -> None:
        """End the servers that stay up, in order."""
        for server in self._servers:
            server.stop()


@contextlib.contextmanager
def reader(folder: Path, instead: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Reader]:
    """A ``Reader`` whose servers end with the block."""
    made = Reader(folder, instead, env)
    try:
        yield made
    finally:
        made.stop()
