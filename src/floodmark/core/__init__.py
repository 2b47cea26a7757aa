"""Pure foundations: time, errors, fingerprints. Imports nothing else of floodmark."""

import os

# read when deltalake is imported: makes its allocator (jemalloc) return memory to the system as soon as the checkpoints of a log free it; with the
# defaults, an arena and a cache per thread and a delayed return, a stream grows by 8 to 18 MB per 1,000 micro-batches
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0")
