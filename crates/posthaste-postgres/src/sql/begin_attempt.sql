-- Writes down that an attempt begins, if the lane is still ours and the record still pending.
WITH fence AS MATERIALIZED (
    SELECT lane FROM {outbox_lane} WHERE lane = $2 AND owner = $1 AND token = $3 FOR SHARE
)
UPDATE {outbox} t SET attempts = $6 FROM fence f
WHERE t.id = $4 AND t.seq = $5 AND t.lane = f.lane AND t.status = 0
RETURNING 1
