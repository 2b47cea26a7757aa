"""Pure foundations: time, errors, fingerprints. Imports nothing else of floodmark."""

import os

# read when deltalake is imported: with an arena for each of its threads, its allocator keeps more of what checkpoints of a log have freed,
# 18 MB per 1,000 micro-batches of a stream instead of 8
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1")
