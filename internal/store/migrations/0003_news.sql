-- 0003: truth from outside and news to the outside: inbox, outbox, feed, deliveries, webhook endpoints, mail.
-- Why: acquirers' webhooks come in, events go out. Locks: ACCESS EXCLUSIVE on event, payment_intent and merchant for a moment,
-- SHARE on payment; the new keys of event and the index of payment are built under them, which reads each table once.
-- Rules: as in 0001. Order comes from a position that the owner of a merchant's feed gives, never from a sequence (rule 8).

-- An event tells of an intent, or of a webhook endpoint: its subject. Events of one subject are in the order of its versions.
ALTER TABLE event
  DROP CONSTRAINT event_pkey,
  DROP CONSTRAINT event_merchant_id_id_key,
  ADD PRIMARY KEY (merchant_id, id),
  ALTER intent_id DROP NOT NULL,
  ADD endpoint_id uuid,
  ADD CONSTRAINT event_subject CHECK ((intent_id IS NULL) <> (endpoint_id IS NULL)),
  ADD CONSTRAINT event_order UNIQUE (merchant_id, intent_id, version),
  ADD CONSTRAINT event_endpoint_order UNIQUE (merchant_id, endpoint_id, version);

-- Written with the event and deleted when it got its place in the feed: what is here is not numbered yet (point V2).
CREATE TABLE outbox (
  merchant_id uuid   NOT NULL REFERENCES merchant,
  subject_id  uuid   NOT NULL, -- the intent, or the endpoint
  version     bigint NOT NULL,
  event_id    uuid   NOT NULL,
  PRIMARY KEY (merchant_id, subject_id, version)
  -- No foreign key: the one statement that writes the event writes this row.
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000); -- dead rows lie before the live ones
INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM event;

-- Whoever holds this row's lock numbers the merchant's committed events: a reader who saw position n has seen all before it.
CREATE TABLE feed_head (
  merchant_id uuid   PRIMARY KEY REFERENCES merchant,
  position    bigint NOT NULL DEFAULT 0 CHECK (position >= 0)
);
CREATE TABLE feed (
  merchant_id uuid        NOT NULL,
  position    bigint      NOT NULL CHECK (position > 0),
  event_id    uuid        NOT NULL,
  subject_id  uuid        NOT NULL,
  type        text        NOT NULL,
  customer    text,
  numbered_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, position),
  UNIQUE (merchant_id, event_id),
  FOREIGN KEY (merchant_id, event_id) REFERENCES event
);
CREATE INDEX feed_subject ON feed (merchant_id, subject_id, position);
CREATE INDEX feed_type ON feed (merchant_id, type, position);
CREATE INDEX feed_customer ON feed (merchant_id, customer, position) WHERE customer IS NOT NULL;

-- Sinks that take the events of every merchant. A relay that has one says so here, once: whoever numbers an event keeps it for
-- each of these, also in a process that is configured otherwise. A person takes a sink out (hapax outbox forget).
CREATE TABLE event_sink (
  name       text        COLLATE "C" PRIMARY KEY CHECK (name <> ''),
  created_at timestamptz NOT NULL DEFAULT now()
);

