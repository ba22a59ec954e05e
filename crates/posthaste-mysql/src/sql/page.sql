-- The ready rows of some lanes: their places from the ready index, and the rows themselves by whole primary keys. What is in
-- hand comes as a place alone, and is not looked up. Nothing is sorted here: whoever reads them does.
SELECT h.scan, h.created, h.id, {record:t}, {blocker:t} AS blocker
FROM (:arms) h
LEFT JOIN {outbox} t FORCE INDEX (PRIMARY) ON t.id = h.id AND t.created_ts = h.created_ts AND h.id NOT IN (:in_hand)
