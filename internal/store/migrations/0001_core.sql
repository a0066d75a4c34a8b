-- 0001: the core tables of the direct flow.
-- Why: first release. Locks: none that anybody could wait for; every table is new.
-- Rules: merchant_id leads every key (data rule 1); append-only tables by privilege (rule 9); no sequence (rule 8).

CREATE TABLE merchant (
  merchant_id uuid        PRIMARY KEY,
  name        text        NOT NULL CHECK (name <> '' AND length(name) <= 200),
  mode        text        NOT NULL CHECK (mode IN ('test', 'live')),
  pair_id     uuid,       -- the same merchant's tenant of the other mode
  rate_limit  int         NOT NULL DEFAULT 0 CHECK (rate_limit >= 0), -- requests per second, 0: the default
  created_at  timestamptz NOT NULL DEFAULT now()
);

-- Keys are stored hashed; the text of a key carries its merchant, so that it is found with the merchant alone.
CREATE TABLE api_key (
  merchant_id uuid        NOT NULL REFERENCES merchant,
  key_hash    bytea       NOT NULL CHECK (length(key_hash) = 32),
  id          uuid        NOT NULL,
  name        text        NOT NULL DEFAULT '',
  created_at  timestamptz NOT NULL DEFAULT now(),
  expires_at  timestamptz, -- set at rotation: the overlap
  revoked_at  timestamptz,
  PRIMARY KEY (merchant_id, key_hash),
  UNIQUE (merchant_id, id)
);

CREATE TABLE acquirer_account (
  merchant_id    uuid        NOT NULL REFERENCES merchant,
  id             uuid        NOT NULL,
  adapter        text        NOT NULL,
  settings       jsonb       NOT NULL DEFAULT '{}',
  secrets        bytea       NOT NULL DEFAULT '', -- sealed with HAPAX_SECRET_KEY
  paused         boolean     NOT NULL DEFAULT false,
  compared_epoch bigint      NOT NULL DEFAULT 0,
  created_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id)
);

CREATE TABLE payment_intent (
  merchant_id      uuid        NOT NULL REFERENCES merchant,
  id               uuid        NOT NULL,
  client_reference text        CHECK (client_reference <> '' AND octet_length(client_reference) <= 255),
  customer         text        CHECK (customer <> '' AND octet_length(customer) <= 255),
  description      text        CHECK (octet_length(description) <= 1000),
  metadata         text        CHECK (octet_length(metadata) <= 16384),
  amount           bigint      NOT NULL CHECK (amount > 0),
  currency         text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  capture_method   text        NOT NULL CHECK (capture_method IN ('automatic', 'manual')),
  pay_before       timestamptz NOT NULL,
  key_seed         text        NOT NULL,
  version          int         NOT NULL DEFAULT 1 CHECK (version > 0),
  event_version    bigint      NOT NULL DEFAULT 0 CHECK (event_version >= 0),
  conflict         boolean     NOT NULL DEFAULT false,
  created_at       timestamptz NOT NULL DEFAULT now(),
  updated_at       timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX payment_intent_reference ON payment_intent (merchant_id, client_reference) WHERE client_reference IS NOT NULL;
-- The seed needs no unique index: it is a function of the reference, or of the command, and both are unique.
CREATE INDEX payment_intent_customer ON payment_intent (merchant_id, customer, id) WHERE customer IS NOT NULL;

-- One row for each version, with the command that made it: the identity that outlives the operation (K8).
CREATE TABLE payment_intent_version (
  merchant_id         uuid        NOT NULL,
  intent_id           uuid        NOT NULL,
  version             int         NOT NULL CHECK (version > 0),
  kind                text        NOT NULL,
  idempotency_key     text        NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  amount              bigint      NOT NULL CHECK (amount > 0),
  currency            text        NOT NULL,
  created_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, intent_id, version),
  UNIQUE (merchant_id, kind, idempotency_key),
  FOREIGN KEY (merchant_id, intent_id) REFERENCES payment_intent
);

