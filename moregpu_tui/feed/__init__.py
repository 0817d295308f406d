"""Where events come from: a live pool, a simulated one, a recording."""
