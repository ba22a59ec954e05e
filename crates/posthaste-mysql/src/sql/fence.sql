-- Which of these lanes are ours, locked until the end of the transaction, so that nobody takes one meanwhile.
SELECT lane, token FROM {outbox_lane} FORCE INDEX (PRIMARY) WHERE lane IN (:lanes) AND owner = :relay ORDER BY lane
LOCK IN SHARE MODE
