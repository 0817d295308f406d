"""The console in a browser on this machine: a small server, and a console in a pseudo-terminal for each tab."""