CREATE TABLE payment (
  merchant_id         uuid        NOT NULL,
  id                  uuid        NOT NULL,
  intent_id           uuid        NOT NULL,
  n                   int         NOT NULL CHECK (n > 0),
  flow                text        NOT NULL CHECK (flow IN ('direct', 'hosted')),
  status              text        NOT NULL CONSTRAINT payment_status CHECK (status IN
                      ('pending', 'registered', 'unknown', 'authorized', 'paid', 'canceling', 'declined', 'failed', 'canceled')),
  conflict            boolean     NOT NULL DEFAULT false,
  amount              bigint      NOT NULL CHECK (amount > 0),
  currency            text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  captured_amount     bigint      NOT NULL DEFAULT 0 CHECK (captured_amount >= 0),
  refunded_amount     bigint      NOT NULL DEFAULT 0 CHECK (refunded_amount >= 0),
  payment_method      text        NOT NULL CHECK (payment_method <> '' AND octet_length(payment_method) <= 255),
  account_id          uuid        NOT NULL,
  acquirer_key        text        NOT NULL CHECK (acquirer_key <> ''),
  acquirer_reference  text,
  failure_code        text,
  failure_message     text,
  refused_at          timestamptz,
  gate_open           boolean     NOT NULL DEFAULT false,
  due_at              timestamptz,
  version             bigint      NOT NULL DEFAULT 1,
  kind                text        NOT NULL,
  idempotency_key     text        NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  created_at          timestamptz NOT NULL DEFAULT now(),
  updated_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id),
  UNIQUE (merchant_id, intent_id, n),
  UNIQUE (merchant_id, kind, idempotency_key),
  UNIQUE (merchant_id, acquirer_key),
  FOREIGN KEY (merchant_id, intent_id) REFERENCES payment_intent,
  FOREIGN KEY (merchant_id, account_id) REFERENCES acquirer_account,
  -- P1: what frees the intent is written by what frees it.
  CONSTRAINT payment_refused CHECK ((refused_at IS NOT NULL) = (status IN ('declined', 'failed', 'canceled'))),
  CONSTRAINT payment_failure CHECK (refused_at IS NULL OR failure_code IS NOT NULL),
  CONSTRAINT payment_gate    CHECK (NOT gate_open OR refused_at IS NOT NULL),
  CONSTRAINT payment_gate_due CHECK (refused_at IS NULL OR gate_open OR due_at IS NOT NULL),
  CONSTRAINT payment_paid    CHECK (status <> 'paid' OR captured_amount > 0),
  CONSTRAINT payment_captured CHECK (captured_amount <= amount),   -- I-9
  CONSTRAINT payment_refunded CHECK (refunded_amount <= captured_amount)
) WITH (fillfactor = 70);
-- P1, I-2: one payment per intent that is not proven to be refused. Success does not touch this index.
CREATE UNIQUE INDEX payment_one_live ON payment (merchant_id, intent_id) WHERE refused_at IS NULL;
-- acquirer_reference is learned on success: its index would cost each success a full update, so support searches movement.
CREATE INDEX payment_due ON payment (merchant_id, due_at) WHERE due_at IS NOT NULL;

-- A command that met a live payment made no row of its own: this is its identity, which outlives the operation (K8).
CREATE TABLE joined_command (
  merchant_id         uuid        NOT NULL,
  -- Compared as bytes, as in operation: rows are inserted in the order of locks (P4).
  kind                text        COLLATE "C" NOT NULL,
  idempotency_key     text        COLLATE "C" NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  payment_id          uuid        NOT NULL,
  created_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, kind, idempotency_key),
  FOREIGN KEY (merchant_id, payment_id) REFERENCES payment
);

CREATE TABLE operation (
  merchant_id         uuid        NOT NULL REFERENCES merchant,
  -- Compared as bytes, so that the order of locks is one and the same in SQL and in Go (P4).
  kind                text        COLLATE "C" NOT NULL,
  idempotency_key     text        COLLATE "C" NOT NULL CHECK (idempotency_key <> '' AND octet_length(idempotency_key) <= 255),
  id                  uuid        NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  request_id          text        NOT NULL,
  state               text        NOT NULL CONSTRAINT operation_state CHECK (state IN ('in_progress', 'awaiting_result', 'in_review', 'completed')),
  fence               bigint      NOT NULL DEFAULT 1 CHECK (fence > 0),
  claim_id            uuid        NOT NULL,
  claimed_at          timestamptz NOT NULL DEFAULT now(),
  lease_until         timestamptz NOT NULL,
  due_at              timestamptz NOT NULL,
  checks              int         NOT NULL DEFAULT 0,
  answer_status       smallint,
  answer_body         bytea,
  completed_at        timestamptz,
  expires_at          timestamptz,
  created_at          timestamptz NOT NULL DEFAULT now(),
  intent_id           uuid,
  payment_id          uuid,
  follows_id          uuid,
  account_id          uuid,
  action              text,
  acquirer_key        text,
  request_body        bytea,
  sends               int         NOT NULL DEFAULT 0 CHECK (sends >= 0 AND sends <= 16),
  unsent              int         NOT NULL DEFAULT 0 CHECK (unsent >= 0 AND unsent <= sends),
  first_permit_at     timestamptz,
  last_permit_at      timestamptz,
  permit_id           uuid,
  send_until          timestamptz NOT NULL,
  epoch               bigint      NOT NULL,
  lost                boolean     NOT NULL DEFAULT false,
  PRIMARY KEY (merchant_id, kind, idempotency_key),
  UNIQUE (merchant_id, id),
  CONSTRAINT operation_completed CHECK ((state = 'completed') = (completed_at IS NOT NULL AND expires_at IS NOT NULL)),
  CONSTRAINT operation_answer    CHECK (state <> 'completed' OR answer_status IS NOT NULL),
  CONSTRAINT operation_permits   CHECK ((sends > 0) = (first_permit_at IS NOT NULL AND last_permit_at IS NOT NULL)),
  -- A1: nothing may be sent that is not stored.
  CONSTRAINT operation_request   CHECK (sends = 0 OR (acquirer_key IS NOT NULL AND request_body IS NOT NULL AND account_id IS NOT NULL))
) WITH (fillfactor = 50);
-- K7: everything unfinished has a due time, and one loop finds it, merchant by merchant, so that none starves (S2).
CREATE INDEX operation_due ON operation (merchant_id, due_at) WHERE state <> 'completed';
-- K8: purge.
CREATE INDEX operation_expired ON operation (expires_at) WHERE state = 'completed';
CREATE INDEX operation_payment ON operation (merchant_id, payment_id) WHERE payment_id IS NOT NULL;

