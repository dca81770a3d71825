"""Modal windows: each asks one thing, or shows one, and gives its answer when it closes."""
