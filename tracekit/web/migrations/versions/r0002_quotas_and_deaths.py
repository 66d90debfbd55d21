"""What quotas count, the description that tus clients give an upload, and the deaths that count against a job."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns; what was uploaded before counts with its size."""
    for table in ("uploads", "jobs"):
        op.add_column(table, sa.Column("network", sa.Text, nullable=False, server_default=""))
        op.create_index(f"{table}_by_network", table, ["network"])
    op.add_column("uploads", sa.Column("reserved", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("uploads", sa.Column("description", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("deaths", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("report_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("uploads_by_owner", "uploads", ["owner"])
    op.create_index("uploads_by_job", "uploads", ["job"])
    op.execute("UPDATE uploads SET reserved = coalesce(length, 0)")
