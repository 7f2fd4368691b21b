import sqlite3

import pytest
from sqlalchemy.exc import OperationalError

from remediator.errors import StoreUnavailableError
from remediator.store.problems import ADVICE, NOT_OURS, unavailable

# https://www.sqlite.org/rescode.html: the primary result codes
PRIMARY_CODES = set(range(29)) | {100, 101}


def _error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("vendor text")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_SOMETHING"
    return error


def test_problems_for_every_primary_code_of_sqlite_say_whose_it_is() -> None:
    assert ADVICE.keys() | NOT_OURS == PRIMARY_CODES
    assert not ADVICE.keys() & NOT_OURS


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_unavailable_when_the_store_is_away_then_says_what_to_do(code: int) -> None:
    found = unavailable(_error(code))

    assert isinstance(found, StoreUnavailableError)
    assert ADVICE[code] in str(found)


@pytest.mark.parametrize("code", sorted(NOT_OURS))
def test_unavailable_when_the_statement_is_wrong_then_leaves_it_to_the_caller(code: int) -> None:
    assert unavailable(_error(code)) is None


def test_unavailable_when_the_code_is_an_extended_one_then_its_primary_code_counts() -> None:
    assert ADVICE[sqlite3.SQLITE_IOERR] in str(unavailable(_error(sqlite3.SQLITE_IOERR_FSYNC)))


def test_unavailable_when_sqlalchemy_wraps_the_error_then_looks_inside() -> None:
    wrapped = OperationalError("INSERT", {}, _error(sqlite3.SQLITE_FULL))

    assert ADVICE[sqlite3.SQLITE_FULL] in str(unavailable(wrapped))


def test_unavailable_when_it_is_no_error_of_the_database_then_is_none() -> None:
    assert unavailable(ValueError("x")) is None
