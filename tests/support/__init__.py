"""What tests of several packages share: fabricated records, fake hardware, terminals, browsers."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
