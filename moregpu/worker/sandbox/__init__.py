"""How user code is confined: one module for each layer, and the probe that says what holds on this machine."""
