"""Landing in the parts that both engines share: reading and checking units, the order of writes, the rows of a log. No session is needed."""
