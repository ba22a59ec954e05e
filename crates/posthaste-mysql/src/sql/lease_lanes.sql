-- What the relay holds. Its lanes are locked by this transaction.
SELECT lane, token FROM {outbox_lane} WHERE owner = :relay AND lane >= 0 ORDER BY lane
