"""One module per screen: its panes, its keys, and the threads that read for it."""
