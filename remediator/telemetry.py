"""What the engine shows of itself: metrics in a registry of its own, and structured logs without secrets.

Takes counts and log calls from everywhere → ``/metrics`` text and one line per event on stderr. It must never decide
anything, and never print a secret: every line passes ``redact``. Who logs gives ``delivery_id``, ``run_id`` and
``fingerprint`` as keys with each line, where there are any.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import IO, Any

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from structlog.typing import EventDict, Processor

from remediator import __version__
from remediator.errors import RemediatorError

# A second series beside each counter with the time it was made: nobody asked for it, and it doubles the page.
disable_created_metrics()  # type: ignore[no-untyped-call]

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The webhook must answer far below the 15 s after which a peer Alertmanager sends again; a commit takes milliseconds.
_ANSWER_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
# From a signal (milliseconds) to a container that takes minutes to stop.
_ACTION_BUCKETS_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_COMMIT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

# Control and format characters: a log reader's terminal must not be steered, nor a line be forged. Line separators and
# bidirectional overrides are among them. A lone surrogate could not be written at all.
# Source: Unicode 17, categories Cc, Cf, Cs, Zl, Zp.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001-\U000e007f\ud800-\udfff]"
)
_REDACTED = "[redacted]"
# Short values would strike out ordinary words; a secret so short protects nothing.
_MIN_SECRET_LENGTH = 6


class Metrics:
    """All metrics of one engine. Each attribute is one metric; its help text says what it counts.

    Names follow Prometheus' conventions: base units, ``_total`` for counters. Labels are closed sets or names that the
    site itself gave (playbooks, actions, checks), never alert labels. Each instance has a registry of its own, so that
    several engines live in one process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.deliveries = Counter(
            "remediator_deliveries",
            "POSTs to the webhook by HTTP status. A 4xx is lost until Alertmanager's next group_interval.",
            ("http_status",),
            registry=registry,
        )
        self.delivery_answer = Histogram(
            "remediator_delivery_answer_seconds",
            "From a webhook body that is read whole to its answer; includes the commit.",
            buckets=_ANSWER_BUCKETS_S,
            registry=registry,
        )
        self.last_delivery_time = Gauge(
            "remediator_last_delivery_timestamp_seconds",
            "When the newest delivery was committed, unix time; 0 before the first since the start.",
            registry=registry,
        )
        self.inbox_deliveries = Gauge(
            "remediator_inbox_deliveries",
            "Committed deliveries whose alerts have not been handled yet.",
            registry=registry,
        )
        self.inbox_oldest = Gauge(
            "remediator_inbox_oldest_seconds",
            "Age of the oldest delivery that has not been handled yet, 0 when none waits.",
            registry=registry,
        )
        self.alerts = Counter(
            "remediator_alerts", "Alerts in committed deliveries, by status.", ("status",), registry=registry
        )
        self.cut_alerts = Counter(
            "remediator_cut_alerts",
            "Alerts that Alertmanager left out of the groups it delivered (truncatedAlerts).",
            registry=registry,
        )
        self.bad_alerts = Counter(
            "remediator_bad_alerts",
            "Members of deliveries that are not alerts; the others are handled.",
            registry=registry,
        )
        self.unmatched_alerts = Counter(
            "remediator_unmatched_alerts", "Episodes that no playbook matches, once each.", registry=registry
        )
        self.runs = Counter(
            "remediator_runs", "Runs that ended, by playbook and outcome.", ("playbook", "outcome"), registry=registry
        )
        self.attempts = Counter(
            "remediator_attempts",
            "Attempts that ended, by action and outcome.",
            ("action", "outcome"),
            registry=registry,
        )
        self.lost_messages = Counter(
            "remediator_lost_messages",
            "Messages that are not sent again, though their service refused them or gave no answer.",
            registry=registry,
        )
        self.unheard_escalations = Counter(
            "remediator_unheard_escalations",
            "Escalations that were given up and reached nobody; those whom the settings name beside are tried then.",
            registry=registry,
        )
        self.action_duration = Histogram(
            "remediator_action_duration_seconds",
            "One attempt, by action.",
            ("action",),
            buckets=_ACTION_BUCKETS_S,
            registry=registry,
        )
        self.verdicts = Counter(
            "remediator_verdicts",
            "Verdicts by word (allow, wait, refuse) and reason.",
            ("verdict", "reason"),
            registry=registry,
        )
        self.audit_append = Histogram(
            "remediator_audit_append_seconds",
            "From an event handed to the log to its commit, synced.",
            buckets=_COMMIT_BUCKETS_S,
            registry=registry,
        )
        self.audit_last_seq = Gauge(
            "remediator_audit_last_sequence", "Sequence number of the newest audit event.", registry=registry
        )
        self.reloads = Counter(
            "remediator_playbook_reloads",
            "Attempts to load the playbooks, by result (ok, failed).",
            ("result",),
            registry=registry,
        )
        self.reload_ok = Gauge(
            "remediator_playbook_reload_ok",
            "1 when the newest attempt to load the playbooks succeeded, 0 when the set before it is still in force.",
            registry=registry,
        )
        self.reload_success_time = Gauge(
            "remediator_playbook_reload_success_timestamp_seconds",
            "When the playbooks in force were loaded, unix time.",
            registry=registry,
        )
        self.auth_failures = Counter(
            "remediator_auth_failures",
            "Calls refused, by reason: unauthenticated (no token or an unknown one), forbidden (its role is missing).",
            ("reason",),
            registry=registry,
        )
        self.store_ok = Gauge(
            "remediator_store_ok",
            "1 while the store commits, 0 while deliveries are answered with 503.",
            registry=registry,
        )
        self.store_size = Gauge(
            "remediator_store_bytes", "The store's file and its write-ahead log.", registry=registry
        )
        self.store_free = Gauge(
            "remediator_store_free_bytes", "Free on the file system that holds the store.", registry=registry
        )
        self.time = Gauge(
            "remediator_time_seconds",
            "The engine's clock at the scrape, unix time: to be compared with the time of the scrape.",
            registry=registry,
        )
        self.unexpected_errors = Counter(
            "remediator_unexpected_errors",
            "Errors that nobody foresaw, by the place that went on without what failed. Each is a bug; the log has it.",
            ("where",),
            registry=registry,
        )
        self.paused = Gauge("remediator_paused", "1 while a person has paused the engine.", registry=registry)
        self.breaker_tripped = Gauge(
            "remediator_breaker_tripped",
            "1 while this policy's breaker is tripped: nothing acts until a person resets it.",
            ("breaker",),
            registry=registry,
        )
        self.open_episodes = Gauge("remediator_open_episodes", "Label sets that fire.", registry=registry)
        self.open_subjects = Gauge("remediator_open_subjects", "Open subjects of playbooks.", registry=registry)
        self.alertmanager_ok = Gauge(
            "remediator_alertmanager_ok",
            "1 when the Alertmanager at this URL answered when it was last asked, 0 when it did not.",
            ("url",),
            registry=registry,
        )
        self.prometheus_ok = Gauge(
            "remediator_prometheus_ok",
            "1 when the Prometheus of this name answered when it was last asked, 0 when it did not.",
            ("server",),
            registry=registry,
        )
        self.missed_alerts = Gauge(
            "remediator_missed_alerts",
            "Alerts that an Alertmanager lists for our receiver and that were never delivered here.",
            registry=registry,
        )
        self.open_runs = Gauge(
            "remediator_open_runs",
            "Runs that may have something to do yet, by phase; one that has ended may have messages left to send.",
            ("phase",),
            registry=registry,
        )
        self.waiting_runs = Gauge(
            "remediator_waiting_runs",
            "Runs that wait before they may act, by what for; one that waits for several things counts in each.",
            ("reason",),
            registry=registry,
        )
        self.due_runs = Gauge(
            "remediator_due_runs", "Runs and leases with a due time, future or past.", registry=registry
        )
        self.overdue_runs = Gauge(
            "remediator_overdue_runs",
            "Runs and leases whose due time has passed and that no worker has taken.",
            registry=registry,
        )
        self.leases = Gauge(
            "remediator_leases",
            "Changes that are still to be taken back: open, released (it goes with a younger one on the same target),"
            " kept (beyond its time: it still fires, or it is not safe).",
            ("state",),
            registry=registry,
        )
        self.undos = Counter(
            "remediator_undos",
            "Undos that ended, by action and outcome; one that failed or is unknown is tried again.",
            ("action", "outcome"),
            registry=registry,
        )
        Info("remediator_build", "Version of this engine.", registry=registry).info({"version": __version__})
        ProcessCollector(registry=registry)

    def watch(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Let a gauge ask ``read`` at each scrape.

        Where the store is away the gauge shows NaN and the scrape goes on: the other metrics matter most just then.
        """

        def value() -> float:
            try:
                return read()
            except RemediatorError:
                return float("nan")

        gauge.set_function(value)

    def expose(self) -> bytes:
        """The text that Prometheus scrapes, as ``METRICS_CONTENT_TYPE``."""
        return generate_latest(self.registry)


class _Redactor:
    """Strikes secrets out of text. One for the process, as logging is."""

    def __init__(self) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secrets: Iterable[str]) -> None:
        self._secrets |= {secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH}
        # The longest first: a URL holds its token, and the rest of the URL is as secret.
        words = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, words))) if words else None

    def text(self, text: str) -> str:
        return self._pattern.sub(_REDACTED, text) if self._pattern else text


_redactor = _Redactor()


def add_secrets(secrets: Iterable[str]) -> None:
    """Strike these out of all logs from now on, beside those that are known: a rotated token was a secret too."""
    _redactor.add(secrets)


def redact(text: str) -> str:
    """The text without any known secret: for error texts of others before they are kept or shown."""
    return _redactor.text(text)


def escape_control(text: str) -> str:
    """The text with control and invisible characters as ``\\xNN`` or ``\\uNNNN``: one line, whatever a label holds."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def configure_logging(
    *, level: str = "info", log_format: str = "json", secrets: Iterable[str] = (), stream: IO[str] | None = None
) -> None:
    """Send every log of the process (ours, uvicorn's, werkzeug's, libraries') through one redacting formatter.

    Args:
        level: debug, info, warning or error; libraries below warning stay silent unless it is debug.
        log_format: json, one object a line, or text for people.
        secrets: see ``settings.secret_values``.
        stream: None = stderr.
    """
    add_secrets(secrets)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: list[Processor] = (
        [_redact_event, structlog.processors.JSONRenderer(ensure_ascii=True)]
        if log_format == "json"
        else [_redact_event, _render_text]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    output = logging.StreamHandler(stream or sys.stderr)
    output.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [output]
    root.setLevel(level.upper() if level == "debug" else logging.WARNING)
    logging.getLogger("remediator").setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "werkzeug"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.captureWarnings(True)


def get_logger(name: str = "remediator") -> structlog.stdlib.BoundLogger:
    """A logger whose calls take an event and keys: ``log.info("delivery stored", delivery_id=7)``.

    Args:
        name: of the module (``__name__``).
    """
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def _redact_event(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {key: _redact_value(value) for key, value in event.items()}


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {redact(str(key)): _redact_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redact_value(item) for item in value]
    return redact(str(value))


def _render_text(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """``TIME LEVEL text key=value …`` and a traceback below it; everything from outside escaped."""
    time = event.pop("timestamp", "")
    level = str(event.pop("level", "")).upper()
    text = escape_control(str(event.pop("event", "")))
    traceback = event.pop("exception", "")
    pairs = [f"{key}={_quoted(value)}" for key, value in sorted(event.items())]
    lines = [" ".join([time, f"{level:<7}", text, *pairs])]
    lines += ["    " + escape_control(line) for line in traceback.splitlines()]
    return "\n".join(lines)


def _quoted(value: Any) -> str:
    text = escape_control(str(value))
    return f'"{text}"' if not text or " " in text else text