-- The state of one event at one sink: kafka, nats, mail, or an endpoint by its id in the form of a UUID (point V2).
CREATE TABLE delivery (
  merchant_id uuid        NOT NULL,
  sink        text        COLLATE "C" NOT NULL CHECK (sink <> ''),
  event_id    uuid        NOT NULL,
  subject_id  uuid        NOT NULL,
  position    bigint      NOT NULL CHECK (position > 0), -- in the feed
  state       text        NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'abandoned')),
  attempts    int         NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  due_at      timestamptz NOT NULL DEFAULT now(),
  claim_id    uuid,       -- of the relay that tries it now; none once that is over
  resends     int         NOT NULL DEFAULT 0 CHECK (resends >= 0), -- by a person: such a row holds back no other
  error       text,       -- of the last try
  since       timestamptz NOT NULL DEFAULT now(), -- tries count from here: when it was numbered, or sent again
  created_at  timestamptz NOT NULL DEFAULT now(),
  ended_at    timestamptz,
  PRIMARY KEY (merchant_id, sink, event_id),
  FOREIGN KEY (merchant_id, position) REFERENCES feed,
  CONSTRAINT delivery_ended CHECK ((state = 'waiting') = (ended_at IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX delivery_due ON delivery (merchant_id, sink, due_at, position) WHERE state = 'waiting';
-- Order within a subject: only its first waiting row may be tried.
CREATE INDEX delivery_order ON delivery (merchant_id, sink, subject_id, position) WHERE state = 'waiting' AND resends = 0;
CREATE INDEX delivery_abandoned ON delivery (merchant_id, sink, position) WHERE state = 'abandoned';
CREATE INDEX delivery_ended ON delivery (ended_at) WHERE state <> 'waiting'; -- purge

-- One try at an endpoint, for whoever looks for a lost webhook. The request's body is the event's.
CREATE TABLE delivery_attempt (
  merchant_id   uuid        NOT NULL,
  id            uuid        NOT NULL,
  sink          text        COLLATE "C" NOT NULL,
  event_id      uuid        NOT NULL,
  attempt       int         NOT NULL CHECK (attempt > 0),
  url           text        NOT NULL,
  status        smallint,   -- none: no answer
  answer        text,       -- its beginning
  error         text,
  duration_ms   int         NOT NULL CHECK (duration_ms >= 0),
  created_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id),
  FOREIGN KEY (merchant_id, event_id) REFERENCES event
);
CREATE INDEX delivery_attempt_event ON delivery_attempt (merchant_id, sink, event_id, id);
CREATE INDEX delivery_attempt_purge ON delivery_attempt (created_at);

CREATE TABLE webhook_endpoint (
  merchant_id   uuid        NOT NULL REFERENCES merchant,
  id            uuid        NOT NULL,
  url           text        NOT NULL CHECK (url <> '' AND octet_length(url) <= 2048),
  description   text        NOT NULL DEFAULT '' CHECK (octet_length(description) <= 1000),
  types         text[]      NOT NULL DEFAULT '{}', -- of events; empty: all
  enabled       boolean     NOT NULL DEFAULT true,
  disabled_why  text        NOT NULL DEFAULT '',
  failing_since timestamptz, -- the first failed try since the last one that succeeded
  key_seed      text        NOT NULL CHECK (key_seed <> ''), -- of the keys of its events (section 10)
  event_version bigint      NOT NULL DEFAULT 0 CHECK (event_version >= 0),
  version       bigint      NOT NULL DEFAULT 1,
  created_at    timestamptz NOT NULL DEFAULT now(),
  updated_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id)
);
-- Several are good at once while one takes the place of another (point V5).
CREATE TABLE webhook_secret (
  merchant_id uuid        NOT NULL,
  endpoint_id uuid        NOT NULL,
  ordinal     int         NOT NULL CHECK (ordinal > 0),
  sealed      bytea       NOT NULL, -- with HAPAX_SECRET_KEY
  created_at  timestamptz NOT NULL DEFAULT now(),
  expires_at  timestamptz, -- set when the next one is made
  PRIMARY KEY (merchant_id, endpoint_id, ordinal),
  FOREIGN KEY (merchant_id, endpoint_id) REFERENCES webhook_endpoint
);
-- The commands about endpoints: their identity, which outlives the operation (K8).
CREATE TABLE endpoint_command (
  merchant_id         uuid        NOT NULL,
  kind                text        COLLATE "C" NOT NULL,
  idempotency_key     text        COLLATE "C" NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  endpoint_id         uuid        NOT NULL,
  answered_status     smallint    NOT NULL,
  event_id            uuid,       -- that was sent: by a test, or again
  sends               int         NOT NULL DEFAULT 0, -- deliveries that were put in line
  more                boolean     NOT NULL DEFAULT false, -- some were left out, beyond the limit of one command
  created_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, kind, idempotency_key),
  FOREIGN KEY (merchant_id, endpoint_id) REFERENCES webhook_endpoint
);
ALTER TABLE event ADD FOREIGN KEY (merchant_id, endpoint_id) REFERENCES webhook_endpoint;

