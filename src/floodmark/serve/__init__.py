"""State that can be asked: results and keyed state over HTTP, by key, as of a commit or a savepoint. Reads the lake only."""
