-- What the share is reckoned from, and the version of the schema.
SELECT (SELECT COUNT(*) FROM {outbox_lane} WHERE lane >= 0) AS total,
       (SELECT COUNT(*) FROM {outbox_relay} WHERE leased_until > NOW(6) OR id = :relay) AS live,
       (SELECT MAX(version) FROM {outbox_migrations}) AS version
