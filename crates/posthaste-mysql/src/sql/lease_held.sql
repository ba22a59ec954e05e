-- Locks the lanes that the relay holds, so that nobody takes one while the lease is being renewed: whoever wants to take a
-- lane skips those that are locked. Shared, because a settle locks them too.
SELECT lane, token FROM {outbox_lane} FORCE INDEX (PRIMARY) WHERE lane IN (:lanes) AND owner = :relay ORDER BY lane
LOCK IN SHARE MODE
