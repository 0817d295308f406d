"""Functions on a worker: a room of sandboxed children behind the seam that compute children have, too.

`room` takes tasks and answers; a `lane` is one sandbox in it, for one submitter's session; inside, the `zygote` forks
the `child` that calls what it is given. Nothing that a child says is trusted by the agent.
"""
