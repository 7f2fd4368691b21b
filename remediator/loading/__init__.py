"""Playbook and policy files → the models in force; every problem with its file, line and column, all at once.

Takes paths and what the site has, gives ``Loaded``. Must never: raise for what stands in a file, read a file that is
not a playbook's, or let a key pass that it does not act on.

``document`` reads YAML with its places, ``format`` is the format, ``read`` holds the one against the other, ``build``
merges and fills in, ``show`` prints back; ``schema`` tells editors of it all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remediator.core.playbook import Playbook, PlaybookSet
from remediator.errors import DuplicatePlaybookError, PlaybookError, PlaybookSchemaError
from remediator.loading.build import LoadContext, build_playbook, merge_policies, read_policy
from remediator.loading.document import MAX_BYTES, Document, cannot_be_read, read_bytes, read_documents
from remediator.loading.format import PolicyKeys
from remediator.loading.read import Problems, suggest
from remediator.loading.show import effective

__all__ = ["LoadContext", "Loaded", "documents_of", "effective", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What files say.

    Attributes:
        playbook_set: whatever is right. With problems it is not for use: the set in force stays.
        problems: all of them, by file and line.
        files: what was read, in order.
        documents: what stands in them, with places: of playbooks and policies, right or wrong.
    """

    playbook_set: PlaybookSet
    problems: tuple[PlaybookError, ...]
    files: tuple[Path, ...]
    documents: tuple[Document, ...] = ()


def load(paths: Sequence[Path], *, context: LoadContext) -> Loaded:
    """Read playbooks and policies.

    Args:
        paths: files, and folders of which every ``*.yaml`` and ``*.yml`` is read that is no ``*.test.yaml``, no hidden
            file, and in no folder below. Documents that begin with ``policy`` are policies.
        context: what they are checked against.

    Returns:
        Everything that could be read. Raises nothing for bad content.
    """
    problems: list[PlaybookError] = []
    files = _files(paths, problems)
    documents = [(document, Problems(document)) for file in files for document in _documents(file, problems)]
    playbooks: list[Playbook] = []
    policies: list[tuple[Document, PolicyKeys]] = []
    first_places: dict[tuple[str, str], str] = {}
    kinds = [_kind(document, found) for document, found in documents]
    for kind, (document, found) in zip(kinds, documents, strict=True):
        if kind == "policy":
            keys = read_policy(document, context, found)
            if keys and not found.found and _is_new(kind, keys.policy, document, first_places, found):
                policies.append((document, keys))
    policy = merge_policies(policies, context.fleets)
    for kind, (document, found) in zip(kinds, documents, strict=True):
        if kind == "playbook":
            playbook = build_playbook(document, context, policy, found)
            if playbook and _is_new(kind, playbook.name, document, first_places, found):
                playbooks.append(playbook)
    problems += [problem for _, found in documents for problem in found.found]
    order = {str(file): index for index, file in enumerate(files)}
    problems.sort(key=lambda problem: (order.get(problem.file, -1), problem.line, problem.column))
    playbook_set = PlaybookSet(
        playbooks=tuple(playbooks),
        policy=policy,
        label_map=context.label_map,
        ignore_labels=context.ignore_labels,
        vars=context.vars,
        public_url=context.public_url,
    )
    return Loaded(
        playbook_set=playbook_set,
        problems=tuple(problems),
        files=tuple(files),
        documents=tuple(document for document, _ in documents),
    )


def documents_of(paths: Sequence[Path]) -> dict[Path, list[Document]]:
    """Playbooks and policies as they are written, unchecked: what could be read of the files that ``load`` would read.

    Returns:
        The documents of each file. Raises nothing for bad content: ``load`` tells of it.
    """
    return {file: _documents(file, []) for file in _files(paths, [])}


def _files(paths: Sequence[Path], problems: list[PlaybookError]) -> list[Path]:
    """The files that the paths mean, each once."""
    files: dict[Path, Path] = {}
    for path in paths:
        try:
            if path.is_dir():
                found = sorted(entry for entry in path.iterdir() if _is_playbook_file(entry))
            else:
                path.stat()
                found = [path]
        except OSError as error:
            problems.append(_problem(path, cannot_be_read(error)))
            continue
        for file in found:
            files.setdefault(Path(os.path.realpath(file)), file)  # Path.resolve raises where links go in a circle
    return list(files.values())


def _is_playbook_file(path: Path) -> bool:
    return (
        path.suffix in (".yaml", ".yml")
        and not path.stem.endswith(".test")
        and not path.name.startswith(".")
        and not path.is_dir()
    )


def _problem(path: Path, message: str) -> PlaybookError:
    return PlaybookSchemaError(message, file=str(path), line=1, column=1)


def _documents(file: Path, problems: list[PlaybookError]) -> list[Document]:
    data = read_bytes(file, MAX_BYTES)
    if isinstance(data, str):
        problems.append(_problem(file, data))
        return []
    documents, found = read_documents(str(file), data)
    problems += found
    return documents


def _kind(document: Document, problems: Problems) -> str:
    """``playbook`` or ``policy``; "" with a problem for anything else."""
    kinds = ("playbook", "policy")
    value = document.root.value
    keys = list(value) if isinstance(value, dict) else []
    named = [key for key in keys if key in kinds]
    if len(named) == 1:
        return named[0]
    if named:
        problems.add((), "a document is a playbook or a policy, not both; part them with a line ---")
    else:
        near = next((hint for key in keys if (hint := suggest(key, kinds, ""))), "")
        problems.add((), f"a document begins with `playbook: NAME` or `policy: NAME`{near}")
    return ""


def _is_new(
    kind: str, name: str, document: Document, first_places: dict[tuple[str, str], str], problems: Problems
) -> bool:
    """Whether no document before bears this name."""
    place = f"{document.file}:{document.root.line}"
    first = first_places.setdefault((kind, name), place)
    if first == place:
        return True
    problems.add((kind,), f"a {kind} called {name!r} stands already in {first}", DuplicatePlaybookError)
    return False
