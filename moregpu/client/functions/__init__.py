"""Python functions over the pool: the Executor, what is made of it, and how calls become jobs."""
