"""The user's side of a run under test; copied into the folder of each case."""
