import io
import json
import logging
import unicodedata
from collections.abc import Iterator

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from remediator import __version__
from remediator.errors import StoreUnavailableError
from remediator.telemetry import Metrics, add_secrets, configure_logging, escape_control, get_logger, redact

CANARY = "canary-s3cr3t-value"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Logging is the process's own: put it back for the tests that follow."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()


def _logged(log_format: str, secrets: frozenset[str] = frozenset()) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level="info", log_format=log_format, secrets=secrets, stream=stream)
    return stream


def test_json_log_when_keys_are_given_then_one_object_a_line_has_them() -> None:
    stream = _logged("json")

    get_logger("remediator.x").info("delivery stored", delivery_id=7, run_id="r", fingerprint="f\n")

    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "delivery stored",
        "level": "info",
        "logger": "remediator.x",
        "delivery_id": 7,
        "run_id": "r",
        "fingerprint": "f\n",
    }


def test_log_when_ids_are_bound_to_the_context_then_every_line_has_them() -> None:
    stream = _logged("json")

    with structlog.contextvars.bound_contextvars(run_id="r1"):
        get_logger("remediator.x").warning("waits")

    assert json.loads(stream.getvalue())["run_id"] == "r1"


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_log_when_a_secret_is_anywhere_then_it_is_struck_out(log_format: str) -> None:
    stream = _logged(log_format, frozenset({CANARY}))

    log = get_logger("remediator.x")
    log.info(f"a {CANARY}", b=CANARY, c={"d": [CANARY], CANARY: 1}, e=ValueError(CANARY), f=(CANARY,))
    logging.getLogger("uvicorn.error").warning("x %s", CANARY)
    try:
        raise RuntimeError(CANARY)
    except RuntimeError:
        log.exception("failed")

    assert CANARY not in stream.getvalue()
    assert stream.getvalue().count("[redacted]") == 8


def test_log_when_a_secret_comes_later_then_it_is_struck_out_too() -> None:
    stream = _logged("json")

    add_secrets(["rotated-s3cr3t"])
    get_logger("remediator.x").info("rotated-s3cr3t")

    assert json.loads(stream.getvalue())["event"] == "[redacted]"


def test_redact_when_one_secret_holds_another_then_nothing_of_the_longer_stays() -> None:
    add_secrets(["tok-inner", "slack://tok-inner/outer"])

    assert redact("to slack://tok-inner/outer, tok-inner") == "to [redacted], [redacted]"


def test_text_log_when_values_hold_control_characters_then_the_line_is_one_and_harmless() -> None:
    stream = _logged("text")

    get_logger("remediator.x").info("label\r\nforged", value="\x1b[31mred\u202e\ud800 é", empty="")

    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.split(" ", 1)[1] == (
        'INFO    label\\r\\nforged empty="" logger=remediator.x value="\\x1b[31mred\\u202e\\ud800 é"\n'
    )


def test_text_log_when_an_error_is_logged_then_its_traceback_is_below_and_escaped() -> None:
    stream = _logged("text")

    try:
        raise RuntimeError("bad \x1b value")
    except RuntimeError:
        get_logger("remediator.x").exception("failed")

    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("ERROR   failed logger=remediator.x")
    assert lines[1] == "    Traceback (most recent call last):"
    assert lines[-1] == "    RuntimeError: bad \\x1b value"


@pytest.mark.parametrize("name", ["uvicorn", "uvicorn.error", "werkzeug", "py.warnings"])
def test_library_log_when_a_warning_then_one_line_of_ours(name: str) -> None:
    stream = _logged("json")

    logging.getLogger(name).warning("something")
    logging.getLogger(name).info("chatter")

    lines = stream.getvalue().splitlines()
    assert [(json.loads(line)["event"], json.loads(line)["logger"]) for line in lines] == [("something", name)]


def test_debug_log_when_level_is_info_then_nothing() -> None:
    stream = _logged("json")

    get_logger("remediator.x").debug("chatter")

    assert stream.getvalue() == ""


def test_escape_control_when_any_letter_is_invisible_then_it_is_written_out() -> None:
    invisible = [
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]

    assert [char for char in invisible if escape_control(char) == char] == []


def test_escape_control_when_text_is_plain_then_it_stays() -> None:
    assert escape_control("GPU-07 é 日本 / \\ ok") == "GPU-07 é 日本 / \\ ok"


def test_metrics_when_exposed_then_names_follow_the_conventions() -> None:
    metrics = Metrics()

    families = list(text_string_to_metric_families(metrics.expose().decode()))

    assert {family.name for family in families if not family.name.startswith("process_")} == {
        "remediator_deliveries",
        "remediator_last_delivery_timestamp_seconds",
        "remediator_unheard_escalations",
        "remediator_undos",
        "remediator_leases",
        "remediator_waiting_runs",
        "remediator_breaker_tripped",
        "remediator_inbox_deliveries",
        "remediator_inbox_oldest_seconds",
        "remediator_delivery_answer_seconds",
        "remediator_alerts",
        "remediator_bad_alerts",
        "remediator_cut_alerts",
        "remediator_unmatched_alerts",
        "remediator_unexpected_errors",
        "remediator_runs",
        "remediator_attempts",
        "remediator_lost_messages",
        "remediator_action_duration_seconds",
        "remediator_verdicts",
        "remediator_audit_append_seconds",
        "remediator_audit_last_sequence",
        "remediator_playbook_reloads",
        "remediator_playbook_reload_ok",
        "remediator_playbook_reload_success_timestamp_seconds",
        "remediator_auth_failures",
        "remediator_store_ok",
        "remediator_store_bytes",
        "remediator_store_free_bytes",
        "remediator_time_seconds",
        "remediator_open_runs",
        "remediator_paused",
        "remediator_open_episodes",
        "remediator_open_subjects",
        "remediator_alertmanager_ok",
        "remediator_prometheus_ok",
        "remediator_missed_alerts",
        "remediator_due_runs",
        "remediator_overdue_runs",
        "remediator_build_info",
    }
    assert all(family.documentation for family in families)


def test_metrics_when_two_engines_then_each_counts_its_own() -> None:
    one, two = Metrics(), Metrics()

    one.runs.labels("p", "succeeded").inc()

    assert one.registry.get_sample_value("remediator_runs_total", {"playbook": "p", "outcome": "succeeded"}) == 1
    assert two.registry.get_sample_value("remediator_runs_total", {"playbook": "p", "outcome": "succeeded"}) is None
    assert two.registry.get_sample_value("remediator_build_info", {"version": __version__}) == 1


def test_watched_gauge_when_scraped_then_asks_now() -> None:
    metrics, due = Metrics(), [2]
    metrics.watch(metrics.due_runs, lambda: due[0])

    due[0] = 5

    assert "remediator_due_runs 5.0\n" in metrics.expose().decode()


def test_watched_gauge_when_the_store_is_away_then_the_rest_is_still_exposed() -> None:
    def away() -> float:
        raise StoreUnavailableError("disk full")

    metrics = Metrics()
    metrics.watch(metrics.due_runs, away)

    text = metrics.expose().decode()
    assert "remediator_due_runs NaN\n" in text
    assert "remediator_build_info" in text
