"""The engine without a JVM: the same DataFrames on a session of Sail, the same kernels, and processes of its own."""
