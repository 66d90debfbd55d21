"""Run the migrations on the connection that :func:`tracekit.web.upgrade.upgrade_tables` gives."""

from alembic import context

from tracekit.web.database import METADATA
from tracekit.web.upgrade import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
