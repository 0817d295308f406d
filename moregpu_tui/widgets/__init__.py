"""What draws: line by line, only what changed."""
