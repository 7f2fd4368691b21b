"""Playbook tests, ``*.test.yaml`` → ``TestFile`` values; every problem with its file, line and column, all at once.

Takes paths and the actions there are, gives ``LoadedTests``. What the playbooks would have to say for it (names of
conditions, cases, breakers) is not known here: ``engine.playtest`` asks them. Must never: raise for what stands in a
file, or follow a link to a folder.

``document`` reads YAML with its places, ``scenario_format`` is the format, ``scenario_build`` holds the one against the
other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from remediator.core.action import LookingActions
from remediator.core.scenario import TestFile
from remediator.errors import PlaybookError, PlaybookSchemaError
from remediator.loading.document import MAX_BYTES, cannot_be_read, read_bytes, read_documents
from remediator.loading.read import Problems
from remediator.loading.scenario_build import build_test_file

__all__ = ["LoadedTests", "load_tests"]

ENDINGS = (".test.yaml", ".test.yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTests:
    """What test files say.

    Attributes:
        files: those without a problem.
        problems: all of them, by file and line.
        paths: what was read, in order.
    """

    files: tuple[TestFile, ...]
    problems: tuple[PlaybookError, ...]
    paths: tuple[Path, ...]


def load_tests(paths: Sequence[Path], *, actions: LookingActions) -> LoadedTests:
    """Read playbook tests.

    Args:
        paths: files, whatever they are called; and folders, of which every ``*.test.yaml`` and ``*.test.yml`` is read,
            also in the folders below. Hidden files and folders are passed over, links to folders not followed. A folder
            without a test file is a problem: somebody believes that there is one.
        actions: the registry.

    Returns:
        Everything that could be read. Raises nothing for bad content.
    """
    problems: list[PlaybookError] = []
    found = _files(paths, problems)
    files = []
    for path in found:
        data = read_bytes(path, MAX_BYTES)
        if isinstance(data, str):
            problems.append(_problem(path, data))
            continue
        documents, wrong = read_documents(str(path), data, is_quick=True)
        problems += wrong
        if not documents and not wrong:
            problems.append(_problem(path, "holds nothing; a test file has `playbooks`, `scenarios`"))
        if len(documents) > 1:
            second = documents[1].root
            message = "a test file is one document; write the other one into a file of its own"
            problems.append(PlaybookSchemaError(message, file=str(path), line=second.line, column=second.column))
            continue
        for document in documents:
            seen = Problems(document)
            file = build_test_file(document, path, actions, seen)
            problems += seen.found
            if file is not None and not seen.found and not wrong:
                files.append(file)
    order = {str(file): index for index, file in enumerate(found)}
    problems.sort(key=lambda problem: (order.get(problem.file, -1), problem.line, problem.column))
    return LoadedTests(files=tuple(files), problems=tuple(problems), paths=tuple(found))


def _files(paths: Sequence[Path], problems: list[PlaybookError]) -> list[Path]:
    """The files that the paths mean, each once."""
    files: dict[Path, Path] = {}
    for path in paths:
        found = [path]
        try:
            if path.is_dir():
                found = list(_below(path))
                if not found:
                    problems.append(_problem(path, "holds no *.test.yaml, nor does a folder below"))
            else:
                path.stat()
        except OSError as error:
            problems.append(_problem(path, cannot_be_read(error)))
            continue
        for file in found:
            files.setdefault(Path(os.path.realpath(file)), file)
    return list(files.values())


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for at, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(at, name) for name in sorted(names) if name.endswith(ENDINGS) and not name.startswith("."))


def _problem(path: Path, message: str) -> PlaybookError:
    return PlaybookSchemaError(message, file=str(path), line=1, column=1)
