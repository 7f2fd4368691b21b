"""The only place that imports SQLAlchemy: the writer, the tables, the inbox, the audit log, facts and queries."""

from sqlalchemy import Connection

__all__ = ["Connection"]
