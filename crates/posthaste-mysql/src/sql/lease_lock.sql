-- Locks lanes that were free, to take them in the next statement, and waits for nobody. An owner whose lease ran out may have
-- been publishing when it died.
SELECT lane, owner IS NOT NULL AS expired FROM {outbox_lane} FORCE INDEX (PRIMARY) WHERE lane IN (:lanes) ORDER BY lane FOR UPDATE NOWAIT
