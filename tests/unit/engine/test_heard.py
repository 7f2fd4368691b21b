"""What the Alertmanagers' answers say of a subject that somebody silenced."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from remediator.clients.ports import ListedAlert
from remediator.core.alert import label_key
from remediator.core.move import Heard
from remediator.engine.reconcile import Survey, heard_of

LABELS = {"alertname": "GPUHot"}
OURS = frozenset({"ours", "ours too"})


def listed(*silenced_by: str, is_inhibited: bool = False) -> ListedAlert:
    return ListedAlert(
        labels=LABELS,
        annotations={},
        starts_at="",
        ends_at="",
        generator_url="",
        fingerprint="f",
        is_active=not silenced_by and not is_inhibited,
        silenced_by=silenced_by,
        is_inhibited=is_inhibited,
        receivers=(),
    )


def heard(*alerts: ListedAlert, is_complete: bool = True, ours: frozenset[str] = OURS) -> Heard:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found: Any = {label_key(LABELS): alerts} if alerts else {}
    return heard_of(Survey(at=at, listed=found, is_complete=is_complete, youngest=at), [label_key(LABELS)], ours)


@pytest.mark.parametrize(
    ("alert", "expected"),
    [
        pytest.param(listed(), Heard.FIRES, id="nothing mutes it"),
        pytest.param(listed("ours"), Heard.FIRES, id="we silenced it"),
        pytest.param(listed("ours", "ours too"), Heard.FIRES, id="we silenced it twice"),
        pytest.param(listed("alice's"), Heard.SILENCED, id="a person silenced it"),
        pytest.param(listed("ours", "alice's"), Heard.SILENCED, id="we and a person did"),
        pytest.param(listed(is_inhibited=True), Heard.INHIBITED, id="another alert mutes it"),
        pytest.param(listed("ours", is_inhibited=True), Heard.INHIBITED, id="we and another alert do"),
        pytest.param(listed("alice's", is_inhibited=True), Heard.SILENCED, id="a person and another alert do"),
    ],
)
def test_heard_when_muted_so_then_only_our_own_silence_counts_as_firing(alert: ListedAlert, expected: Heard) -> None:
    assert heard(alert) is expected


def test_heard_when_whoever_asks_silenced_nothing_then_every_silence_counts() -> None:
    assert heard(listed("ours"), ours=frozenset()) is Heard.SILENCED


def test_heard_when_one_alertmanager_has_not_heard_of_our_silence_then_it_fires_all_the_same() -> None:
    assert heard(listed("ours"), listed()) is Heard.FIRES


def test_heard_when_not_every_alertmanager_answers_then_our_own_silence_is_word_enough() -> None:
    assert heard(listed("ours"), is_complete=False) is Heard.FIRES
    assert heard(listed("alice's"), is_complete=False) is Heard.NO_ANSWER
