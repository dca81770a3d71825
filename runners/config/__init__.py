"""What a person decides about a run, and what follows from it on a host.

`schema` is the RunConfig; `training_sections` and `launch_sections` are its tables, with the keys,
defaults and limits. `presets` finds configurations by name. `planning` derives the `plan` (shares,
threads, rates) for a host, with the devices of `device_choice` and the rules of `constraints`.
Nothing here starts a process.
"""
