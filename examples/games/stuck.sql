-- Levels that are lost again and again: five times in ten minutes.

SELECT game, level, window_start, window_end, COUNT(*) AS lost
FROM TABLE(TUMBLE(TABLE rounds, DESCRIPTOR(at), INTERVAL '10' MINUTES))
WHERE NOT won
GROUP BY game, level, window_start, window_end
HAVING COUNT(*) >= 5
