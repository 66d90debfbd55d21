"""The tables of uploads and jobs, as servers wrote them before they noted a version."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("length", sa.BigInteger),
        sa.Column("job", sa.Text),
        sa.Column("expires", sa.Double, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("link", sa.Text, nullable=False, unique=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("owner", "uploads", "state")),
        sa.Column("request", sa.Text),
        sa.Column("stage", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("found", "error", "output")),
        sa.Column("formats", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("worker", "claim")),
        sa.Column("lease", sa.Double),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("created", "queued", "expires")),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "queued"])
    op.create_index("jobs_by_owner", "jobs", ["owner", "created"])
