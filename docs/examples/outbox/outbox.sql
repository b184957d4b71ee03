CREATE TABLE outbox (
  position    bigint GENERATED ALWAYS AS IDENTITY,
  id          text PRIMARY KEY DEFAULT gen_random_uuid(), -- the job's id
  destination text NOT NULL,
  key         text NOT NULL DEFAULT '',
  payload     json NOT NULL,
  error       text -- why Tidegate refused the job
);
CREATE INDEX outbox_waiting ON outbox (position) WHERE error IS NULL;
