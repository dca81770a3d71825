"""The terminal app: shows what `runners` knows and asks it to act; it keeps no data of its own.

`data/` is plain Python without a terminal, `widgets/` show what they are given, `screens/` bring
the two together, `app.py` is the rest. Nothing here loads torch.
"""
