"""The one process that owns a run: starts it, records it, and decides why it ended.

The process and its connections:
- `supervisor`: the process, from the queue to the end of the run.
- `server`: the sockets that it listens on; `connection`: one connection, bytes to events.
- `addresses`: the address that it listens on, and the network interface of the ranks.
- `coordinator`: what is done on each event of a rank, node agent, launcher or viewer.

What the coordinator knows, and what it uses:
- `live_run`: the run with its record, its peers and what was observed of it.
- `membership`: the hosts that have joined, and where the ranks meet.
- `rank_connections`: the connections of the ranks of the current attempt.
- `run_control`: who may stop the run, and what differs for one that distrain only observes.
- `stop_protocol`: the step after which all ranks stop, and how long that may take.
- `attempts`: how restarted ranks continue in the same record; `step_offsets`: their steps.
- `script_evaluations`, `script_checks`: what the ranks of a script report becomes one evaluation,
  or shows a common mistake.
- `stall_watch`: notices when ranks make no progress; `stall_probe` asks for their stacks, and
  `stack_groups` tells from them which rank is absent.
- `disconnections`: what it means that a rank or a node agent disconnected, e.g. was killed.

The end of a run:
- `evidence`: what was observed of ranks, hosts and the launcher.
- `outcome`: decides from the evidence why the run ended, e.g. which rank failed first.
- `launcher_process`: starts the launcher, and decides how long it and the other ranks may live on
  after a failure.

A run that distrain has not started:
- `observer`: the process that only records it; `observed_outcome`: how such a run ended.

Regular work, and the record:
- `background`: samples the devices, commits to the record, watches for stalls.
- `state_writer`: changes run.json, even while the disk is full.
- `device_queue`: which run uses which devices, and which runs wait for them.

Where the nodes of a job cannot reach this host:
- `relay`: takes the supervisor's place on the job's first node, and keeps a journal.
- `journal_merge`: merges that journal into the record.

Not here: how ranks are started (`launchers`) and the files of a record (`records`).
"""
