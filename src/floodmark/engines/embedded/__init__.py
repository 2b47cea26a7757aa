"""The embedded engine, without a JVM: the DataFrames of ``frames`` on a session of Sail, and kernels in Python processes."""

import os

# read when grpc is imported; with it, a child that this process forks, as PySpark does for Java, may die before it has begun
# (grpc/grpc issue 43055)
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
