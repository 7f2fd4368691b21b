"""The tables. Times are ``core.event.utc_text`` (fixed width, sortable); booleans are 0/1; "" means none in text keys.

``delivery`` and ``audit`` are the truth. The others are kept in the same transactions as the events that explain them,
so that a question is one indexed query: what is open, due, reserved, counted.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))
"""``log_id``: random, the audit chain's genesis."""

control = Table("control", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))
"""JSON by key: ``pause`` {by, reason, at}, ``life`` {up_since, alive_at}, ``probe`` {at} (``Store.is_ok``)."""

delivery = Table(
    "delivery",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("received_at", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("body_sha256", Text, nullable=False),
    Column("handled_at", Text),
    sqlite_autoincrement=True,
)
"""Stored before the 200. ``handled_at`` is null until its alerts have become episodes, subjects and plans."""
Index("delivery_unhandled", delivery.c.id, sqlite_where=text("handled_at IS NULL"))

audit = Table(
    "audit",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("at", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("n", Integer, nullable=False),
    Column("delivery_id", Integer, nullable=False),
    Column("episode_id", Text, nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("playbook", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("prev_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
"""Append-only (triggers). ``body`` holds the RFC 8785 bytes that ``hash`` covers; the columns repeat parts of it."""
Index("audit_run_n", audit.c.run_id, audit.c.n, unique=True, sqlite_where=text("run_id <> ''"))
Index("audit_at", audit.c.at)
Index("audit_playbook", audit.c.playbook, audit.c.seq, sqlite_where=text("playbook <> ''"))
Index("audit_episode", audit.c.episode_id, sqlite_where=text("episode_id <> ''"))
Index("audit_subject", audit.c.subject_id, sqlite_where=text("subject_id <> ''"))
Index("audit_target", audit.c.target, sqlite_where=text("target <> ''"))
Index("audit_fingerprint", audit.c.fingerprint, sqlite_where=text("fingerprint <> ''"))

episode = Table(
    "episode",
    metadata,
    Column("id", Text, primary_key=True),
    Column("label_key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("alert", Text, nullable=False),
    Column("opened_at", Text, nullable=False),
    Column("opened_by_delivery", Integer, nullable=False),
    Column("starts_at", Text, nullable=False),
    Column("last_word_at", Text, nullable=False),
    Column("last_delivery", Integer, nullable=False),
    Column("n_deliveries", Integer, nullable=False, server_default="1"),
    Column("ended_at", Text),
    Column("end_reason", Text, nullable=False, server_default=""),
    Column("resolved_ends_at", Text, nullable=False, server_default=""),
    Column("stale_copy_at", Text, nullable=False, server_default=""),
    Column("listed_at", Text, nullable=False, server_default=""),
)
"""One open interval of one label set. ``alert`` is JSON: the alert and its group as they were when it opened.
``n_deliveries`` said that it fires, the first among them."""
Index("episode_open", episode.c.label_key, unique=True, sqlite_where=text("ended_at IS NULL"))
Index("episode_label_key", episode.c.label_key, episode.c.opened_at)
Index("episode_fingerprint", episode.c.fingerprint, episode.c.opened_at)
Index("episode_ended", episode.c.ended_at, sqlite_where=text("ended_at IS NOT NULL"))
Index("episode_last_word", episode.c.last_word_at, sqlite_where=text("ended_at IS NULL"))
# With the table's name: it is asked beside another episode of the same label set.
HAS_STALE_COPY = text("episode.stale_copy_at <> ''")
Index("episode_stale_copy", episode.c.label_key, sqlite_where=text("stale_copy_at <> ''"))

OPEN_BY_ALERTS = text("closed_at IS NULL AND is_by_hand = 0")

subject = Table(
    "subject",
    metadata,
    Column("id", Text, primary_key=True),
    Column("playbook", Text, nullable=False),
    Column("case_name", Text, nullable=False),
    Column("per_key", Text, nullable=False),
    Column("per", Text, nullable=False),
    Column("opened_at", Text, nullable=False),
    Column("opened_by_episode", Text, nullable=False),
    Column("is_adopted", Integer, nullable=False),
    Column("is_by_hand", Integer, nullable=False),
    Column("is_latched", Integer, nullable=False),
    Column("closed_at", Text),
    Column("close_reason", Text, nullable=False, server_default=""),
)
"""What a run is about: a playbook's, a case's ``per`` values, open while any of its episodes is."""
Index(
    "subject_open",
    subject.c.playbook,
    subject.c.case_name,
    subject.c.per_key,
    unique=True,
    sqlite_where=OPEN_BY_ALERTS,
)

Index("subject_not_closed", subject.c.is_adopted, sqlite_where=text("closed_at IS NULL"))
Index("subject_values", subject.c.playbook, subject.c.per_key, subject.c.closed_at)

subject_episode = Table(
    "subject_episode",
    metadata,
    Column("subject_id", Text, ForeignKey("subject.id"), primary_key=True),
    Column("episode_id", Text, ForeignKey("episode.id"), primary_key=True),
    Index("subject_episode_episode", "episode_id"),
)

# SQLite uses a partial index only where the query repeats its condition word for word: bound values prove nothing.
NOT_CLOSED = text("phase <> 'closed'")
ADMITTED = text("is_admitted = 1")
UNKNOWN = text("outcome = 'unknown'")
WITHOUT_FIX = text("outcome IN ('failed', 'ineffective', 'unknown')")

run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("subject_id", Text, ForeignKey("subject.id"), nullable=False),
    Column("playbook", Text, nullable=False),
    Column("case_name", Text, nullable=False),
    Column("per_key", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("outcome", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("waits_for", Text, nullable=False, server_default=""),
    Column("ended_at", Text),
    Column("is_admitted", Integer, nullable=False, server_default="0"),
    Column("has_acted", Integer, nullable=False, server_default="0"),
    Column("rung", Integer, nullable=False, server_default="0"),
    UniqueConstraint("subject_id", name="run_one_per_subject"),
)
"""One plan carried out. A projection of its events; ``is_admitted`` while it counts in ``max_concurrent_runs``.
``rung`` is the highest that it was admitted to."""
Index("run_playbook_per", run.c.playbook, run.c.per_key)
Index("run_created", run.c.created_at)
Index("run_not_closed", run.c.created_at, run.c.id, run.c.phase, sqlite_where=NOT_CLOSED)
Index("run_admitted", run.c.id, sqlite_where=ADMITTED)
Index("run_unknown", run.c.id, sqlite_where=UNKNOWN)
Index("run_without_fix", run.c.ended_at, sqlite_where=WITHOUT_FIX)

admission = Table(
    "admission",
    metadata,
    Column("run_id", Text, ForeignKey("run.id"), primary_key=True),
    Column("rung", Integer, primary_key=True),
    Column("at", Text, nullable=False),
    Column("n_disruptive", Integer, nullable=False),
    Index("admission_at", "at"),
)
"""When a run's rung was last allowed to act, and how many disruptive steps it has: for ``max_disruptive_acts``."""

breaker = Table(
    "breaker",
    metadata,
    Column("name", Text, primary_key=True),
    Column("tripped_at", Text),
    Column("why", Text, nullable=False, server_default=""),
    Column("counts_from", Text, nullable=False, server_default=""),
)
"""By its policy's name: ``tripped_at`` is null after a reset, from which on it counts; none that never tripped."""

due = Table(
    "due",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("at", Text, nullable=False),
    Index("due_at", "at"),
)
"""When who wants to be looked at next. ``kind``: run, lease (with the id of a stack, ``core.lease.stack_id``)."""

reservation = Table(
    "reservation",
    metadata,
    Column("target", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("run.id"), primary_key=True),
    Column("is_exclusive", Integer, nullable=False),
    Column("at", Text, nullable=False),
)
Index("reservation_exclusive", reservation.c.target, unique=True, sqlite_where=text("is_exclusive = 1"))
Index("reservation_run", reservation.c.run_id)

act = Table(
    "act",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Text, ForeignKey("run.id"), nullable=False),
    Column("playbook", Text, nullable=False),
    Column("per_key", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("is_disruptive", Integer, nullable=False),
    Index("act_target", "target", "at"),
    Index("act_playbook_per", "playbook", "per_key", "at"),
    Index("act_playbook", "playbook", "at"),
    Index("act_at", "at", "target"),
    Index("act_run", "run_id"),
)
"""What was changed, or may have been. Messages have target "" and is_disruptive 0."""

told = Table(
    "told",
    metadata,
    Column("playbook", Text, primary_key=True),
    Column("per_key", Text, primary_key=True),
    Column("ending", Text, primary_key=True),
    Column("at", Text, nullable=False),
)
"""When people were last told of one ending of one playbook's ``per`` values."""

able = Table(
    "able",
    metadata,
    Column("playbook", Text, primary_key=True),
    Column("able_key", Text, nullable=False),
    Column("since", Text, nullable=False),
)
"""Since when a playbook can act on what it matches: alerts that fired before are adopted."""

OPEN = text("closed_at IS NULL")

lease = Table(
    "lease",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("run_id", Text, ForeignKey("run.id"), nullable=False),
    Column("playbook", Text, nullable=False),
    Column("per_key", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("params", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("left", Text, nullable=False),
    Column("undo", Text, nullable=False),
    Column("prometheus", Text, nullable=False),
    Column("timeout_ms", Integer, nullable=False),
    Column("is_by_hand", Integer, nullable=False),
    Column("is_latched", Integer, nullable=False),
    Column("opened_at", Text, nullable=False),
    Column("ends_at", Text),
    Column("released_at", Text),
    Column("kept_at", Text),
    Column("requested_at", Text),
    Column("requested_by", Text, nullable=False, server_default=""),
    Column("undo_started_at", Text),
    Column("retry_at", Text),
    Column("closed_at", Text),
    Column("how", Text, nullable=False, server_default=""),
    Column("detail", Text, nullable=False, server_default=""),
)
"""A change that ends, as its events say. ``number`` is the order of opening; of what is open the leases of one action
and target are a stack. ``left`` is what the target was last left in, ``before`` what an undo brings back."""
Index("lease_open_stack", lease.c.action, lease.c.target, lease.c.number, sqlite_where=OPEN)
Index("lease_open_target", lease.c.target, sqlite_where=OPEN)
Index("lease_open_values", lease.c.playbook, lease.c.per_key, sqlite_where=OPEN)
Index("lease_run", lease.c.run_id, lease.c.number)
