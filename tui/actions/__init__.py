"""Controllers of what a person does: launch, stop, resume, rerun, edit, delete, bench.

The app owns one of each. Screens reach them through the protocols in `tui.requests`, so that an
action is the same from every screen. Controllers ask with dialogs, work in threads, and report
what happened in a notification.
"""
