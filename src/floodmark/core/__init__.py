"""Pure foundations: time, errors, fingerprints. Imports nothing else of floodmark."""

import os

# read when deltalake is imported: its allocator gives back at once what the checkpoints of a log have freed; with an arena and a cache for each of its
# threads, and memory kept for later, a stream grows by 8 to 18 MB per 1,000 micro-batches
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0")
