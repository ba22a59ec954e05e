-- Deletes old entries of the inbox. They lie in the order in which they were written, so only the first few are
-- looked at.
DELETE FROM main.{outbox_inbox}
WHERE seq IN (SELECT seq FROM main.{outbox_inbox} NOT INDEXED ORDER BY seq LIMIT ?1) AND seen_at < ?2
