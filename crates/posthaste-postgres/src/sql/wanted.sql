-- Whether a row is one to read: not in hand, its key asked for, and not blocked.
({row}.seq NOT IN (SELECT unnest($6))
 AND CASE WHEN $7 THEN {row}.aggregate_id <> '' AND ({row}.aggregate_type, {row}.aggregate_id) IN (SELECT * FROM unnest($8, $9))
     ELSE {row}.aggregate_id = '' OR ({row}.aggregate_type, {row}.aggregate_id) NOT IN (SELECT * FROM unnest($8, $9)) END
 AND ({row}.aggregate_id = '' OR NOT (SELECT blocks FROM held) OR NOT EXISTS (
     SELECT FROM {outbox} b WHERE b.aggregate_type = {row}.aggregate_type AND b.aggregate_id = {row}.aggregate_id
        AND b.aggregate_id <> '' AND b.next_attempt_at IS NOT NULL AND b.seq < {row}.seq)))
