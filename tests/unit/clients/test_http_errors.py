"""The error table of what is asked over HTTP: every exception of requests is in it."""

from __future__ import annotations

import inspect
import ssl

import pytest
import requests.exceptions
import urllib3.exceptions

from remediator.clients.http import ERRORS, Failed, classify


def test_table_when_requests_has_an_exception_then_it_is_there() -> None:
    found = [
        kind
        for _, kind in inspect.getmembers(requests.exceptions, inspect.isclass)
        if issubclass(kind, requests.exceptions.RequestException)
    ]
    assert len(found) > 15
    assert [kind.__name__ for kind in found if kind not in ERRORS] == []


def test_table_when_the_transport_has_an_exception_then_a_base_of_it_is_there() -> None:
    found = [
        kind
        for _, kind in inspect.getmembers(urllib3.exceptions, inspect.isclass)
        if kind.__module__ == urllib3.exceptions.__name__ and not issubclass(kind, Warning)
    ]
    assert len(found) > 20
    assert [kind.__name__ for kind in found if not set(kind.__mro__) & set(ERRORS)] == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(requests.exceptions.ConnectTimeout(), Failed.AWAY, id="connecting took too long"),
        pytest.param(requests.exceptions.ReadTimeout(), Failed.SILENT, id="it said nothing"),
        pytest.param(requests.exceptions.SSLError(), Failed.SETUP, id="its certificate is not of our CA"),
        pytest.param(
            urllib3.exceptions.ReadTimeoutError(None, "/", "late"),  # type: ignore[arg-type]
            Failed.SILENT,
            id="it stopped in the middle of its answer",
        ),
        pytest.param(urllib3.exceptions.IncompleteRead(1, 2), Failed.BROKEN, id="the connection broke off"),
        pytest.param(FileNotFoundError(2, "ca.pem"), Failed.SETUP, id="the file of the CA is absent"),
        pytest.param(ssl.SSLError("ca.pem"), Failed.SETUP, id="the file of the CA holds none"),
    ],
)
def test_classify_when_it_fails_so_then_says_why(error: Exception, expected: Failed) -> None:
    assert classify(error) is expected
