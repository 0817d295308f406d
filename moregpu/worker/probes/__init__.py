"""What a worker can see of its owner and of the machine: input, load, battery, heat. The throttle decides on it."""
