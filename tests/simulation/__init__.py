"""A deterministic simulation: the real store, workers and reapers over one fake Redis, in virtual time, with faults.

One seed decides everything: what clients submit, how long each call is under way, which calls get lost, who dies or is
frozen, when Redis restarts from an older state. A run that fails is printed with its seed, and replays exactly.

In the course `outage` only Redis is away, clocks jump, and some calls have to be refused: this costs no attempt, and a
refused call leaves nothing behind.

    timeline.py   virtual time; an event loop for each process, so that it can be frozen and killed
    fake_redis.py the server: fakeredis with the real Lua scripts; snapshots, restarts
    network.py    what stands between a process and the server: delays, and calls that go wrong
    fault_plan.py which faults a seed has in store
    work.py       the stand-in for commands: they take their time, and fail now and then
    actors.py     clients, APIs, workers, reapers
    strangers.py  calls that have to be refused
    history.py    what happened to every job, in the order in which the server did it; what must never happen
    rules.py      what holds with each start, end and claim: limits, gates, attempts, order
    blame.py      in outages: no attempt is lost
    left_behind.py  what refused calls have left in Redis
    passes.py     what a pass over leases may not leave
    rollback_observers.py  which processes report a rollback
    mutants.py    bugs that are built in on purpose, to see that they are found
    http.py       requests of workers to the real application
    chance.py     all that is random follows from the seed
    world.py      who is there, how they reach each other, and how faults strike them
    run.py        one run from its seed to its verdict
"""
