"""The first schema."""

from __future__ import annotations

import secrets

from alembic import op

from remediator.store.schema import APPLICATION_ID, TRIGGERS
from remediator.store.tables import meta, metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
    for sql in TRIGGERS.values():
        op.execute(sql)
    op.bulk_insert(meta, [{"key": "log_id", "value": secrets.token_hex(32)}])
    op.execute(f"PRAGMA application_id={APPLICATION_ID}")
