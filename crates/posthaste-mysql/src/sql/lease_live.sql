-- What the share is reckoned from, this relay among the live ones though it may not be there yet, and the version of the schema.
SELECT (SELECT COUNT(*) FROM {outbox_lane} WHERE lane >= 0) AS total,
       (SELECT COUNT(*) + 1 FROM {outbox_relay} WHERE leased_until > NOW(6) AND id <> :relay) AS live,
       (SELECT MAX(version) FROM {outbox_migrations}) AS version
