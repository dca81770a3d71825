"""Verification: does a way of training compute what one plain process computes?

Each preset trains a few steps as it always does; from within, `tap.py` leaves gradients, weights
and buffers. `reference.py` does the same steps in one plain process, `judge.py` compares; torch is
left to ranks and to the judge's process. `cases.py` goes through presets, `report.py` has the
verdict and its words.
"""

FOLDER = "verification"  # in the record
RESULT = "report.json"
TAP = "DISTRAIN_TAP"  # in the environment of ranks that leave something
STEPS = 3
