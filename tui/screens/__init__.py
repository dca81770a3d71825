"""One file per screen: what is on it, and what its keys do."""
