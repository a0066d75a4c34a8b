-- 0002: the rest of a payment's life: pages, holds, captures, cancels, refunds, compensation, disputes, routing.
-- Why: hosted flow, two-step money, giving back. Locks: ACCESS EXCLUSIVE on the altered tables for a moment: added columns have
-- constant defaults, so that nothing is rewritten; the new CHECKs read each row once.
-- Rules: as in 0001. What a constraint forbade before and must allow now is replaced by a wider one.

ALTER TABLE merchant
  ADD cancel_code boolean NOT NULL DEFAULT false, -- every cancel needs a one-time code (X1)
  ADD compensate  text    NOT NULL DEFAULT 'review' CHECK (compensate IN ('review', 'automatic')); -- stray money: a person, or at once (X4)

ALTER TABLE payment
  ADD capture_method    text        NOT NULL DEFAULT 'automatic' CHECK (capture_method IN ('automatic', 'manual')),
  ADD return_url        text        CHECK (octet_length(return_url) <= 2048),
  ADD redirect_url      text        CHECK (octet_length(redirect_url) <= 4096), -- where the payer goes on
  ADD session_reference text,        -- the acquirer's id of the page
  ADD expires_at        timestamptz, -- of the hold or the page, as the acquirer tells it
  ADD authorized_amount bigint      NOT NULL DEFAULT 0 CHECK (authorized_amount >= 0),
  ADD capturing_amount  bigint      NOT NULL DEFAULT 0 CHECK (capturing_amount >= 0), -- reserved by an open capture
  ADD refunding_amount  bigint      NOT NULL DEFAULT 0 CHECK (refunding_amount >= 0), -- reserved by open refunds (X3)
  ADD disputed_amount   bigint      NOT NULL DEFAULT 0 CHECK (disputed_amount >= 0),  -- taken back by the payer's bank, open or lost
  ADD dispute           text        CHECK (dispute IN ('opened', 'won', 'lost')),
  ADD answered_status   smallint,   -- status code of the final answer to the command that made it (K8)
  ADD early             boolean     NOT NULL DEFAULT false, -- evidence waits for what must come before it (E1)
  DROP CONSTRAINT payment_payment_method_check,
  DROP CONSTRAINT payment_refunded, -- payment_given_back says it, and more
  ADD CONSTRAINT payment_method CHECK (octet_length(payment_method) <= 255 AND (payment_method <> '' OR flow = 'hosted')),
  -- I-9, in the schema as well as in code (X2, X3, X5).
  ADD CONSTRAINT payment_authorized CHECK (authorized_amount <= amount AND (authorized_amount = 0 OR captured_amount <= authorized_amount)),
  ADD CONSTRAINT payment_capturing  CHECK (capturing_amount = 0 OR captured_amount + capturing_amount <= authorized_amount),
  ADD CONSTRAINT payment_given_back CHECK (refunded_amount + refunding_amount + disputed_amount <= captured_amount);

-- One row for each change to a payment that a command asked for: capture, cancel, refund, compensation (section 9, K8).
CREATE TABLE modification (
  merchant_id         uuid        NOT NULL,
  id                  uuid        NOT NULL,
  intent_id           uuid        NOT NULL,
  payment_id          uuid        NOT NULL,
  type                text        NOT NULL CHECK (type IN ('capture', 'cancel', 'refund', 'compensation')),
  action              text        NOT NULL CHECK (action IN ('', 'capture', 'reverse', 'close', 'refund')), -- empty: not known yet what to call
  k                   int         NOT NULL CHECK (k > 0), -- ordinal of its type within the payment
  status              text        NOT NULL CHECK (status IN ('pending', 'unknown', 'succeeded', 'failed')),
  amount              bigint      NOT NULL CHECK (amount > 0),
  currency            text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  final               boolean     NOT NULL DEFAULT false, -- capture: releases the rest
  external            boolean     NOT NULL DEFAULT false, -- refund: made by hand at the acquirer
  movement_id         uuid,       -- compensation: the money that is given back
  account_id          uuid        NOT NULL,
  acquirer_key        text        NOT NULL CHECK (acquirer_key <> ''),
  acquirer_reference  text,
  reason              text        CHECK (octet_length(reason) <= 1000),
  failure_code        text,
  failure_message     text,
  answered_status     smallint,
  version             bigint      NOT NULL DEFAULT 1,
  kind                text        NOT NULL,
  idempotency_key     text        NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  created_at          timestamptz NOT NULL DEFAULT now(),
  updated_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id),
  UNIQUE (merchant_id, kind, idempotency_key),
  UNIQUE (merchant_id, acquirer_key),
  FOREIGN KEY (merchant_id, intent_id) REFERENCES payment_intent,
  FOREIGN KEY (merchant_id, payment_id) REFERENCES payment,
  FOREIGN KEY (merchant_id, account_id) REFERENCES acquirer_account,
  FOREIGN KEY (merchant_id, movement_id) REFERENCES movement,
  CONSTRAINT modification_failed CHECK ((status = 'failed') = (failure_code IS NOT NULL)),
  CONSTRAINT modification_movement CHECK ((type = 'compensation') = (movement_id IS NOT NULL))
) WITH (fillfactor = 80);
-- X2: at most one of capture and cancel is open.
CREATE UNIQUE INDEX modification_one_open ON modification (merchant_id, payment_id)
  WHERE type IN ('capture', 'cancel') AND status IN ('pending', 'unknown');