-- What comes from acquirers: verified at the door, stored raw before anything else, then applied (point V3).
CREATE TABLE inbox_message (
  merchant_id   uuid        NOT NULL,
  id            uuid        NOT NULL,
  account_id    uuid        NOT NULL,
  message_id    text        NOT NULL CHECK (message_id <> '' AND octet_length(message_id) <= 255), -- the acquirer's, else a digest
  raw           bytea       NOT NULL CHECK (octet_length(raw) <= 262144),
  raw_hash      bytea       NOT NULL CHECK (length(raw_hash) = 32),
  trust         text        NOT NULL CHECK (trust IN ('signed', 'hint')), -- a hint only makes us ask
  type          text        NOT NULL DEFAULT '', -- known once it was read
  state         text        NOT NULL DEFAULT 'received' CHECK (state IN ('received', 'parked', 'applied', 'ignored', 'unreadable')),
  why           text        NOT NULL DEFAULT '',
  intent_id     uuid,
  payment_id    uuid,
  attempts      int         NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  repeats       int         NOT NULL DEFAULT 0 CHECK (repeats >= 0), -- further deliveries of the same bytes
  claim_id      uuid,
  due_at        timestamptz, -- none: nothing is left to do
  received_at   timestamptz NOT NULL DEFAULT now(),
  ended_at      timestamptz,
  PRIMARY KEY (merchant_id, id),
  CONSTRAINT inbox_message_once UNIQUE (merchant_id, account_id, message_id, raw_hash),
  FOREIGN KEY (merchant_id, account_id) REFERENCES acquirer_account,
  CONSTRAINT inbox_message_ended CHECK ((state IN ('received', 'parked')) = (ended_at IS NULL)),
  CONSTRAINT inbox_message_due CHECK ((due_at IS NULL) = (ended_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX inbox_message_due ON inbox_message (merchant_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX inbox_message_intent ON inbox_message (merchant_id, intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX inbox_message_ended ON inbox_message (ended_at) WHERE state IN ('applied', 'ignored'); -- purge
CREATE INDEX inbox_message_unreadable ON inbox_message (merchant_id, id) WHERE state = 'unreadable';
-- News of a page may name the page alone. Written once, when the page is registered: later updates of the payment stay HOT.
CREATE INDEX payment_session ON payment (merchant_id, session_reference) WHERE session_reference IS NOT NULL;

-- Notifications to people, off until a merchant writes a template.
ALTER TABLE payment_intent
  ADD receipt_email text CHECK (receipt_email <> '' AND octet_length(receipt_email) <= 254);
CREATE TABLE mail_template (
  merchant_id uuid        NOT NULL REFERENCES merchant,
  kind        text        NOT NULL CHECK (kind IN ('receipt', 'cancel_code')),
  enabled     boolean     NOT NULL DEFAULT true,
  sender      text        NOT NULL CHECK (sender <> ''),
  subject     text        NOT NULL CHECK (subject <> '' AND octet_length(subject) <= 1000),
  body        text        NOT NULL CHECK (body <> '' AND octet_length(body) <= 65536),
  updated_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, kind)
);
-- One mail by its derived key, however often the event comes. sending is written before any byte leaves; who dies there
-- leaves a mail that is never sent again by itself. not_sent is proven, and tried again.
CREATE TABLE mail (
  merchant_id uuid        NOT NULL REFERENCES merchant,
  mail_key    text        NOT NULL, -- <intent>:receipt:<n>, <intent>:cancel_code:<n>:<ordinal>
  kind        text        NOT NULL,
  event_id    uuid        NOT NULL,
  payment_id  uuid        NOT NULL,
  message_id  text        NOT NULL, -- of the mail, derived from the key
  state       text        NOT NULL CHECK (state IN ('sending', 'not_sent', 'sent', 'unknown', 'refused')),
  why         text        NOT NULL DEFAULT '',
  claim_id    uuid        NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  updated_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, mail_key),
  FOREIGN KEY (merchant_id, event_id) REFERENCES event,
  FOREIGN KEY (merchant_id, payment_id) REFERENCES payment
);
CREATE INDEX mail_unsettled ON mail (merchant_id, state, created_at) WHERE state <> 'sent';
CREATE INDEX mail_payment ON mail (merchant_id, payment_id); -- the story of a payment

GRANT SELECT, INSERT ON outbox, event_sink, feed_head, feed, delivery, delivery_attempt, webhook_endpoint, webhook_secret, endpoint_command,
  inbox_message, mail_template, mail TO hapax_service;
GRANT UPDATE ON feed_head, delivery, webhook_endpoint, webhook_secret, inbox_message, mail_template, mail TO hapax_service;
GRANT DELETE ON outbox, event_sink, delivery, delivery_attempt, webhook_secret, inbox_message TO hapax_service;
GRANT SELECT ON outbox, event_sink, feed_head, feed, delivery, delivery_attempt, webhook_endpoint, endpoint_command, inbox_message, mail_template, mail
  TO hapax_console;
