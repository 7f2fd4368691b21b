"""The first schema. Frozen: a later change of ``store.tables`` is a migration of its own."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

from remediator.store.schema import APPLICATION_ID

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables, then the triggers that keep what may only be added to."""
    op.create_table(
        "able",
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("able_key", sa.Text(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("playbook"),
    )
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("delivery_id", sa.Integer(), nullable=False),
        sa.Column("episode_id", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("prev_hash", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("audit_at", "audit", ["at"], unique=False)
    op.create_index("audit_episode", "audit", ["episode_id"], unique=False, sqlite_where=sa.text("episode_id <> ''"))
    op.create_index(
        "audit_fingerprint", "audit", ["fingerprint"], unique=False, sqlite_where=sa.text("fingerprint <> ''")
    )
    op.create_index(
        "audit_playbook", "audit", ["playbook", "seq"], unique=False, sqlite_where=sa.text("playbook <> ''")
    )
    op.create_index("audit_run_n", "audit", ["run_id", "n"], unique=True, sqlite_where=sa.text("run_id <> ''"))
    op.create_index("audit_subject", "audit", ["subject_id"], unique=False, sqlite_where=sa.text("subject_id <> ''"))
    op.create_index("audit_target", "audit", ["target"], unique=False, sqlite_where=sa.text("target <> ''"))
    op.create_table(
        "control",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "delivery",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("received_at", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("handled_at", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("delivery_unhandled", "delivery", ["id"], unique=False, sqlite_where=sa.text("handled_at IS NULL"))
    op.create_table(
        "due",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "id"),
    )
    op.create_index("due_at", "due", ["at"], unique=False)
    op.create_table(
        "episode",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("label_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("alert", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.Text(), nullable=False),
        sa.Column("opened_by_delivery", sa.Integer(), nullable=False),
        sa.Column("starts_at", sa.Text(), nullable=False),
        sa.Column("last_word_at", sa.Text(), nullable=False),
        sa.Column("last_delivery", sa.Integer(), nullable=False),
        sa.Column("n_deliveries", sa.Integer(), server_default="1", nullable=False),
        sa.Column("ended_at", sa.Text(), nullable=True),
        sa.Column("end_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("resolved_ends_at", sa.Text(), server_default="", nullable=False),
        sa.Column("stale_copy_at", sa.Text(), server_default="", nullable=False),
        sa.Column("listed_at", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "episode_ended", "episode", ["ended_at"], unique=False, sqlite_where=sa.text("ended_at IS NOT NULL")
    )
    op.create_index("episode_fingerprint", "episode", ["fingerprint", "opened_at"], unique=False)
    op.create_index("episode_label_key", "episode", ["label_key", "opened_at"], unique=False)
    op.create_index(
        "episode_last_word", "episode", ["last_word_at"], unique=False, sqlite_where=sa.text("ended_at IS NULL")
    )
    op.create_index(
        "episode_stale_copy", "episode", ["label_key"], unique=False, sqlite_where=sa.text("stale_copy_at <> ''")
    )
    op.create_index("episode_open", "episode", ["label_key"], unique=True, sqlite_where=sa.text("ended_at IS NULL"))
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "subject",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("case_name", sa.Text(), nullable=False),
        sa.Column("per_key", sa.Text(), nullable=False),
        sa.Column("per", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.Text(), nullable=False),
        sa.Column("opened_by_episode", sa.Text(), nullable=False),
        sa.Column("is_adopted", sa.Integer(), nullable=False),
        sa.Column("is_by_hand", sa.Integer(), nullable=False),
        sa.Column("is_latched", sa.Integer(), nullable=False),
        sa.Column("closed_at", sa.Text(), nullable=True),
        sa.Column("close_reason", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "subject_open",
        "subject",
        ["playbook", "case_name", "per_key"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL AND is_by_hand = 0"),
    )
    op.create_index(
        "subject_not_closed", "subject", ["is_adopted"], unique=False, sqlite_where=sa.text("closed_at IS NULL")
    )
    op.create_index("subject_values", "subject", ["playbook", "per_key", "closed_at"], unique=False)
    op.create_table(
        "told",
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("per_key", sa.Text(), nullable=False),
        sa.Column("ending", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("playbook", "per_key", "ending"),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("case_name", sa.Text(), nullable=False),
        sa.Column("per_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("waits_for", sa.Text(), server_default="", nullable=False),
        sa.Column("ended_at", sa.Text(), nullable=True),
        sa.Column("is_admitted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("has_acted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rung", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("subject_id", name="run_one_per_subject"),
        sa.ForeignKeyConstraint(["subject_id"], ["subject.id"]),
    )
    op.create_index("run_created", "run", ["created_at"], unique=False)
    op.create_index(
        "run_not_closed", "run", ["created_at", "id", "phase"], unique=False, sqlite_where=sa.text("phase <> 'closed'")
    )
    op.create_index("run_admitted", "run", ["id"], unique=False, sqlite_where=sa.text("is_admitted = 1"))
    op.create_index("run_unknown", "run", ["id"], unique=False, sqlite_where=sa.text("outcome = 'unknown'"))
    op.create_index("run_playbook_per", "run", ["playbook", "per_key"], unique=False)
    op.create_index(
        "run_without_fix",
        "run",
        ["ended_at"],
        unique=False,
        sqlite_where=sa.text("outcome IN ('failed', 'ineffective', 'unknown')"),
    )
    op.create_table(
        "admission",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("n_disruptive", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"]),
        sa.PrimaryKeyConstraint("run_id", "rung"),
    )
    op.create_index("admission_at", "admission", ["at"], unique=False)
    op.create_table(
        "breaker",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tripped_at", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("counts_from", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "subject_episode",
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("episode_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subject_id", "episode_id"),
        sa.ForeignKeyConstraint(["subject_id"], ["subject.id"]),
        sa.ForeignKeyConstraint(["episode_id"], ["episode.id"]),
    )
    op.create_index("subject_episode_episode", "subject_episode", ["episode_id"], unique=False)
    op.create_table(
        "act",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("per_key", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("is_disruptive", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("act_at", "act", ["at", "target"], unique=False)
    op.create_index("act_playbook", "act", ["playbook", "at"], unique=False)
    op.create_index("act_playbook_per", "act", ["playbook", "per_key", "at"], unique=False)
    op.create_index("act_run", "act", ["run_id"], unique=False)
    op.create_index("act_target", "act", ["target", "at"], unique=False)
    op.create_table(
        "reservation",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("is_exclusive", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"]),
        sa.PrimaryKeyConstraint("target", "run_id"),
    )
    op.create_index(
        "reservation_exclusive", "reservation", ["target"], unique=True, sqlite_where=sa.text("is_exclusive = 1")
    )
    op.create_index("reservation_run", "reservation", ["run_id"], unique=False)
    op.create_table(
        "lease",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("per_key", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("left", sa.Text(), nullable=False),
        sa.Column("undo", sa.Text(), nullable=False),
        sa.Column("prometheus", sa.Text(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("is_by_hand", sa.Integer(), nullable=False),
        sa.Column("is_latched", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.Text(), nullable=False),
        sa.Column("ends_at", sa.Text(), nullable=True),
        sa.Column("released_at", sa.Text(), nullable=True),
        sa.Column("kept_at", sa.Text(), nullable=True),
        sa.Column("requested_at", sa.Text(), nullable=True),
        sa.Column("requested_by", sa.Text(), server_default="", nullable=False),
        sa.Column("undo_started_at", sa.Text(), nullable=True),
        sa.Column("retry_at", sa.Text(), nullable=True),
        sa.Column("closed_at", sa.Text(), nullable=True),
        sa.Column("how", sa.Text(), server_default="", nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"]),
    )
    is_open = sa.text("closed_at IS NULL")
    op.create_index("lease_open_stack", "lease", ["action", "target", "number"], unique=False, sqlite_where=is_open)
    op.create_index("lease_open_target", "lease", ["target"], unique=False, sqlite_where=is_open)
    op.create_index("lease_open_values", "lease", ["playbook", "per_key"], unique=False, sqlite_where=is_open)
    op.create_index("lease_run", "lease", ["run_id", "number"], unique=False)
    for name, before, table, problem in (
        ("audit_no_update", "UPDATE", "audit", "the audit log is append-only"),
        ("audit_no_delete", "DELETE", "audit", "the audit log is append-only"),
        (
            "delivery_no_edit",
            "UPDATE OF id, received_at, source, body, body_sha256",
            "delivery",
            "a delivery is kept as it came",
        ),
    ):
        op.execute(f"CREATE TRIGGER {name} BEFORE {before} ON {table} BEGIN SELECT RAISE(ABORT, '{problem}'); END")
    meta = sa.table("meta", sa.column("key"), sa.column("value"))
    op.bulk_insert(meta, [{"key": "log_id", "value": secrets.token_hex(32)}])
    op.execute(f"PRAGMA application_id={APPLICATION_ID}")
