"""What ``doctor`` looks at on this machine: clock, settings, playbooks, the store, rights of files. Read-only."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import remediator
from remediator.app import load_playbooks
from remediator.cli.finding import Finding, ok, problem, warning
from remediator.errors import StoreError
from remediator.settings import DEFAULT_CONFIG, Settings, check_files, secret_files
from remediator.store.engine import open_readonly
from remediator.store.schema import check_pages, check_triggers

_SAFE_SQLITE = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
"""First releases without the fault that loses pages when two connections checkpoint at once; the first two are
backports, good for their own series alone."""


def check_clock() -> Iterator[Finding]:
    """Is the system's time later than this program was installed?"""
    installed = Path(remediator.__file__).stat().st_mtime
    now = datetime.now(UTC)
    if now.timestamp() < installed:
        yield problem("clock", f"says {now:%Y-%m-%d %H:%M} UTC, before this program was installed", "set it; run NTP")
    else:
        yield ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Do the files they name exist, and who may call?"""
    problems = check_files(settings)
    for text in problems:
        yield problem("settings", text, "write that file, or let the engine's user read it")
    if not problems:
        yield ok("settings", "read")
    if not settings.has_auth:
        yield warning(
            "auth",
            f"no token is configured: {settings.listen} is open to every user of this machine",
            "configure auth.tokens (name, roles, file)",
        )
    if not settings.escalate_to:
        yield warning(
            "settings",
            "escalate_to names nobody: an end without a fix is told only where a playbook says whom",
            "configure a notify target and name it in escalate_to",
        )


def check_playbooks(settings: Settings) -> Iterator[Finding]:
    """Does everything load?"""
    found = load_playbooks(settings)
    for each in found.problems:
        yield problem("playbooks", each.located(), "remediator check shows all of them")
    if not found.problems:
        n_playbooks = len(found.playbook_set.playbooks)
        yield ok("playbooks", f"{n_playbooks} from {', '.join(map(str, settings.playbooks))}")
        if not n_playbooks:
            yield warning("playbooks", "there is none: nothing will be done about any alert", "write one")


def check_store(settings: Settings) -> Iterator[Finding]:
    """Is the file ours, whole, and append-only; and is SQLite one to trust? Opened read-only."""
    yield check_sqlite(sqlite3.sqlite_version_info)
    path = settings.store_path
    try:
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        yield _check_place(path.parent)
        return
    except PermissionError:
        advice = "run doctor as root or as the engine's user; if this is that user, give it the folder and the file"
        yield problem("store", f"{path} is not this user's to read", advice)
        return
    try:
        store = open_readonly(settings.store_url)
        with closing(store), store.read() as connection:
            check_triggers(connection)
            check_pages(connection)
    except StoreError as error:
        yield problem("store", str(error), "keep the file as it is until you know why")
    else:
        yield ok("store", f"{path}: whole, {path.stat().st_size // 2**20} MiB")


def _check_place(folder: Path) -> Finding:
    while not folder.exists():
        folder = folder.parent
    if os.access(folder, os.W_OK | os.X_OK):
        return ok("store", "not there yet; the engine will make it")
    return problem("store", f"not there, and {folder} cannot be written by this user", "give the folder to the engine")


def check_sqlite(version: tuple[int, ...]) -> Finding:
    """Does this SQLite lose pages when two connections checkpoint at once?

    Args:
        version: major, minor, patch.
    """
    text = "SQLite " + ".".join(map(str, version))
    is_safe = version >= _SAFE_SQLITE[-1] or any(version[:2] == safe[:2] and version >= safe for safe in _SAFE_SQLITE)
    if is_safe:
        return ok("sqlite", text)
    return warning(
        "sqlite",
        f"{text} can lose pages when two connections checkpoint at once (mended in 3.51.3, 3.50.7, 3.44.6)",
        "the engine has one writing connection, so it is safe here; let no other program write to the file",
    )


def check_rights(settings: Settings, config_path: Path | None) -> Iterator[Finding]:
    """Can others read the database or a secret, or write what decides over acts? ``serve`` asks this too."""
    store = settings.store_path
    private = [store, *(store.with_name(store.name + end) for end in ("-wal", "-shm"))]
    found = [
        problem("rights", f"{path} can be read or written by others ({mode:04o})", f"chmod 0600 {path}")
        for path in private
        if (mode := _mode(path)) & 0o077
    ]
    if (mode := _mode(store.parent)) & 0o022:
        found.append(
            problem(
                "rights",
                f"others may write into {store.parent} ({mode:04o}): they can put another database there",
                f"chmod go-w {store.parent}, or a folder of its own for store_url",
            )
        )
    found += [
        problem("rights", f"{path} holds a secret that everybody can read ({mode:04o})", f"chmod o= {path}")
        for path in _private_files(settings, config_path)
        if (mode := _mode(path)) & 0o007
    ]
    found += [
        problem("rights", f"everybody may write {path} ({mode:04o}), and it decides what is done", f"chmod o-w {path}")
        for path in _deciding_files(settings, config_path)
        if (mode := _mode(path)) & 0o002
    ]
    yield from found or [ok("rights", "the database and the files with secrets are private")]


def _deciding_files(settings: Settings, config_path: Path | None) -> Iterator[Path]:
    """The settings file, and the playbooks with the folders they lie in."""
    yield config_path or DEFAULT_CONFIG
    for path in settings.playbooks:
        yield path
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*") if each.is_dir() or each.suffix in (".yaml", ".yml"))


def _private_files(settings: Settings, config_path: Path | None) -> list[Path]:
    files = [
        *(path for _, path in secret_files(settings)),
        settings.tls_key,
        *(host.tls_key for host in settings.docker.hosts.values()),
    ]
    urls = [url.get_secret_value() for target in settings.notify.values() for url in target.urls]
    if any(url.partition("://")[2] for url in urls):  # `syslog://` alone tells nothing
        files.append(config_path or DEFAULT_CONFIG)  # notification addresses hold their tokens
    return sorted({file for file in files if file is not None})


def _mode(path: Path) -> int:
    """Permission bits; 0 for what is not there, which others complain about. Of a link, those of what it leads to."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0