CREATE TABLE movement (
  merchant_id  uuid        NOT NULL REFERENCES merchant,
  id           uuid        NOT NULL,
  account_id   uuid        NOT NULL,
  reference    text        NOT NULL CHECK (reference <> ''),
  kind         text        NOT NULL CHECK (kind IN ('charge', 'capture', 'reverse', 'refund', 'chargeback')),
  acquirer_key text,
  intent_id    uuid,
  payment_id   uuid,
  amount       bigint      NOT NULL CHECK (amount > 0),
  currency     text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  state        text        NOT NULL CHECK (state IN ('applied', 'unapplied', 'returned')),
  cause        text,
  moved_at     timestamptz, -- as the acquirer tells it
  created_at   timestamptz NOT NULL DEFAULT now(),
  updated_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id),
  -- E5: a second movement stays recordable; the same one is booked once.
  CONSTRAINT movement_once UNIQUE (merchant_id, account_id, reference, kind),
  FOREIGN KEY (merchant_id, account_id) REFERENCES acquirer_account,
  CONSTRAINT movement_unapplied CHECK (state <> 'unapplied' OR cause IS NOT NULL),
  CONSTRAINT movement_applied   CHECK (state <> 'applied' OR payment_id IS NOT NULL)
);
CREATE INDEX movement_intent ON movement (merchant_id, intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX movement_key ON movement (merchant_id, acquirer_key) WHERE acquirer_key IS NOT NULL;

CREATE TABLE evidence (
  merchant_id         uuid        NOT NULL REFERENCES merchant,
  id                  uuid        NOT NULL,
  intent_id           uuid,
  payment_id          uuid,
  operation_id        uuid,
  account_id          uuid,
  source              text        NOT NULL CHECK (source IN ('call', 'lookup', 'movements', 'webhook', 'settlement', 'person')),
  outcome             text        NOT NULL,
  class               text        NOT NULL CHECK (class <> ''), -- O3, I-19
  code                text,
  failure             text,
  message             text,
  reference           text,
  our_reference       text,
  amount              bigint,
  currency            text,
  acquirer_request_id text,
  raw_hash            bytea       CHECK (length(raw_hash) = 32),
  bytes_written       bigint      NOT NULL DEFAULT 0,
  asked_at            timestamptz,
  moved_at            timestamptz, -- of a movement, as the acquirer tells it
  fence               bigint      NOT NULL DEFAULT 0,
  inference           text        NOT NULL DEFAULT '',
  effect              text        NOT NULL CHECK (effect IN ('moved', 'booked', 'repeat', 'behind', 'noted', 'stale_owner', 'conflict')),
  why                 text        NOT NULL,
  person              text,
  note                text,
  request_id          text,
  created_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id)
);
CREATE INDEX evidence_intent ON evidence (merchant_id, intent_id) WHERE intent_id IS NOT NULL;

CREATE TABLE ledger_entry (
  merchant_id uuid        NOT NULL REFERENCES merchant,
  tx_key      text        NOT NULL,
  line        smallint    NOT NULL CHECK (line > 0),
  id          uuid        NOT NULL,
  intent_id   uuid,
  payment_id  uuid,
  account     text        NOT NULL,
  amount      bigint      NOT NULL CHECK (amount <> 0), -- debit above zero, credit below
  currency    text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  created_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, tx_key, line)
);
CREATE INDEX ledger_entry_intent ON ledger_entry (merchant_id, intent_id) WHERE intent_id IS NOT NULL;

