"""Messages to people through apprise: the adapter of ``ports.Notifier``.

Takes the name of a target from the settings and plain text, gives nothing, or raises. An alert chooses neither where a
message goes nor how it looks: targets come from the settings alone, and text is never read as markup, escapes or emoji
codes. apprise URLs hold passwords, and apprise says no more than yes or no: no URL and none of its words get into an
error or a log.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

import apprise

from remediator.core.message import one_line
from remediator.core.units import cut
from remediator.errors import PermanentActionError, Reason, SettingsError, TransientActionError

TITLE_LIMIT: Final = 250
"""Characters; the shortest title limit among the common services (Telegram, Pushover) is 250."""

BODY_LIMIT: Final = 8_000
"""Characters. Longer ones are cut into many messages by some services and dropped by others."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_SILENT = logging.CRITICAL + 1


class AppriseNotifier:
    """Sends plain text to named targets. Implements ``ports.Notifier``; thread-safe."""

    def __init__(self, targets: Mapping[str, Sequence[str]]) -> None:
        """Read the URLs; nothing is sent or connected.

        Args:
            targets: name → apprise URLs; each message goes to all of them.

        Raises:
            SettingsError: a URL that apprise does not understand, by its place, never its text.
        """
        _keep_urls_out_of_logs()
        self._services = {name: _services(name, urls) for name, urls in targets.items()}

    def send(self, to: str, *, title: str, body: str, timeout_s: float) -> None:
        """See ``ports.Notifier.send``. Holds the caller for ``timeout_s`` seconds at most, whatever a service does."""
        services = self._services.get(to)
        if services is None:
            known = ", ".join(sorted(self._services)) or "none"
            raise PermanentActionError(
                f"no notification target is called {to!r} in the settings (configured: {known})", reason=Reason.NOTIFY
            )
        # apprise sends nothing at all without a body.
        body = _without_controls(body if body.strip() else title)
        title, body = cut(one_line(title), TITLE_LIMIT), cut(body, BODY_LIMIT)
        answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        for service in services:
            # Threads of our own and not apprise's pool: that one is waited for at exit, however long a service hangs.
            threading.Thread(
                target=_tell, args=(service, title, body, answers), name=f"notify {to}", daemon=True
            ).start()
        taken, silent = _collect(answers, len(services), timeout_s)
        n_of = f"of {len(services)} " if len(services) > 1 else ""
        if silent:
            raise PermanentActionError(
                f"notification target {to}: {silent} {n_of}did not answer within {timeout_s:g} s;"
                " the message may or may not have arrived, and is not sent again",
                reason=Reason.NOTIFY,
            )
        if taken < len(services):
            raise TransientActionError(
                f"notification target {to}: {len(services) - taken} {n_of}did not take the message;"
                " check its URL and that the service is up",
                reason=Reason.NOTIFY,
            )


def _without_controls(text: str) -> str:
    """Control characters written out, but for tabs and ends of lines: some services refuse a message that holds one."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


def _services(name: str, urls: Sequence[str]) -> tuple[apprise.Apprise, ...]:
    services = []
    # async_mode and service_timeout would hand the work to apprise's own pool.
    asset = apprise.AppriseAsset(
        app_id="remediator",
        app_desc="remediator",
        async_mode=False,
        service_timeout=0,
        storage_mode=apprise.PersistentStoreMode.MEMORY,
    )
    for number, url in enumerate(urls, start=1):
        plugin = apprise.Apprise.instantiate(url, asset=asset)
        if plugin is None:
            scheme, _, rest = url.partition("://")
            begins = f" (it begins with {scheme}://)" if rest and scheme.isalnum() else ""
            raise SettingsError(f"notification target {name}: URL {number} is not one that apprise understands{begins}")
        service = apprise.Apprise(asset=asset)
        service.add(plugin)
        services.append(service)
    return tuple(services)


def _tell(service: apprise.Apprise, title: str, body: str, answers: queue.SimpleQueue[bool]) -> None:
    try:
        answer = service.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT, interpret_escapes=False)
        is_taken = bool(answer)
    except Exception:  # noqa: BLE001 - of a service's code; its words may hold the URL, so they end here
        is_taken = False
    answers.put(is_taken)


def _collect(answers: queue.SimpleQueue[bool], n_asked: int, timeout_s: float) -> tuple[int, int]:
    """How many took the message, and how many have not answered in time."""
    ends = time.monotonic() + timeout_s
    taken = 0
    for n_answered in range(n_asked):
        try:
            taken += answers.get(timeout=max(ends - time.monotonic(), 0))
        except queue.Empty:
            return taken, n_asked - n_answered
    return taken, 0


def _keep_urls_out_of_logs() -> None:
    """apprise logs URLs and answers, urllib3 at debug level the paths of requests, which are Slack's password."""
    logger = logging.getLogger("apprise")
    logger.setLevel(_SILENT)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logging.getLogger("urllib3").setLevel(logging.INFO)
