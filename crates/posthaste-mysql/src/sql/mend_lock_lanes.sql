-- Locks the lanes of rows that are to be mended, in order and before the rows, as a settle does.
SELECT lane FROM {outbox_lane} FORCE INDEX (PRIMARY) WHERE lane IN (:lanes) ORDER BY lane FOR UPDATE
