"""Questions in front of a screen, each with a typed answer."""
