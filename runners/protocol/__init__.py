"""The messages between ranks, launchers, viewers and the supervisor, and the client's end.

`events` defines the messages (docs/protocol.md), `client` connects, `reporter` is a rank's end, and
`own_sockets` knows which of its sockets the program has closed. The supervisor's end is in
`supervision`.
"""
