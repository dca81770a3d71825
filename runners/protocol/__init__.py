"""The messages between ranks, launchers, viewers and the supervisor, and the client's end.

`events` defines the messages (docs/protocol.md), `client` connects, `reporter` is a rank's end.
The supervisor's end is in `supervision`.
"""
