"""How much of a device the pool may use now: schedules, ceilings and the meter that keeps to them. Pure."""
