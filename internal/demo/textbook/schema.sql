-- The schema of the repaired protocol: idempotency_keys and the three indexes as published; payments,
-- outbox and manual_review as its code reads and writes them.
CREATE SCHEMA IF NOT EXISTS textbook;

-- The key space of POST /payments alone.
CREATE TABLE IF NOT EXISTS textbook.idempotency_keys (
    merchant_id      BIGINT       NOT NULL,
    idempotency_key  VARCHAR(64)  NOT NULL,
    request_hash     CHAR(64)     NOT NULL,
    status           VARCHAR(20)  NOT NULL,            -- IN_PROGRESS | AWAITING_RESULT | COMPLETED
    attempt          INT          NOT NULL DEFAULT 1,  -- fencing token of the present owner
    lease_until      TIMESTAMPTZ  NOT NULL,
    expires_at       TIMESTAMPTZ  NOT NULL,            -- not before the client's and the acquirer's windows of repeats
    response_code    INT,
    response_body    JSONB,
    created_at       TIMESTAMPTZ  NOT NULL DEFAULT now(),
    PRIMARY KEY (merchant_id, idempotency_key)
);

CREATE INDEX IF NOT EXISTS ix_idempotency_keys_recovery
    ON textbook.idempotency_keys (lease_until)
    WHERE status IN ('IN_PROGRESS', 'AWAITING_RESULT');

CREATE INDEX IF NOT EXISTS ix_idempotency_keys_expiration
    ON textbook.idempotency_keys (expires_at)
    WHERE status = 'COMPLETED';

CREATE TABLE IF NOT EXISTS textbook.payments (
    id                 BIGINT       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant_id        BIGINT       NOT NULL,
    idempotency_key    VARCHAR(64)  NOT NULL,
    payment_intent_id  BIGINT       NOT NULL,
    amount_minor       BIGINT       NOT NULL,
    currency           VARCHAR(3)   NOT NULL,
    payment_method_id  VARCHAR(255) NOT NULL,
    status             VARCHAR(20)  NOT NULL,          -- PENDING | UNKNOWN | PAID | DECLINED | FAILED
    transaction_id     VARCHAR(255),
    reason             TEXT,
    version            INT          NOT NULL DEFAULT 0,
    created_at         TIMESTAMPTZ  NOT NULL DEFAULT now()
);

CREATE INDEX IF NOT EXISTS ix_payments_client_key
    ON textbook.payments (merchant_id, idempotency_key);

-- One attempt per intent until it is finally refused; a paid intent is not paid again.
CREATE UNIQUE INDEX IF NOT EXISTS ux_payment_intent_single_attempt
    ON textbook.payments (payment_intent_id)
    WHERE status IN ('PENDING', 'UNKNOWN', 'PAID');

CREATE TABLE IF NOT EXISTS textbook.outbox (
    id          BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic       TEXT        NOT NULL,
    message_key TEXT        NOT NULL,
    payload     JSONB       NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS textbook.manual_review (
    payment_id  BIGINT      PRIMARY KEY REFERENCES textbook.payments (id),
    created_at  TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- The hosted flow, as another article has it in the end: one active page of an order, one receipt, a code that is used up by
-- its own update.
CREATE TABLE IF NOT EXISTS textbook.sessions (
    id          BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id    BIGINT      NOT NULL,
    session_id  VARCHAR(64),
    page_url    TEXT,
    status      VARCHAR(20) NOT NULL,          -- REGISTERING | REGISTERED | AUTHORIZED | COMPLETED | CANCELING | CANCELED
    charge_id   VARCHAR(64),
    lease_until TIMESTAMPTZ                   -- of the sweep
);
CREATE UNIQUE INDEX IF NOT EXISTS ux_payment_active_order
    ON textbook.sessions (order_id)
    WHERE status IN ('REGISTERING', 'REGISTERED', 'AUTHORIZED', 'CANCELING');
CREATE TABLE IF NOT EXISTS textbook.receipts (
    order_id BIGINT NOT NULL,
    kind     VARCHAR(20) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS ux_order_payment_receipt
    ON textbook.receipts (order_id)
    WHERE kind = 'PaymentReceived';
CREATE TABLE IF NOT EXISTS textbook.codes (
    order_id BIGINT      NOT NULL,
    code     VARCHAR(20) NOT NULL,
    used     BOOLEAN     NOT NULL DEFAULT false
);
