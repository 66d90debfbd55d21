"""Migrations of the database's tables, run by Alembic as the server starts."""
