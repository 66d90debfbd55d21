"""Jobs that share another's traces or were split from it, and how far a job has come."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; jobs so far are related to no other."""
    for name in ("base", "split_from"):
        op.add_column("jobs", sa.Column(name, sa.Text))
        op.create_index(f"jobs_by_{name}", "jobs", [name])
    op.add_column("jobs", sa.Column("begun", sa.Double))
    op.add_column("jobs", sa.Column("done_fraction", sa.Double, nullable=False, server_default="0"))
