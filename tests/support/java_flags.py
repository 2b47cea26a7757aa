"""Flags of Java in tests."""

UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Java takes the classes of Spark, Delta and Kafka as they are, without checking their code: a sixth less processor time for each start."""
LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", *UNVERIFIED)
"""For a process that lives for a minute: one collector thread, no second compiler."""
ROOMY = ("-Xms1536m", "-Xmn700m")
"""For a process that computes for a quarter of an hour: what one query leaves is collected a quarter as often."""
