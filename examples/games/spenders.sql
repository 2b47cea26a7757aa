-- What players of a game buy per hour.
-- lateness: 1 hour

SELECT game, window_start, window_end, COUNT(DISTINCT player) AS players, SUM(cents) AS cents
FROM TABLE(TUMBLE(TABLE rounds, DESCRIPTOR(at), INTERVAL '1' HOUR))
GROUP BY game, window_start, window_end
