"""Alembic's entry: runs the migrations inside the transaction that ``store.schema.migrate`` has begun."""

from __future__ import annotations

from alembic import context

# Never render_as_batch: batch mode copies a table and drops the old one, and the append-only triggers with it.
context.configure(connection=context.config.attributes["connection"], render_as_batch=False, transactional_ddl=True)
context.run_migrations()
