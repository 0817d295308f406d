"""The kind `function`: Python calls, run in a sandboxed child of a worker whose owner allows it."""
