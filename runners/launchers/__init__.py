"""How the rank processes of a run are started.

Each launcher is a module that the supervisor runs as a process of its own: it starts the ranks,
reports how each of them ended and returns when none is left. `command` chooses the launcher and
builds its environment; `node` is the agent that does the same on each host of a run on several.
Nothing here loads torch at import, and nothing imports the supervisor.
"""