-- X4: money is given back once.
CREATE UNIQUE INDEX modification_compensates ON modification (merchant_id, movement_id) WHERE movement_id IS NOT NULL AND status <> 'failed';
CREATE INDEX modification_payment ON modification (merchant_id, payment_id, id);
CREATE INDEX modification_reference ON modification (merchant_id, acquirer_reference) WHERE acquirer_reference IS NOT NULL;

-- What a payer's bank took back, by the acquirer's id (point X5).
CREATE TABLE dispute (
  merchant_id uuid        NOT NULL,
  id          uuid        NOT NULL,
  intent_id   uuid        NOT NULL,
  payment_id  uuid        NOT NULL,
  account_id  uuid        NOT NULL,
  reference   text        NOT NULL CHECK (reference <> ''),
  amount      bigint      NOT NULL CHECK (amount > 0),
  currency    text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  status      text        NOT NULL CHECK (status IN ('opened', 'won', 'lost')),
  aside       boolean     NOT NULL DEFAULT false, -- more than was left of the payment: its money is kept aside
  opened_at   timestamptz NOT NULL DEFAULT now(),
  decided_at  timestamptz,
  PRIMARY KEY (merchant_id, id),
  UNIQUE (merchant_id, account_id, reference),
  FOREIGN KEY (merchant_id, payment_id) REFERENCES payment,
  CONSTRAINT dispute_decided CHECK ((status = 'opened') = (decided_at IS NULL))
);
CREATE INDEX dispute_payment ON dispute (merchant_id, payment_id);

-- An issued one-time code: which one counts, until when, how often it was tried. The code itself stands nowhere (X1).
CREATE TABLE cancel_code (
  merchant_id         uuid        NOT NULL,
  payment_id          uuid        NOT NULL,
  ordinal             int         NOT NULL CHECK (ordinal > 0),
  amount              bigint      NOT NULL CHECK (amount > 0), -- that the code is bound to
  tries               int         NOT NULL DEFAULT 0 CHECK (tries BETWEEN 0 AND 5),
  expires_at          timestamptz NOT NULL,
  consumed_at         timestamptz,
  kind                text        NOT NULL,
  idempotency_key     text        NOT NULL,
  fingerprint         bytea       NOT NULL CHECK (length(fingerprint) = 32),
  fingerprint_version smallint    NOT NULL,
  created_at          timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, payment_id, ordinal),
  UNIQUE (merchant_id, kind, idempotency_key),
  FOREIGN KEY (merchant_id, payment_id) REFERENCES payment
);

-- Which account takes a payment: rules of the lowest priority that fits, by weight (point P5 holds whatever they say).
CREATE TABLE routing_rule (
  merchant_id   uuid        NOT NULL,
  id            uuid        NOT NULL,
  account_id    uuid        NOT NULL,
  priority      int         NOT NULL DEFAULT 100 CHECK (priority >= 0),
  weight        int         NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 10000),
  currency      text        CHECK (currency ~ '^[A-Z]{3}$'),
  method_prefix text        CHECK (method_prefix <> '' AND octet_length(method_prefix) <= 255),
  flow          text        CHECK (flow IN ('direct', 'hosted')),
  created_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (merchant_id, id),
  FOREIGN KEY (merchant_id, account_id) REFERENCES acquirer_account
);

ALTER TABLE operation
  ADD modification_id uuid,
  ADD object          text; -- the acquirer's id of what the call is about (A1)

ALTER TABLE joined_command
  ADD modification_id uuid,
  ADD answered_status smallint; -- where the join itself was the final answer (K8)

-- K6: an entry is written once for an operation: two changes of one payment may each wait for a person.
DROP INDEX review_once_payment;
CREATE UNIQUE INDEX review_once_payment ON review (merchant_id, payment_id, operation_id, reason) NULLS NOT DISTINCT
  WHERE decided_at IS NULL AND movement_id IS NULL;

ALTER TABLE movement
  ADD object text, -- the acquirer's id of the charge that it is about
  DROP CONSTRAINT movement_kind_check,
  ADD CONSTRAINT movement_kind CHECK (kind IN ('hold', 'charge', 'capture', 'reverse', 'refund', 'chargeback'));

ALTER TABLE evidence
  ADD modification_id uuid,
  ADD about      text NOT NULL DEFAULT 'charge' CHECK (about IN ('charge', 'session', 'capture', 'reverse', 'close', 'refund', 'chargeback')),
  ADD object     text,
  ADD session    text,
  ADD final      boolean NOT NULL DEFAULT false,
  ADD expires_at timestamptz, -- of a hold or page, as the acquirer tells it
  DROP CONSTRAINT evidence_effect_check,
  ADD CONSTRAINT evidence_effect CHECK (effect IN ('moved', 'booked', 'repeat', 'behind', 'noted', 'stale_owner', 'conflict', 'early'));
CREATE INDEX evidence_early ON evidence (merchant_id, payment_id) WHERE effect = 'early';

GRANT SELECT, INSERT ON modification, dispute, cancel_code, routing_rule TO hapax_service;
GRANT UPDATE ON modification, dispute, cancel_code, routing_rule TO hapax_service;
GRANT DELETE ON routing_rule TO hapax_service;
GRANT SELECT ON modification, dispute, cancel_code, routing_rule TO hapax_console;
