-- Locks these lanes until the end of the transaction, so that nobody takes one meanwhile, and fails with error 1690 unless all of
-- them are the relay's under these tokens: what stands behind it in the same round trip is then not run.
SELECT 18446744073709551615 + (COUNT(*) <> :count) AS fenced FROM {outbox_lane} FORCE INDEX (PRIMARY)
WHERE lane IN (:lanes) AND owner = :relay AND (lane, token) IN (:held)
LOCK IN SHARE MODE
