"""Statements that are asked for every alert and every move of a run, put into words once.

Takes a statement of SQLAlchemy with ``bindparam`` where values go → the same statement for the driver. To build one
anew for each call, and SQLAlchemy's own way to the driver, cost ten to a hundred times what SQLite needs to answer.

What it raises are the driver's errors (``sqlite3.Error``); ``problems`` knows both kinds.
"""

from __future__ import annotations

import sqlite3
from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import Executable

_DIALECT = sqlite.dialect(paramstyle="named")

Row = dict[str, Any]
"""Column → value."""


def driver(conn: Connection) -> sqlite3.Connection:
    """The driver's connection below SQLAlchemy's."""
    return cast(sqlite3.Connection, conn.connection.driver_connection)


class Prepared:
    """One statement; values are given by name.

    An insert takes the columns that its first call names; every later call must name the same.
    """

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._sql = ""
        self._fixed: dict[str, Any] = {}

    def run(self, conn: Connection, **values: Any) -> sqlite3.Cursor:
        """Run it; the cursor has the rows, or ``lastrowid``."""
        if not self._sql:
            compiled = self._statement.compile(dialect=_DIALECT, column_keys=list(values))  # type: ignore[attr-defined]
            fixed = compiled.construct_params(values)  # raises for one that was forgotten
            self._fixed = {name: value for name, value in fixed.items() if name not in values}
            self._sql = compiled.string
        return driver(conn).execute(self._sql, {**self._fixed, **values})

    def all(self, conn: Connection, **values: Any) -> list[Row]:
        """Every row."""
        cursor = self.run(conn, **values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def first(self, conn: Connection, **values: Any) -> Row | None:
        """The first row, None without one."""
        cursor = self.run(conn, **values)
        row = cursor.fetchone()
        return dict(zip([column[0] for column in cursor.description], row, strict=True)) if row is not None else None

    def value(self, conn: Connection, **values: Any) -> Any:
        """The first row's first column, None without a row."""
        row = self.run(conn, **values).fetchone()
        return row[0] if row is not None else None
