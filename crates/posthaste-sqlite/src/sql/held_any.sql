-- Whether anything holds its key up at all. Mostly nothing does, and then no row needs the next query.
SELECT EXISTS (
    SELECT 1 FROM main.{outbox} INDEXED BY {outbox_held}
    WHERE next_attempt_at IS NOT NULL AND aggregate_id <> '')
