"""Measurements of the project's claims; each module is a command that prints a table."""
