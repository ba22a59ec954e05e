-- Whether a partition holds anything that is not over.
SELECT EXISTS (SELECT 1 FROM {outbox} PARTITION (:partition) WHERE status = 0) AS pending,
       EXISTS (SELECT 1 FROM {outbox} PARTITION (:partition) WHERE status NOT IN (0, 1)) AS dead
