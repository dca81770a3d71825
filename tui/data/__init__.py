"""What the screens show, worked out without a terminal: frozen values, read by a thread."""
