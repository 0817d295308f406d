"""What the console knows: pure data and functions, no framework and no clock of its own."""
