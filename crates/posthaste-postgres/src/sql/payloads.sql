-- Loads payloads that fetch.sql left out because of their size. They never change, so that another snapshot does no harm;
-- a message that is not pending any more was settled by somebody else meanwhile.
SELECT id, payload FROM {outbox} WHERE id = ANY ($1) AND status = 0
