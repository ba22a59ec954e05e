-- Whether a partition holds anything that is not over: along the index on status. The table is named once, as it must be
-- while it is locked.
SELECT EXISTS (SELECT 1 FROM {outbox} PARTITION (:partition) FORCE INDEX (idx_status_id)
               WHERE status < -1 OR status = 0 OR status > 1) AS pending