CREATE TABLE event (
  merchant_id uuid        NOT NULL REFERENCES merchant,
  intent_id   uuid        NOT NULL,
  version     bigint      NOT NULL CHECK (version > 0),
  id          uuid        NOT NULL,
  payment_id  uuid,
  event_key   text        NOT NULL,
  type        text        NOT NULL,
  payload     bytea       NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, intent_id, version),
  UNIQUE (merchant_id, id),
  UNIQUE (merchant_id, event_key),
  FOREIGN KEY (merchant_id, intent_id) REFERENCES payment_intent
);

-- What happened beside the evidence: claims, repeats, takeovers, permits, refused requests (E4).
CREATE TABLE history (
  merchant_id  uuid        NOT NULL REFERENCES merchant,
  id           uuid        NOT NULL,
  intent_id    uuid,
  payment_id   uuid,
  operation_id uuid,
  kind         text        NOT NULL,
  what         text        NOT NULL,
  why          text        NOT NULL DEFAULT '',
  request_id   text,
  key_hash     text,
  fence        bigint      NOT NULL DEFAULT 0,
  reference    text,
  created_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id)
);
CREATE INDEX history_intent ON history (merchant_id, intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX history_request ON history (merchant_id, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX history_key ON history (merchant_id, key_hash) WHERE key_hash IS NOT NULL;

CREATE TABLE review (
  merchant_id  uuid        NOT NULL REFERENCES merchant,
  id           uuid        NOT NULL,
  intent_id    uuid,
  payment_id   uuid,
  operation_id uuid,
  movement_id  uuid,
  reason       text        NOT NULL,
  detail       text        NOT NULL DEFAULT '',
  opened_at    timestamptz NOT NULL DEFAULT now(),
  decided_at   timestamptz,
  decision     text,
  PRIMARY KEY (merchant_id, id),
  CONSTRAINT review_subject CHECK (payment_id IS NOT NULL OR movement_id IS NOT NULL),
  CONSTRAINT review_decided CHECK ((decided_at IS NULL) = (decision IS NULL))
);
-- K6: an entry is written once. A review hangs on a movement, or else on a payment.
CREATE UNIQUE INDEX review_once_payment ON review (merchant_id, payment_id, reason) WHERE decided_at IS NULL AND movement_id IS NULL;
CREATE UNIQUE INDEX review_once_movement ON review (merchant_id, movement_id, reason) WHERE decided_at IS NULL AND movement_id IS NOT NULL;
CREATE INDEX review_open ON review (merchant_id, opened_at) WHERE decided_at IS NULL;
CREATE INDEX review_intent ON review (merchant_id, intent_id) WHERE intent_id IS NOT NULL;

CREATE TABLE decision (
  merchant_id         uuid        NOT NULL REFERENCES merchant,
  id                  uuid        NOT NULL,
  review_id           uuid        NOT NULL,
  kind                text        NOT NULL,
  idempotency_key     text        NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  verdict             text        NOT NULL,
  reference           text,
  person              text        NOT NULL CHECK (person <> ''),
  second_person       text        CHECK (second_person <> person),
  reason              text        NOT NULL CHECK (reason <> ''),
  created_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id),
  UNIQUE (merchant_id, kind, idempotency_key),
  FOREIGN KEY (merchant_id, review_id) REFERENCES review
);

-- One row for the whole database: which server this is, as far as anybody has acknowledged (A8).
CREATE TABLE database_epoch (
  singleton         boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
  epoch             bigint      NOT NULL CHECK (epoch > 0),
  system_identifier text        NOT NULL,
  timeline          int         NOT NULL,
  held              boolean     NOT NULL DEFAULT false,
  held_why          text        NOT NULL DEFAULT '',
  lost_from         timestamptz,
  lost_to           timestamptz,
  seen_at           timestamptz NOT NULL DEFAULT now(), -- the last time that a replica found all well
  changed_at        timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT epoch_interval CHECK (NOT held OR (lost_from IS NOT NULL AND lost_to IS NOT NULL)),
  CONSTRAINT epoch_order CHECK (lost_from <= lost_to) -- the other way round nothing would be compared
);

-- Roles: the owner migrates; the service cannot change what is written once; the console reads.
GRANT USAGE ON SCHEMA public TO hapax_service, hapax_console;
GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO hapax_service;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO hapax_console;
REVOKE SELECT ON api_key, acquirer_account FROM hapax_console;
GRANT UPDATE ON merchant, api_key, acquirer_account, payment_intent, payment, operation, movement, review, database_epoch TO hapax_service;
GRANT DELETE ON operation TO hapax_service;
-- What the schema says about itself is written by the migration alone; which server this is, only changed.
REVOKE INSERT ON schema_migration, migration_lease, database_epoch FROM hapax_service;
