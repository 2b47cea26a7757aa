"""Pure foundations: time, errors, fingerprints. Imports nothing else of floodmark."""

import os

# read when deltalake is imported: with an arena for each of its threads, its allocator keeps what checkpoints of a log have freed, 14 MB more
# per 1,000 micro-batches of a stream
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1")
