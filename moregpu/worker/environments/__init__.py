"""Python environments for functions: built once by uv, kept by what they hold, read-only to jobs."""
